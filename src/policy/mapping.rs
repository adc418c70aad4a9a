//! The identity mapping of a Domain, from the image's user, the developer and their subordinate ids.
//!
//! The image's user is the developer on both sides of the workspace; every other guest id is a
//! subordinate id of theirs:
//!
//! ```text
//! guest       0 … U-1          U          U+1 …
//! host   subordinate ids   developer   subordinate ids
//! ```
//!
//! That is three ranges, or two when U is 0, when one contiguous subordinate range suffices; the
//! kernel takes up to 340 (user_namespaces(7)).

use crate::domain::artifact::{GuestUser, IdMapping, IdRange, SubordinateRange};

/// How many subordinate ids are needed at least: images use ids up to 65535.
pub const NEEDED: u64 = 65_536;

/// The kernel's limit on the ranges of one mapping (user_namespaces(7), since Linux 4.15).
const MOST_RANGES: usize = 340;

/// Which of the two id spaces a problem concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// User ids.
    User,
    /// Group ids.
    Group,
}

impl IdKind {
    /// Gives the file that grants subordinate ids of this kind.
    pub fn file(self) -> &'static str {
        match self {
            Self::User => "/etc/subuid",
            Self::Group => "/etc/subgid",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
        }
    }
}

/// No mapping is possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// Too few subordinate ids are granted.
    #[error("{} grants {available} subordinate {} ids, but {NEEDED} are needed", kind.file(), kind.noun())]
    TooFew {
        /// Which ids.
        kind: IdKind,
        /// How many are granted.
        available: u64,
    },
    /// The image's user has a number that the granted ids do not reach.
    #[error(
        "the image's {} id {id} is out of reach: {} grants {available} subordinate {} ids, and the ids below it need {id}",
        kind.noun(), kind.file(), kind.noun()
    )]
    OutOfReach {
        /// Which ids.
        kind: IdKind,
        /// The image's id.
        id: u32,
        /// How many are granted.
        available: u64,
    },
    /// The granted ids are in too many pieces.
    #[error("{} grants subordinate {} ids in too many pieces: {pieces} would be needed", kind.file(), kind.noun())]
    TooManyPieces {
        /// Which ids.
        kind: IdKind,
        /// How many ranges the mapping would have.
        pieces: usize,
    },
}

/// Gives the mapping under which the image's user is the developer (user and group id) and every
/// other guest id a subordinate id.
pub fn identity_mapping(
    user: &GuestUser,
    developer: (u32, u32),
    subuids: &[SubordinateRange],
    subgids: &[SubordinateRange],
) -> Result<IdMapping, MappingError> {
    Ok(IdMapping {
        uids: ranges(IdKind::User, user.uid, developer.0, subuids)?,
        gids: ranges(IdKind::Group, user.gid, developer.1, subgids)?,
    })
}

/// Gives how many different ids the ranges grant besides the developer's own.
pub fn granted(own: u32, granted: &[SubordinateRange]) -> u64 {
    pieces(own, granted).iter().map(|piece| piece.end - piece.start).sum()
}

fn ranges(kind: IdKind, guest: u32, own: u32, granted: &[SubordinateRange]) -> Result<Vec<IdRange>, MappingError> {
    let pieces = pieces(own, granted);
    let available = pieces.iter().map(|piece| piece.end - piece.start).sum();
    if available < NEEDED {
        return Err(MappingError::TooFew { kind, available });
    }
    if available < u64::from(guest) {
        return Err(MappingError::OutOfReach { kind, id: guest, available });
    }
    let mapped = place(guest, own, &choose(&pieces, NEEDED.max(guest.into())));
    if mapped.len() > MOST_RANGES {
        return Err(MappingError::TooManyPieces { kind, pieces: mapped.len() });
    }
    Ok(mapped)
}

/// A piece of the host's ids, wider than them so that no end overflows.
type Piece = std::ops::Range<u64>;

