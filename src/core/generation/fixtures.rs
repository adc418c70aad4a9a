//! Generations for tests: what one records from its beginning to its end.

use super::*;
use crate::domain::network::ProbeObservation;
use crate::domain::ownership::BootId;

pub(crate) const BOOT: &str = "11111111-1111-1111-1111-111111111111";
pub(crate) const LATER_BOOT: &str = "22222222-2222-2222-2222-222222222222";

pub(crate) fn process(pid: i32) -> ProcessIdentity {
    ProcessIdentity { pid, start_time: 1000 + pid as u64, boot_id: BootId::new(BOOT) }
}

pub(crate) fn profile() -> ProfileName {
    "claude".parse().unwrap()
}

pub(crate) fn workspace() -> Workspace {
    Workspace::from_canonical(PathBuf::from("/home/dev/project"))
}

pub(crate) fn domain() -> DomainId {
    DomainId::derive(&profile(), workspace().path())
}

pub(crate) fn artifact() -> ArtifactId {
    ArtifactId::of(b"artifact")
}

/// Gives an identifier whose digits are all the given one's, so that documents compare equal between runs.
fn fixed<T: std::str::FromStr<Err: fmt::Debug>>(digit: char) -> T {
    digit.to_string().repeat(32).parse().unwrap()
}

pub(crate) fn session(digit: char) -> SessionRecord {
    SessionRecord { id: fixed(digit), client: Some(fixed(digit)), registered_at: 1_700_000_001, process: None }
}

pub(crate) fn session_process() -> SessionProcess {
    SessionProcess { exec: process(30), guest_pid: 7 }
}

pub(crate) fn identity(generation: u64) -> GenerationIdentity {
    GenerationIdentity {
        domain: domain(),
        profile: profile(),
        workspace: workspace(),
        generation: Generation(generation),
        coordinator: fixed('c'),
        sidecar: fixed('d'),
        sandbox: fixed('e'),
        configuration: ConfigFingerprint::of(b"configuration"),
        leader: process(10),
        began_at: 1_700_000_000,
    }
}

pub(crate) fn namespace() -> NamespaceIdentity {
    NamespaceIdentity { device: 4, inode: 4_026_532_000 }
}

pub(crate) fn attestation() -> NetworkAttestation {
    NetworkAttestation {
        namespace: namespace(),
        policy: crate::domain::ids::PolicyDigest::of(b"policy"),
        fingerprint: crate::domain::ids::ReadinessFingerprint::of(b"ready"),
    }
}

pub(crate) fn probe(holds: bool) -> ProbeReport {
    let seen = if holds { "no route" } else { "connected" }.to_owned();
    ProbeReport {
        observations: vec![ProbeObservation { subject: "deny 10.255.255.254".to_owned(), holds, seen }],
        elapsed_us: 300,
    }
}

pub(crate) fn place(inode: u64) -> PathIdentity {
    PathIdentity { device: 1, inode, born: Some(1_700_000_000_000_000_000 + inode as i64) }
}

fn mount(target: &str, mount_id: u64) -> Ownership {
    Ownership::Mount(MountIdentity { target: target.to_owned(), mount_id, device: 40 })
}

pub(crate) fn anchor() -> Participant {
    Participant::AnchorMount("/root".to_owned().try_into().unwrap())
}

/// Every participant with what is intended and what is then owned, in the order in which they are made.
pub(crate) fn resources() -> Vec<(Participant, Target, Ownership)> {
    use Participant::*;
    let directory = |path: &str| Target::Directory { path: path.into(), contents: Contents::Developer };
    vec![
        (RuntimeDirectory, directory("/run/user/1000/lazaret/d/g1"), Ownership::Path(place(100))),
        (Scratch, directory("/data/domains/d/scratch-1"), Ownership::Path(place(101))),
        (Lease, Target::Lease { artifact: artifact() }, Ownership::Artifact(artifact())),
        (RuntimeSupervisor, Target::Process, Ownership::Process(process(20))),
        (Helper, Target::Process, Ownership::Process(process(21))),
        (NetworkNamespace, Target::Namespace, Ownership::Namespace(namespace())),
        (RootMount, Target::Mount, mount("/s/root", 51)),
        (anchor(), Target::Mount, mount("/s/anchors/root", 52)),
        (WorkspaceMount, Target::Mount, mount("/s/workspace", 53)),
        (Runsc, Target::Process, Ownership::Process(process(22))),
        (Socket, Target::Socket { path: "/run/user/1000/lazaret/d/hc.sock".into() }, Ownership::Path(place(102))),
        (
            Publication,
            Target::Record { path: "/run/user/1000/lazaret/d/publication.json".into() },
            Ownership::Path(place(103)),
        ),
    ]
}

