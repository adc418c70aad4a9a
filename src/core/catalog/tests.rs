use super::fixtures::*;
use super::*;
use crate::core::generation::fixtures::{domain, place, process};

fn accept(state: &mut CatalogState, changes: &[CatalogChange]) {
    for change in changes {
        apply(state, change).unwrap_or_else(|refusal| panic!("{change:?} was refused: {refusal}"));
    }
}

fn refuse(state: &CatalogState, change: CatalogChange) -> CatalogRefusal {
    let mut after = state.clone();
    let refusal = apply(&mut after, &change).expect_err(&format!("{change:?}"));
    assert_eq!(after, *state, "a refused change changes nothing");
    refusal
}

fn prepared(name: &str, pid: i32, prepared_at: i64) -> Vec<CatalogChange> {
    let record = preparation_record(name, pid);
    let id = record.id.clone();
    let manifest = Box::new(manifest(name, prepared_at));
    vec![
        CatalogChange::BeginPreparation(Box::new(record)),
        CatalogChange::OwnPreparation(id.clone(), place(pid as u64)),
        CatalogChange::SealPreparation(id.clone(), manifest.clone()),
        CatalogChange::CompletePreparation(id, manifest),
    ]
}

fn lease(generation: u64, artifact: &ArtifactId) -> LeaseRecord {
    LeaseRecord { domain: domain(), generation: Generation(generation), artifact: artifact.clone(), acquired_at: 1 }
}

#[test]
fn a_lease_is_only_of_a_completed_artifact() {
    let mut state = CatalogState::default();
    let changes = prepared("debian", 40, 1);
    let artifact = manifest("debian", 1).id;
    for change in &changes {
        assert!(matches!(
            refuse(&state, CatalogChange::AcquireLease(lease(1, &artifact))),
            CatalogRefusal::NoArtifact(_)
        ));
        accept(&mut state, std::slice::from_ref(change));
    }
    accept(&mut state, &[CatalogChange::AcquireLease(lease(1, &artifact))]);
    accept(&mut state, &[CatalogChange::AcquireLease(lease(1, &artifact))]);
    assert_eq!(state.leases_of(&artifact).count(), 1);
    accept(&mut state, &[CatalogChange::AcquireLease(lease(2, &artifact))]);
    assert_eq!(state.leases_of(&artifact).count(), 2, "generations hold separate leases");
}

#[test]
fn a_leased_artifact_is_not_removed_and_a_removed_one_is_not_leased() {
    let mut state = CatalogState::default();
    accept(&mut state, &prepared("debian", 40, 1));
    let artifact = manifest("debian", 1).id;
    accept(&mut state, &[CatalogChange::AcquireLease(lease(1, &artifact))]);
    let refusal = refuse(&state, CatalogChange::BeginRemoval(artifact.clone()));
    assert!(matches!(refusal, CatalogRefusal::Leased { generation: Generation(1), .. }), "{refusal}");
    accept(&mut state, &[CatalogChange::ReleaseLease(domain(), Generation(1))]);
    let refusal = refuse(&state, CatalogChange::FinishRemoval(artifact.clone()));
    assert_eq!(refusal, CatalogRefusal::NotRemoving(artifact.clone()));
    accept(&mut state, &[CatalogChange::BeginRemoval(artifact.clone())]);
    let refusal = refuse(&state, CatalogChange::AcquireLease(lease(2, &artifact)));
    assert_eq!(refusal, CatalogRefusal::Removing(artifact.clone()));
    assert_eq!(state.ready().next(), None);
    accept(&mut state, &[CatalogChange::FinishRemoval(artifact.clone()), CatalogChange::FinishRemoval(artifact)]);
    assert!(state.artifacts.is_empty());
}

#[test]
fn a_generation_holds_one_artifact() {
    let mut state = CatalogState::default();
    accept(&mut state, &prepared("debian", 40, 1));
    accept(&mut state, &prepared("alpine", 41, 1));
    accept(&mut state, &[CatalogChange::AcquireLease(lease(1, &manifest("debian", 1).id))]);
    let refusal = refuse(&state, CatalogChange::AcquireLease(lease(1, &manifest("alpine", 1).id)));
    assert!(matches!(refusal, CatalogRefusal::LeaseDiffers { .. }), "{refusal}");
}

