use super::*;
use crate::core::generation::fixtures::*;
use crate::core::generation::{self, Target};
use crate::domain::ownership::BootId;

/// A world that effects act on, to see what a plan leaves behind.
#[derive(Debug, Clone, PartialEq)]
struct World {
    processes: BTreeMap<i32, ProcessIdentity>,
    paths: BTreeMap<Participant, Found>,
    lease: Option<ArtifactId>,
}

impl World {
    fn empty() -> Self {
        Self { processes: BTreeMap::new(), paths: BTreeMap::new(), lease: None }
    }

    /// Everything that the document owns exists exactly, and everything that it intends may as well.
    fn of(document: &GenerationDocument) -> Self {
        let mut world = Self::empty();
        for process in owned_processes(document) {
            world.processes.insert(process.pid, process.clone());
        }
        for (participant, target, ownership) in resources() {
            let owned = match document.intent(&participant) {
                Some(Intent::Owned { .. }) => true,
                Some(Intent::Intended(_)) => false,
                _ => continue,
            };
            match (&target, ownership) {
                (Target::Lease { artifact }, _) => world.lease = Some(artifact.clone()),
                (_, Ownership::Path(identity)) => {
                    let kind = made(&target, owned);
                    world.paths.insert(participant, Found { identity, owner: Owner::Developer, kind });
                }
                _ => {}
            }
        }
        world
    }

    fn observe(&self, document: &GenerationDocument) -> Observed {
        let inquiry = Inquiry::of(document);
        let process = |pid: &i32| self.processes.get(pid).map(|process| (*pid, process.clone()));
        let sight = |participant: &Participant| match self.paths.get(participant) {
            Some(found) => Sighting::Present(found.clone()),
            None => Sighting::Absent,
        };
        Observed {
            leader: process_of_leader(),
            processes: inquiry.pids.iter().filter_map(process).collect(),
            paths: inquiry.paths.keys().map(|participant| (participant.clone(), sight(participant))).collect(),
            lease: inquiry.lease.and_then(|_| self.lease.clone()),
        }
    }

    /// Runs an effect as its description says, and fails where an effect would touch what is not ours.
    fn run(&mut self, document: &mut GenerationDocument, effect: &RecoveryEffect) {
        match effect {
            RecoveryEffect::Record(changes) => *document = accept(Some(document.clone()), changes),
            RecoveryEffect::KillSupervisor(process) | RecoveryEffect::KillProcess(process) => {
                assert_eq!(self.processes.get(&process.pid), Some(process), "killed another process");
                self.processes.remove(&process.pid);
                // Everything in the pid namespace dies with its first process.
                if matches!(effect, RecoveryEffect::KillSupervisor(_)) {
                    self.processes.clear();
                }
            }
            RecoveryEffect::RemoveFile { participant, identity, .. }
            | RecoveryEffect::RemoveTree { participant, identity, .. }
            | RecoveryEffect::RemoveEmptyDirectory { participant, identity, .. } => {
                let found = self.paths.remove(participant).expect("removed what is not there");
                assert_eq!(found.identity, *identity);
                if matches!(effect, RecoveryEffect::RemoveEmptyDirectory { .. }) {
                    assert_eq!(found.kind, FoundKind::EmptyDirectory);
                }
            }
            RecoveryEffect::DeleteLease { artifact, .. } => {
                assert_eq!(document.release, LeaseRelease::Unmounted, "FR-17: unmounted before the catalog delete");
                assert_eq!(self.lease.take().as_ref(), Some(artifact));
            }
        }
    }
}

fn process_of_leader() -> ProcessIdentity {
    process(11)
}

fn made(target: &Target, owned: bool) -> FoundKind {
    match target {
        Target::Directory { .. } if owned => FoundKind::FilledDirectory,
        Target::Directory { .. } => FoundKind::EmptyDirectory,
        Target::Socket { .. } => FoundKind::Socket(Listener::None),
        _ => FoundKind::File(Some(identity(1).coordinator)),
    }
}