/// The granted ids as ascending, disjoint, non-adjacent pieces without the developer's own id,
/// which is mapped by itself: the kernel refuses to map an id twice.
fn pieces(own: u32, granted: &[SubordinateRange]) -> Vec<Piece> {
    // The last id is never mapped: it means "no id" to the kernel.
    let limit = u64::from(u32::MAX);
    let end = |range: &SubordinateRange| (u64::from(range.start) + u64::from(range.count)).min(limit);
    let mut sorted: Vec<Piece> = granted.iter().map(|range| range.start.into()..end(range)).collect();
    sorted.sort_by_key(|piece| piece.start);
    let mut merged: Vec<Piece> = Vec::new();
    for piece in sorted {
        match merged.last_mut() {
            Some(last) if piece.start <= last.end => last.end = last.end.max(piece.end),
            _ => merged.push(piece),
        }
    }
    let own = u64::from(own);
    let without_own = |piece: Piece| [piece.start..piece.end.min(own), piece.start.max(own + 1)..piece.end];
    merged.into_iter().flat_map(without_own).filter(|piece| piece.start < piece.end).collect()
}

/// The first piece that suffices by itself, whole; else the first ones that together do.
fn choose(pieces: &[Piece], needed: u64) -> Vec<Piece> {
    if let Some(enough) = pieces.iter().find(|piece| piece.end - piece.start >= needed) {
        return vec![enough.clone()];
    }
    let mut sum = 0;
    let taken = pieces.iter().take_while(|piece| {
        let still_needed = sum < needed;
        sum += piece.end - piece.start;
        still_needed
    });
    taken.cloned().collect()
}