#[test]
fn two_preparations_of_one_artifact_leave_the_first_s_record() {
    let mut state = CatalogState::default();
    let late = preparation_record("debian", 41);
    accept(&mut state, &[CatalogChange::BeginPreparation(Box::new(late.clone()))]);
    accept(&mut state, &prepared("debian", 40, 1));
    let mut second = manifest("debian", 1);
    second.size += 1;
    accept(&mut state, &[CatalogChange::CompletePreparation(late.id.clone(), Box::new(second))]);
    assert_eq!(state.artifacts[&manifest("debian", 1).id].manifest, manifest("debian", 1));
    assert!(state.preparations.is_empty());
    let again = CatalogChange::CompletePreparation(late.id.clone(), Box::new(manifest("debian", 1)));
    assert_eq!(refuse(&state, again), CatalogRefusal::NoPreparation(late.id));
}

#[test]
fn a_sealed_preparation_becomes_what_it_was_sealed_as() {
    let mut state = CatalogState::default();
    accept(&mut state, &prepared("debian", 40, 1)[..3]);
    let id = preparation_record("debian", 40).id;
    let other = Box::new(manifest("debian", 2));
    let refusal = refuse(&state, CatalogChange::CompletePreparation(id.clone(), other.clone()));
    assert!(matches!(refusal, CatalogRefusal::SealedDifferently { .. }), "{refusal}");
    assert!(matches!(
        refuse(&state, CatalogChange::SealPreparation(id.clone(), other)),
        CatalogRefusal::SealedDifferently { .. }
    ));
    assert!(matches!(
        refuse(&state, CatalogChange::OwnPreparation(id.clone(), place(1))),
        CatalogRefusal::PreparationDiffers(_)
    ));
    let mut again = preparation_record("debian", 40);
    again.owner = process(77);
    assert!(matches!(
        refuse(&state, CatalogChange::BeginPreparation(Box::new(again))),
        CatalogRefusal::PreparationDiffers(_)
    ));
}

#[test]
fn only_a_dead_owner_s_preparation_is_abandoned() {
    let mut state = CatalogState::default();
    for pid in [40, 41] {
        accept(&mut state, &[CatalogChange::BeginPreparation(Box::new(preparation_record("debian", pid)))]);
    }
    let abandoned: Vec<_> = state.abandoned(|owner| owner.pid == 40).map(|record| record.owner.pid).collect();
    assert_eq!(abandoned, vec![41]);
}

#[test]
fn what_becomes_of_an_abandoned_preparation() {
    let begun = preparation_record("debian", 40);
    let owned = PreparationRecord { identity: Some(place(40)), ..begun.clone() };
    let sealed = PreparationRecord { sealed: Some(manifest("debian", 1)), ..owned.clone() };
    let directory = |inode| Seen::Directory(place(inode), Emptiness::Filled);
    let empty = Seen::Directory(place(40), Emptiness::Empty);
    let remove = || Reclaim::Remove(begun.directory.clone());
    let leave = || Reclaim::LeaveAlone(begun.directory.clone());
    let complete = || Reclaim::Complete(Box::new(manifest("debian", 1)));
    let cases = [
        (&begun, Seen::Nothing, Seen::Nothing, Reclaim::Abandon),
        (&begun, empty, Seen::Nothing, remove()),
        (&begun, directory(40), Seen::Nothing, leave()),
        (&begun, Seen::Other, Seen::Nothing, leave()),
        (&owned, directory(40), Seen::Nothing, remove()),
        (&owned, directory(41), Seen::Nothing, leave()),
        (&owned, Seen::Nothing, directory(40), Reclaim::Abandon),
        (&sealed, directory(40), Seen::Nothing, remove()),
        (&sealed, directory(40), directory(50), remove()),
        (&sealed, Seen::Nothing, directory(40), complete()),
        (&sealed, Seen::Nothing, directory(50), Reclaim::Abandon),
        (&sealed, Seen::Nothing, Seen::Nothing, Reclaim::Abandon),
        (&sealed, directory(41), directory(40), leave()),
    ];
    for (record, at_directory, at_artifact, expected) in cases {
        let context = format!("{at_directory:?} {at_artifact:?}");
        assert_eq!(reclaim(record, at_directory, at_artifact, Boot::Same), expected, "{context}");
    }
    let mut moved = place(40);
    moved.device += 1;
    let seen = Seen::Directory(moved, Emptiness::Filled);
    assert_eq!(reclaim(&owned, seen, Seen::Nothing, Boot::Same), leave());
    assert_eq!(reclaim(&owned, seen, Seen::Nothing, Boot::Later), remove());
}