fn recover(document: &GenerationDocument, world: &World) -> (GenerationDocument, World, RecoveryPlan) {
    let plan = plan(document, &world.observe(document));
    let (mut document, mut world) = (document.clone(), world.clone());
    for effect in &plan.effects {
        // A process that died with the supervisor is found gone when its turn comes.
        if let Some(process) = killed_by(effect)
            && !world.processes.contains_key(&process.pid)
        {
            continue;
        }
        world.run(&mut document, effect);
    }
    (document, world, plan)
}

#[test]
fn a_killed_coordinator_s_generation_is_removed_in_order() {
    let document = serving();
    let plan = plan(&document, &World::of(&document).observe(&document));
    assert_eq!(plan.refusals, vec![]);
    let path = |participant: &Participant| document.path(participant).unwrap().to_owned();
    let file = |participant: Participant, inode| RecoveryEffect::RemoveFile {
        path: path(&participant),
        participant,
        identity: place(inode),
    };
    let tree = |participant: Participant, inode| RecoveryEffect::RemoveTree {
        path: path(&participant),
        participant,
        identity: place(inode),
        contents: Contents::Developer,
    };
    use Participant::*;
    let expected = vec![
        RecoveryEffect::Record(vec![Change::BeginRecovery(process(11)), Change::IntendLeaseRelease]),
        file(Publication, 103),
        file(Socket, 102),
        RecoveryEffect::KillSupervisor(process(20)),
        RecoveryEffect::KillProcess(process(22)),
        RecoveryEffect::KillProcess(process(21)),
        RecoveryEffect::KillProcess(process(30)),
        RecoveryEffect::Record(vec![
            Change::EndSession(session('1').id),
            Change::Release(Helper),
            Change::Release(NetworkNamespace),
            Change::Release(RootMount),
            Change::Release(anchor()),
            Change::Release(WorkspaceMount),
            Change::Release(Runsc),
            Change::Release(RuntimeSupervisor),
            Change::ConfirmUnmounted,
            Change::Release(Publication),
            Change::Release(Socket),
        ]),
        tree(Scratch, 101),
        tree(RuntimeDirectory, 100),
        RecoveryEffect::DeleteLease { domain: domain(), generation: Generation(1), artifact: artifact() },
        RecoveryEffect::Record(vec![
            Change::Release(Scratch),
            Change::Release(RuntimeDirectory),
            Change::ConfirmCatalogDelete,
            Change::Finish,
        ]),
    ];
    assert_eq!(plan.effects, expected);
}

#[test]
fn its_own_coordinator_does_not_recover_but_finishes() {
    let down = accept(Some(serving()), &[Change::BeginTearDown(crate::core::lifecycle::EndReason::Down)]);
    let mut observed = World::empty().observe(&down);
    observed.leader = down.identity.leader.clone();
    let plan = plan(&down, &observed);
    let records: Vec<&Change> = plan.effects.iter().flat_map(changes_of).collect();
    assert!(!records.iter().any(|change| matches!(change, Change::BeginRecovery(_))), "{records:?}");
    assert_eq!(records.last(), Some(&&Change::Finish));
}

fn killed_by(effect: &RecoveryEffect) -> Option<&ProcessIdentity> {
    match effect {
        RecoveryEffect::KillSupervisor(process) | RecoveryEffect::KillProcess(process) => Some(process),
        _ => None,
    }
}

fn changes_of(effect: &RecoveryEffect) -> &[Change] {
    match effect {
        RecoveryEffect::Record(changes) => changes,
        _ => &[],
    }
}

#[test]
fn a_clean_generation_needs_nothing() {
    let clean = accept(None, life(1).iter().chain(&ending()).flatten());
    assert_eq!(plan(&clean, &World::empty().observe(&clean)), RecoveryPlan::default());
    assert_eq!(Inquiry::of(&clean), Inquiry { pids: vec![], paths: BTreeMap::new(), lease: None });
}

