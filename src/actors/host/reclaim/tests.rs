//! A lost generation is recovered on real files, processes and stores, some of which are not what was recorded.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::core::catalog::fixtures::{manifest, source};
use crate::core::generation::fixtures::{beginning, domain, identity, process as recorded_process};
use crate::core::generation::{Change, Decision, Ownership, Target};
use crate::domain::ids::{ArtifactId, Generation};
use crate::domain::ownership::BootId;
use crate::store::DomainStore;
use crate::store::writer::StoreWriter;

/// A lost generation's places and stores.
struct Lost {
    _home: tempfile::TempDir,
    places: Places,
    artifact: ArtifactId,
}

impl Lost {
    /// Makes places and a catalog in which this generation and the next hold an artifact.
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let private = |path: &Path| {
            std::fs::create_dir_all(path).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
        };
        let places = Places::new(home.path().join("data"), &home.path().join("run"), &domain());
        private(places.storage.path());
        private(places.domain.path());
        private(places.runtime.path());
        let open = || Catalog::open(&places.storage).unwrap();
        let record = open().begin_preparation(recorded_process(40), source("debian")).unwrap();
        let manifest = manifest("debian", 1);
        open().complete(&record.id, &manifest).unwrap();
        for generation in [1, 2] {
            open().acquire_lease(&domain(), Generation(generation), &manifest.id).unwrap();
        }
        Self { _home: home, places, artifact: manifest.id }
    }

    fn runtime(&self) -> PathBuf {
        self.places.runtime_of(Generation(1))
    }

    fn scratch(&self) -> PathBuf {
        self.places.domain.scratch(Generation(1))
    }

    /// Makes the generation's directories with something in them, and records all of it as a coordinator that is
    /// gone did, with this process as its supervisor.
    fn record(&self, supervisor: ProcessIdentity) {
        let mut store = self.store();
        let begin = beginning(1).into_iter().map(|change| match change {
            Change::Begin(_) => {
                let mut identity = identity(1);
                identity.leader.boot_id = procfs::boot_id().unwrap();
                Change::Begin(Box::new(identity))
            }
            Change::Intend(participant, target) => {
                let target = self.target(&participant, target);
                Change::Intend(participant, target)
            }
            other => other,
        });
        store.apply(&begin.collect::<Vec<_>>()).unwrap();
        for (participant, path) in
            [(Participant::RuntimeDirectory, self.runtime()), (Participant::Scratch, self.scratch())]
        {
            std::fs::create_dir(&path).unwrap();
            let made = Ownership::Path(owned_identity(&path).unwrap());
            store.apply(&[Change::Own(participant, made)]).unwrap();
            std::fs::create_dir(path.join("m")).unwrap();
            std::fs::write(path.join("m/file"), "the generation's").unwrap();
        }
        let artifact = Ownership::Artifact(self.artifact.clone());
        let supervisor = Ownership::Process(supervisor);
        store.apply(&[Change::Own(Participant::Lease, artifact)]).unwrap();
        store.apply(&[Change::Own(Participant::RuntimeSupervisor, supervisor)]).unwrap();
    }

    fn target(&self, participant: &Participant, target: Target) -> Target {
        let directory = |path| Target::Directory { path, contents: Contents::Developer };
        match participant {
            Participant::RuntimeDirectory => directory(self.runtime()),
            Participant::Scratch => directory(self.scratch()),
            Participant::Socket => Target::Socket { path: self.places.runtime.socket() },
            Participant::Publication => Target::Record { path: self.places.runtime.publication() },
            Participant::Lease => Target::Lease { artifact: self.artifact.clone() },
            _ => target,
        }
    }

    fn store(&self) -> DomainStore {
        DomainStore::open(&self.places.domain.store(), &domain()).unwrap()
    }

    /// Recovers, and gives what came of it and the decision that is durable then.
    async fn recover(&self) -> (Result<(), ReclaimError>, Decision) {
        let (writer, ended) = ractor::Actor::spawn(None, fault::actor(StoreWriter), self.store()).await.unwrap();
        let records = Records::new(writer);
        let outcome = run(&records, &self.places).await;
        records.close().await;
        ended.await.unwrap();
        (outcome, self.store().document().unwrap().decision)
    }

    /// Recovers, which must end clean with nothing left.
    async fn recover_clean(&self) {
        let (outcome, decision) = self.recover().await;
        outcome.unwrap();
        assert_eq!(decision, Decision::Clean);
        assert!(!self.runtime().exists() && !self.scratch().exists());
        assert_eq!(self.lease(1), None);
        assert_eq!(self.lease(2).as_ref(), Some(&self.artifact), "another generation's lease is not touched");
    }

    fn lease(&self, generation: u64) -> Option<ArtifactId> {
        Catalog::open(&self.places.storage).unwrap().lease(&domain(), Generation(generation)).cloned()
    }
}