/// Lays the pieces onto the guest's ids from 0, with the developer at `guest`.
fn place(guest: u32, own: u32, pieces: &[Piece]) -> Vec<IdRange> {
    let developer = IdRange { inside: guest, outside: own, count: 1 };
    let mut mapped = Vec::new();
    let mut inside = 0u64;
    for piece in pieces {
        let mut outside = piece.start;
        while outside < piece.end {
            if inside == u64::from(guest) {
                mapped.push(developer);
                inside += 1;
            }
            let until_developer = if inside < u64::from(guest) { u64::from(guest) - inside } else { u64::MAX };
            let until_last = u64::from(u32::MAX) - inside;
            let count = (piece.end - outside).min(until_developer).min(until_last);
            let Ok(narrow) = u32::try_from(count) else { break };
            if narrow == 0 {
                break;
            }
            // All three fit: `inside` and `outside` are below u32::MAX by the bounds above.
            mapped.push(IdRange { inside: inside as u32, outside: outside as u32, count: narrow });
            inside += count;
            outside += count;
        }
    }
    if inside == u64::from(guest) {
        mapped.push(developer);
    }
    mapped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn user(uid: u32, gid: u32) -> GuestUser {
        GuestUser { uid, gid, groups: vec![], name: None, home: "/".into(), shell: "/bin/sh".into() }
    }

    fn range(start: u32, count: u32) -> SubordinateRange {
        SubordinateRange { start, count }
    }

    fn mapped(guest: u32, own: u32, granted: &[SubordinateRange]) -> Result<Vec<(u32, u32, u32)>, MappingError> {
        let ranges = ranges(IdKind::User, guest, own, granted)?;
        Ok(ranges.iter().map(|range| (range.inside, range.outside, range.count)).collect())
    }

    #[test]
    fn one_contiguous_range_gives_two_or_three() {
        let usual = [range(100_000, 65_536)];
        assert_eq!(mapped(0, 1001, &usual).unwrap(), [(0, 1001, 1), (1, 100_000, 65_536)]);
        assert_eq!(mapped(1000, 1001, &usual).unwrap(), [(0, 100_000, 1000), (1000, 1001, 1), (1001, 101_000, 64_536)]);
        assert_eq!(mapped(65_536, 1001, &usual).unwrap(), [(0, 100_000, 65_536), (65_536, 1001, 1)]);
    }

    #[test]
    fn user_and_group_are_mapped_apart() {
        let mapping = identity_mapping(&user(0, 7), (1001, 1002), &[range(100_000, 65_536)], &[range(300_000, 70_000)]);
        let mapping = mapping.unwrap();
        assert_eq!(mapping.host_uid(0), Some(1001));
        assert_eq!(mapping.gids[1], IdRange { inside: 7, outside: 1002, count: 1 });
        assert_eq!(mapping.gids[2], IdRange { inside: 8, outside: 300_007, count: 69_993 });
    }

    #[test]
    fn ranges_are_joined_as_needed() {
        let two = [range(200_000, 65_536), range(100_000, 65_536)];
        assert_eq!(mapped(0, 1001, &two).unwrap().len(), 2, "one suffices");
        let halves = [range(100_000, 40_000), range(200_000, 40_000), range(300_000, 40_000)];
        assert_eq!(
            mapped(50_000, 1001, &halves).unwrap(),
            [(0, 100_000, 40_000), (40_000, 200_000, 10_000), (50_000, 1001, 1), (50_001, 210_000, 30_000)]
        );
        let adjacent = [range(140_000, 40_000), range(100_000, 40_000)];
        assert_eq!(mapped(0, 1001, &adjacent).unwrap(), [(0, 1001, 1), (1, 100_000, 80_000)]);
        assert_eq!(
            mapped(100_000, 1001, &two).unwrap(),
            [(0, 100_000, 65_536), (65_536, 200_000, 34_464), (100_000, 1001, 1), (100_001, 234_464, 31_072)]
        );
    }

    #[test]
    fn overlaps_and_ones_own_id_are_mapped_once() {
        let overlapping = [range(100_000, 65_536), range(130_000, 65_536)];
        assert_eq!(mapped(0, 1001, &overlapping).unwrap(), [(0, 1001, 1), (1, 100_000, 95_536)]);
        let with_own = [range(1000, 70_000)];
        assert_eq!(mapped(0, 1001, &with_own).unwrap(), [(0, 1001, 1), (1, 1002, 69_998)]);
    }

    #[test]
    fn too_few_ids_are_refused_in_words() {
        let error = mapped(0, 1001, &[range(100_000, 1000)]).unwrap_err();
        assert_eq!(error, MappingError::TooFew { kind: IdKind::User, available: 1000 });
        assert_eq!(error.to_string(), "/etc/subuid grants 1000 subordinate user ids, but 65536 are needed");
        let error = mapped(100_000, 1001, &[range(100_000, 65_536)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the image's user id 100000 is out of reach: /etc/subuid grants 65536 subordinate user ids, and the ids below it need 100000"
        );
        assert!(matches!(mapped(0, 1001, &[]), Err(MappingError::TooFew { available: 0, .. })));
        let error = identity_mapping(&user(0, 0), (1, 1), &[range(100_000, 65_536)], &[]).unwrap_err();
        assert_eq!(error, MappingError::TooFew { kind: IdKind::Group, available: 0 });
    }

    #[test]
    fn crumbs_beyond_the_kernels_limit_are_refused() {
        let crumbs: Vec<_> = (0..700).map(|i| range(100_000 + 200 * i, 100)).collect();
        assert!(matches!(mapped(0, 1001, &crumbs), Err(MappingError::TooManyPieces { .. })));
    }

    proptest! {
        #[test]
        fn a_mapping_is_one_the_kernel_takes(
            guest in prop_oneof![0u32..70_000, any::<u32>()],
            own in prop_oneof![0u32..200_000, any::<u32>()],
            granted in proptest::collection::vec(
                (prop_oneof![0u32..400_000, any::<u32>()], prop_oneof![0u32..100_000, any::<u32>()])
                    .prop_map(|(start, count)| range(start, count)), 0..6),
        ) {
            prop_assume!(own != u32::MAX && guest != u32::MAX);
            let Ok(mapped) = ranges(IdKind::User, guest, own, &granted) else { return Ok(()) };
            let mut next = 0u64;
            for range in &mapped {
                prop_assert!(range.count > 0);
                prop_assert_eq!(u64::from(range.inside), next, "guest ids are contiguous from 0");
                next += u64::from(range.count);
            }
            prop_assert!(next > 65_536 && next > u64::from(guest) && next <= u64::from(u32::MAX));
            let mut outside: Vec<_> = mapped.iter().map(|r| (u64::from(r.outside), u64::from(r.outside) + u64::from(r.count))).collect();
            outside.sort();
            prop_assert!(outside.windows(2).all(|pair| pair[0].1 <= pair[1].0), "no host id twice");
            for range in &mapped {
                if range.inside == guest {
                    prop_assert_eq!((range.outside, range.count), (own, 1));
                } else {
                    let (start, end) = (u64::from(range.outside), u64::from(range.outside) + u64::from(range.count));
                    let covered = pieces(own, &granted).iter().any(|piece| piece.start <= start && end <= piece.end);
                    prop_assert!(covered, "only granted ids");
                }
            }
        }
    }
}