/// A generation interrupted anywhere, found with everything or with nothing, ends clean with nothing left.
#[test]
fn every_reachable_generation_is_recovered() {
    for document in generation::fixtures::reachable() {
        for world in [World::of(&document), World::empty()] {
            let (after, left, plan) = recover(&document, &world);
            assert_eq!(plan.refusals, vec![], "{document:#?}");
            assert_eq!((after.decision, left), (Decision::Clean, World::empty()), "{document:#?} {plan:#?}");
        }
    }
}

/// A recovery that is itself interrupted after any of its effects is finished by the next.
#[test]
fn an_interrupted_recovery_is_recovered() {
    let lives = life(1);
    for transactions in 1..=lives.len() {
        let document = accept(None, lives[..transactions].iter().flatten());
        let world = World::of(&document);
        let effects = plan(&document, &world.observe(&document)).effects;
        for interrupted in 0..effects.len() {
            let (mut document, mut world) = (document.clone(), world.clone());
            for effect in &effects[..interrupted] {
                if killed_by(effect).is_none_or(|process| world.processes.contains_key(&process.pid)) {
                    world.run(&mut document, effect);
                }
            }
            let (after, left, plan) = recover(&document, &world);
            assert_eq!(plan.refusals, vec![]);
            assert_eq!((after.decision, left), (Decision::Clean, World::empty()), "after {interrupted} effects");
        }
    }
}

#[test]
fn a_reused_pid_is_never_killed() {
    let document = serving();
    let mut world = World::of(&document);
    let mut stranger = process(20);
    stranger.start_time += 1;
    world.processes.insert(20, stranger.clone());
    let mut other_boot = process(21);
    other_boot.boot_id = BootId::new(LATER_BOOT);
    world.processes.insert(21, other_boot.clone());
    let plan = plan(&document, &world.observe(&document));
    for innocent in [stranger, other_boot] {
        assert!(!plan.effects.iter().filter_map(killed_by).any(|killed| *killed == innocent), "{plan:?}");
    }
    assert!(plan.effects.contains(&RecoveryEffect::KillProcess(process(22))), "{plan:?}");
    assert!(plan.effects.iter().flat_map(changes_of).any(|change| *change == Change::Finish));
}

/// Each place in turn holds something that is not provably ours: it stays, the rest goes, and the
/// generation is not clean until the developer has moved it.
#[test]
fn a_foreign_thing_is_left_alone_and_named() {
    let owned = accept(None, life(1).iter().flatten());
    let intended = accept(None, &beginning(1));
    let stranger = Found { identity: place(999), owner: Owner::Developer, kind: FoundKind::Other };
    let named = |kind: FoundKind| Found { kind, ..stranger.clone() };
    use Participant::*;
    let cases = [
        (&owned, Scratch, named(FoundKind::FilledDirectory), Mismatch::Replaced),
        (&owned, RuntimeDirectory, named(FoundKind::EmptyDirectory), Mismatch::Replaced),
        (&owned, Socket, named(FoundKind::Socket(Listener::None)), Mismatch::Replaced),
        (&owned, Publication, named(FoundKind::File(Some(identity(1).coordinator))), Mismatch::Replaced),
        (&owned, Scratch, Found { identity: place(101), ..stranger.clone() }, Mismatch::OtherKind),
        (&intended, Scratch, named(FoundKind::FilledDirectory), Mismatch::UnrecordedContent),
        (&intended, Scratch, named(FoundKind::File(None)), Mismatch::OtherKind),
        (&intended, Socket, named(FoundKind::Socket(Listener::Some)), Mismatch::Listening),
        (&intended, Socket, named(FoundKind::Other), Mismatch::OtherKind),
        (&intended, Publication, named(FoundKind::File(None)), Mismatch::OtherCoordinator),
        (
            &intended,
            Publication,
            named(FoundKind::File(Some(crate::domain::ids::CoordinatorId::mint()))),
            Mismatch::OtherCoordinator,
        ),
        (
            &intended,
            RuntimeDirectory,
            Found { owner: Owner::Other, kind: FoundKind::EmptyDirectory, ..stranger.clone() },
            Mismatch::OtherUser,
        ),
    ];
    for (document, participant, found, mismatch) in cases {
        let mut world = World::of(document);
        world.paths.insert(participant.clone(), found.clone());
        let (after, left, plan) = recover(document, &world);
        let refused: Vec<_> = plan.refusals.iter().map(|refusal| (&refusal.participant, &refusal.mismatch)).collect();
        assert_eq!(refused, vec![(&participant, &mismatch)]);
        let untouched = World { paths: [(participant.clone(), found)].into(), ..World::empty() };
        assert_eq!(left, untouched, "only the foreign thing is left");
        assert_eq!(after.decision, Decision::Recovering);
        let text = plan.refusals[0].to_string();
        let path = document.path(&participant).unwrap().display().to_string();
        assert!(text.contains(&path) && plan.refusals[0].hint().contains(&path), "{text}");
        // The developer moves it away, and the next start goes on.
        let (after, left, _) = recover(&after, &World::empty());
        assert_eq!((after.decision, left), (Decision::Clean, World::empty()));
    }
}