/// The first transaction of a generation: it begins, and everything is intended.
pub(crate) fn beginning(generation: u64) -> Vec<Change> {
    let intents = resources().into_iter().map(|(participant, target, _)| Change::Intend(participant, target));
    std::iter::once(Change::Begin(Box::new(identity(generation)))).chain(intents).collect()
}

/// Every change from the beginning to the open publication, one transaction each.
pub(crate) fn life(generation: u64) -> Vec<Vec<Change>> {
    let mut life = vec![beginning(generation)];
    for (participant, _, ownership) in resources() {
        let last_before_publication = participant == Participant::Socket;
        if participant == Participant::Runsc {
            life.push(vec![Change::AttestNetwork(attestation())]);
        }
        if last_before_publication {
            life.push(vec![Change::AcceptProbe(probe(true))]);
            life.push(vec![Change::Publish]);
        }
        life.push(vec![Change::Own(participant, ownership)]);
    }
    life
}

/// What the generation's own coordinator records when it ends one that has no sessions.
pub(crate) fn ending() -> Vec<Vec<Change>> {
    let released = |wanted: fn(&Participant) -> bool| {
        let participants = resources().into_iter().map(|(participant, _, _)| participant);
        participants.filter(wanted).map(Change::Release).collect::<Vec<_>>()
    };
    vec![
        vec![Change::BeginTearDown(EndReason::Idle)],
        released(|p| matches!(p, Participant::Publication | Participant::Socket)),
        released(Participant::ends_with_supervisor),
        vec![Change::Release(Participant::RuntimeSupervisor), Change::ConfirmUnmounted],
        released(|p| matches!(p, Participant::Scratch | Participant::RuntimeDirectory)),
        vec![Change::ConfirmCatalogDelete, Change::Finish],
    ]
}

/// Applies changes that must be accepted.
pub(crate) fn accept<'a>(
    document: Option<GenerationDocument>,
    changes: impl IntoIterator<Item = &'a Change>,
) -> GenerationDocument {
    let applied = changes.into_iter().fold(document, |document, change| match apply(document, change) {
        Ok(document) => Some(document),
        Err(refusal) => panic!("{change:?} was refused: {refusal}"),
    });
    applied.expect("at least one change")
}

/// A generation with its publication open and one session running.
pub(crate) fn serving() -> GenerationDocument {
    let document = accept(None, life(1).iter().flatten());
    let record = session('1');
    let started = Change::StartSession(record.id.clone(), session_process());
    accept(Some(document), &[Change::RegisterSession(record), started])
}

/// Every document that can be reached by single changes of one generation with one session, prepared or not.
///
/// The directories and the anchor are left out: tables test them, and each behaves much like another that is in.
pub(crate) fn reachable() -> Vec<GenerationDocument> {
    let left_out = [Participant::RuntimeDirectory, Participant::Scratch, anchor()];
    let resources: Vec<_> =
        resources().into_iter().filter(|(participant, _, _)| !left_out.contains(participant)).collect();
    let record = session('1');
    let mut changes = vec![
        Change::AttestNetwork(attestation()),
        Change::AcceptProbe(probe(true)),
        Change::Publish,
        Change::PrepareSession(record.clone()),
        Change::AdoptSession(record.clone()),
        Change::RegisterSession(record.clone()),
        Change::StartSession(record.id.clone(), session_process()),
        Change::EndSession(record.id),
        Change::BeginTearDown(EndReason::Down),
        Change::BeginRecovery(process(11)),
        Change::IntendLeaseRelease,
        Change::ConfirmUnmounted,
        Change::ConfirmCatalogDelete,
        Change::Finish,
    ];
    let mut begin = vec![Change::Begin(Box::new(identity(1)))];
    for (participant, target, ownership) in resources {
        begin.push(Change::Intend(participant.clone(), target));
        changes.push(Change::Own(participant.clone(), ownership));
        changes.push(Change::Release(participant));
    }
    let mut seen = std::collections::HashSet::new();
    let mut found = vec![accept(None, &begin)];
    let mut next = 0;
    while let Some(document) = found.get(next).cloned() {
        next += 1;
        for change in &changes {
            if let Ok(after) = apply(Some(document.clone()), change)
                && seen.insert(serde_json::to_string(&Key(&after)).unwrap())
            {
                found.push(after);
            }
        }
    }
    found
}

/// What tells two documents of the walk apart.
struct Key<'a>(&'a GenerationDocument);

impl Serialize for Key<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let document = self.0;
        let intents: Vec<u8> = document
            .participants
            .values()
            .map(|intent| match intent {
                Intent::Intended(_) => 0,
                Intent::Owned { .. } => 1,
                Intent::Released => 2,
            })
            .collect();
        let sessions: Vec<_> =
            document.sessions.values().map(|session| (session.client.is_some(), session.process.is_some())).collect();
        let evidence = (document.readiness.is_some(), document.probe.is_some());
        (document.decision, document.release, intents, sessions, evidence).serialize(serializer)
    }
}
