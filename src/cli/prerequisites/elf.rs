//! Tells a static executable from one that needs a dynamic loader (elf(5)).

/// How an executable file is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linkage {
    /// It runs by itself, in any image.
    Static,
    /// It names a loader, which must be in the image.
    Dynamic,
    /// It is no 64-bit little-endian ELF executable.
    Foreign,
}

/// How much of a file's beginning [`linkage`] wants at most.
pub const HEAD: usize = 16 << 10;

const PT_INTERP: u32 = 3;

/// Judges by the beginning of a file. Program headers that lie beyond it make it foreign.
pub fn linkage(head: &[u8]) -> Linkage {
    headers(head).map_or(Linkage::Foreign, |mut kinds| {
        if kinds.any(|kind| kind == PT_INTERP) { Linkage::Dynamic } else { Linkage::Static }
    })
}

/// Gives the type of each program header.
fn headers(head: &[u8]) -> Option<impl Iterator<Item = u32>> {
    // Magic number, 64 bits, little-endian.
    head.strip_prefix(b"\x7fELF\x02\x01")?;
    let offset = usize::try_from(u64::from_le_bytes(*head.get(32..)?.first_chunk()?)).ok()?;
    let size = usize::from(u16::from_le_bytes(*head.get(54..)?.first_chunk()?));
    let count = usize::from(u16::from_le_bytes(*head.get(56..)?.first_chunk()?));
    if size < 4 || count == 0 {
        return None;
    }
    let table = head.get(offset..offset.checked_add(size * count)?)?;
    Some(table.chunks(size).filter_map(|header| header.first_chunk().map(|kind| u32::from_le_bytes(*kind))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn elf(kinds: &[u32]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(64, 0);
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[54..56].copy_from_slice(&56u16.to_le_bytes());
        file[56..58].copy_from_slice(&(kinds.len() as u16).to_le_bytes());
        for kind in kinds {
            file.extend(kind.to_le_bytes());
            file.extend([0; 52]);
        }
        file
    }

    #[test]
    fn a_loader_makes_it_dynamic() {
        assert_eq!(linkage(&elf(&[6, 3, 1])), Linkage::Dynamic);
        assert_eq!(linkage(&elf(&[1, 1, 2])), Linkage::Static);
        assert_eq!(linkage(&elf(&[1, 1, 2])[..100]), Linkage::Foreign);
        assert_eq!(linkage(b"#!/bin/sh\n"), Linkage::Foreign);
        assert_eq!(linkage(b""), Linkage::Foreign);
    }

    #[test]
    fn the_shell_is_dynamic() {
        let file = std::fs::read("/bin/sh").unwrap();
        assert_eq!(linkage(&file[..HEAD]), Linkage::Dynamic);
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(rest in proptest::collection::vec(any::<u8>(), 0..100)) {
            linkage(&[b"\x7fELF\x02\x01".to_vec(), rest].concat());
        }
    }
}