#[test]
fn a_lease_of_another_artifact_is_left_alone() {
    let document = serving();
    let mut world = World::of(&document);
    world.lease = Some(ArtifactId::of(b"other"));
    let (after, left, plan) = recover(&document, &world);
    assert!(matches!(plan.refusals[..], [RecoveryRefusal { mismatch: Mismatch::OtherArtifact { .. }, .. }]));
    assert_eq!((after.decision, left.lease), (Decision::Recovering, Some(ArtifactId::of(b"other"))));
}

/// After a reboot processes, mounts and namespaces are gone without asking, and a directory is known by inode and
/// birth time although its device number may have changed.
#[test]
fn a_reboot_leaves_only_what_is_on_disk() {
    let document = serving();
    let mut world = World { processes: BTreeMap::new(), ..World::of(&document) };
    for found in world.paths.values_mut() {
        found.identity.device += 5;
    }
    let mut observed = world.observe(&document);
    observed.leader.boot_id = BootId::new(LATER_BOOT);
    let rebooted = plan(&document, &observed);
    assert_eq!(rebooted.refusals, vec![]);
    assert!(rebooted.effects.iter().all(|effect| killed_by(effect).is_none()));
    // Without a birth time an inode number proves nothing across boots.
    for sighting in observed.paths.values_mut() {
        if let Sighting::Present(found) = sighting {
            found.identity.born = None;
        }
    }
    let refused: Vec<_> = plan(&document, &observed).refusals.into_iter().map(|refusal| refusal.mismatch).collect();
    assert_eq!(refused, vec![Mismatch::Replaced; 4]);
}

#[test]
fn what_was_not_looked_at_is_not_touched() {
    let document = serving();
    let mut observed = World::of(&document).observe(&document);
    observed.paths.clear();
    let plan = plan(&document, &observed);
    assert_eq!(plan.refusals.len(), 4);
    assert!(!plan.effects.iter().any(|effect| matches!(effect, RecoveryEffect::RemoveTree { .. })));
}

/// What the clock said when something was recorded decides nothing: processes are known by ticks since boot and the boot's
/// id, directories by the birth time that they themselves keep.
#[test]
fn a_clock_that_jumped_changes_nothing() {
    let document = serving();
    let observed = World::of(&document).observe(&document);
    let expected = plan(&document, &observed);
    for time in [i64::MIN, -1, 0, 1, i64::from(u32::MAX), i64::MAX] {
        let mut jumped = document.clone();
        jumped.identity.began_at = time;
        for session in jumped.sessions.values_mut() {
            session.registered_at = time;
        }
        assert_eq!(plan(&jumped, &observed), expected, "recorded at {time}");
    }
}