/// A process that sleeps until the test ends.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }

    fn identity(&self) -> ProcessIdentity {
        procfs::identity(self.0.id() as i32).unwrap().unwrap()
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn what_is_exactly_owned_goes() {
    let (lost, mut supervisor) = (Lost::new(), Sleeper::start());
    lost.record(supervisor.identity());
    lost.recover_clean().await;
    assert!(!supervisor.is_running());
}

/// The recorded pid is now another process of the same user, of this boot or as recorded in another.
#[tokio::test]
async fn a_foreign_process_under_the_recorded_pid_lives() {
    type Alter = fn(&mut ProcessIdentity);
    let alterations: [Alter; 3] = [
        |recorded| recorded.start_time -= 1,
        |recorded| recorded.start_time += 1,
        |recorded| recorded.boot_id = BootId::new(crate::core::generation::fixtures::LATER_BOOT),
    ];
    for alter in alterations {
        let (lost, mut stranger) = (Lost::new(), Sleeper::start());
        let mut recorded = stranger.identity();
        alter(&mut recorded);
        lost.record(recorded);
        lost.recover_clean().await;
        assert!(stranger.is_running());
    }
}

/// A pid that is reused between the look and the kill: the identity is compared again on the pidfd.
#[tokio::test]
async fn a_pid_that_is_reused_at_the_last_moment_is_not_killed() {
    let mut stranger = Sleeper::start();
    let mut recorded = stranger.identity();
    recorded.start_time -= 1;
    kill(&recorded).await.unwrap();
    assert!(stranger.is_running());
}

#[tokio::test]
async fn a_replaced_directory_is_left_and_named() {
    let lost = Lost::new();
    lost.record(recorded_process(1));
    let (scratch, ours) = (lost.scratch(), lost.places.domain.path().join("ours"));
    std::fs::rename(&scratch, &ours).unwrap();
    std::fs::create_dir(&scratch).unwrap();
    std::fs::write(scratch.join("precious"), "precious").unwrap();
    for _ in 0..2 {
        let (outcome, decision) = lost.recover().await;
        let error = outcome.unwrap_err();
        assert_eq!(decision, Decision::Recovering, "nothing new starts on top of it");
        let text = error.to_string();
        assert!(text.contains(&scratch.display().to_string()) && text.contains("was replaced by something"), "{text}");
        assert!(error.hints()[0].contains(&scratch.display().to_string()));
        assert_eq!(std::fs::read_to_string(scratch.join("precious")).unwrap(), "precious");
        assert!(ours.join("m/file").exists(), "nobody looks elsewhere for what was moved");
        assert!(!lost.runtime().exists(), "the rest is recovered");
    }
    std::fs::rename(&scratch, lost.places.domain.path().join("moved")).unwrap();
    lost.recover_clean().await;
}

/// Whatever is recorded under the name, a link is never followed.
#[tokio::test]
async fn a_link_in_a_directory_s_place_is_left() {
    let lost = Lost::new();
    lost.record(recorded_process(1));
    let precious = lost.places.domain.path().join("precious");
    std::fs::rename(lost.scratch(), &precious).unwrap();
    std::os::unix::fs::symlink(&precious, lost.scratch()).unwrap();
    let (outcome, _) = lost.recover().await;
    assert!(matches!(outcome, Err(ReclaimError::Foreign(_))), "{outcome:?}");
    assert!(precious.join("m/file").exists());
    std::fs::remove_file(lost.scratch()).unwrap();
    lost.recover_clean().await;
}

#[tokio::test]
async fn a_lease_of_another_artifact_stays() {
    let lost = Lost::new();
    lost.record(recorded_process(1));
    let open = || Catalog::open(&lost.places.storage).unwrap();
    open().release_lease(&domain(), Generation(1)).unwrap();
    let record = open().begin_preparation(recorded_process(40), source("other")).unwrap();
    let other = manifest("other", 1);
    open().complete(&record.id, &other).unwrap();
    open().acquire_lease(&domain(), Generation(1), &other.id).unwrap();
    let (outcome, decision) = lost.recover().await;
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains(lost.artifact.short()) && text.contains(other.id.short()), "{text}");
    assert_eq!((decision, lost.lease(1)), (Decision::Recovering, Some(other.id)));
    open().release_lease(&domain(), Generation(1)).unwrap();
    lost.recover_clean().await;
}

/// Somebody mounted something in the generation's directory.
#[test]
fn what_is_mounted_by_somebody_else_stays() {
    let test = "actors::host::reclaim::tests::child_with_a_foreign_mount";
    let child = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"), "{child:?}");
}

#[tokio::test]
#[ignore = "is run in a mount namespace by what_is_mounted_by_somebody_else_stays"]
async fn child_with_a_foreign_mount() {
    let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
        assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program}");
    };
    let lost = Lost::new();
    lost.record(recorded_process(1));
    let (precious, place) = (lost.places.domain.path().join("precious"), lost.runtime().join("m"));
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("file"), "precious").unwrap();
    // Of the same file system, so that no device number gives it away.
    run("mount", &["--bind".as_ref(), precious.as_os_str(), place.as_os_str()]);
    let (outcome, decision) = lost.recover().await;
    let error = outcome.unwrap_err();
    let causes = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(causes.contains(&place.display().to_string()), "{causes}");
    assert!(error.hints()[0].contains("findmnt"));
    assert_eq!(decision, Decision::Recovering);
    assert_eq!(std::fs::read_to_string(precious.join("file")).unwrap(), "precious");
    run("umount", &[place.as_os_str()]);
    lost.recover_clean().await;
    assert!(precious.join("file").exists());
}
