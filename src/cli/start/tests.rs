//! Entering a Domain against coordinators that only play one.
//!
//! A coordinator is started by executing `/proc/self/exe __coordinator`, which here is this test
//! binary with a filter that only [`__coordinator`] matches. What it plays is its profile's command.

use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use super::*;
use crate::domain::ids::{CoordinatorId, Generation};
use crate::domain::layout::{RuntimeRoot, StorageRoot};
use crate::domain::profile::{Profile, fixtures};
use crate::domain::workspace::Workspace;
use crate::identity::{Face, TrustAnchor, channel};
use crate::sys::seqpacket::Lease;
use crate::wire::bootstrap::{COORDINATOR, Progress, StartupRecord};
use crate::wire::frame;

struct Machine {
    directory: tempfile::TempDir,
    places: Places,
}

impl Machine {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        let places = Places {
            configuration: top.join("config"),
            storage: StorageRoot::new(top.join("data")),
            runtime_base: top.join("run"),
        };
        Self { directory, places }
    }

    fn start(&self, plays: &str) -> Start {
        let profile = Profile { command: vec![plays.into()], ..fixtures::profile() };
        let workspace = Workspace::from_canonical(self.directory.path().to_owned());
        self.places.start(profile, workspace, StartMode::Serve)
    }

    fn entry(&self, plays: &str, wait: Duration) -> Entry {
        let mut entry = Entry::new(&self.places, self.start(plays), wait, Verbosity::Quiet);
        // What this machine lacks is not the matter here.
        entry.checked = true;
        std::fs::create_dir_all(entry.waiting.runtime.path()).unwrap();
        entry
    }
}

/// Plays a coordinator when this process was started as one; passes as a test otherwise.
#[test]
fn __coordinator() {
    if std::env::args().skip(1).collect::<Vec<_>>() != [COORDINATOR] {
        return;
    }
    let bootstrap = crate::sys::inherited::take(3).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { play(Lease::new(bootstrap).unwrap()).await });
    std::process::exit(0);
}

async fn play(bootstrap: Lease) {
    let (bytes, _) = bootstrap.receive().await.unwrap().unwrap();
    let start: Start = frame::decode(&bytes).unwrap();
    let domain = DomainId::derive(&start.profile.name, start.workspace.path());
    let runtime = RuntimeRoot::new(&start.runtime_base, &domain);
    let marker = start.workspace.path().join("marker");
    let say = async |outcome| {
        bootstrap.send(&frame::encode(&BootstrapMessage::Outcome(outcome)).unwrap(), &[]).await.unwrap();
    };
    let progress = BootstrapMessage::Progress(Progress::Phase("playing".into()));
    bootstrap.send(&frame::encode(&progress).unwrap(), &[]).await.unwrap();
    match start.profile.command[0].as_str() {
        "publish" => serve(&domain, &runtime, say(StartOutcome::Published)).await,
        "fail" => {
            let (causes, hints) = (vec!["no image".into(), "not found".into()], vec!["prepare one".into()]);
            say(StartOutcome::Failed(Failure { causes, hints })).await;
        }
        "die" => {}
        "vanish" => say(StartOutcome::Published).await,
        "lock held" => say(StartOutcome::LockHeld).await,
        "lock held once" if !marker.exists() => {
            std::fs::write(marker, "").unwrap();
            say(StartOutcome::LockHeld).await;
        }
        "lock held once" => serve(&domain, &runtime, say(StartOutcome::Published)).await,
        "hang" => {
            std::fs::write(&marker, "started").unwrap();
            assert!(bootstrap.receive().await.unwrap().is_none());
            std::fs::write(&marker, "cancelled").unwrap();
        }
        other => panic!("{other}"),
    }
}

/// Publishes, and accepts one client.
async fn serve(domain: &DomainId, runtime: &RuntimeRoot, published: impl Future<Output = ()>) {
    let anchor = TrustAnchor::mint(domain, &"test".parse().unwrap(), Generation(1), &CoordinatorId::mint()).unwrap();
    let face = Face::new(anchor).unwrap();
    let listener = UnixListener::bind(runtime.socket()).unwrap();
    let record = serde_json::to_vec(face.publication()).unwrap();
    std::fs::write(runtime.path().join("new"), record).unwrap();
    std::fs::rename(runtime.path().join("new"), runtime.publication()).unwrap();
    published.await;
    let (stream, _) = tokio::time::timeout(LONG, listener.accept()).await.expect("a client comes").unwrap();
    channel::accept(stream, &face).await.unwrap();
}

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_domain_that_nobody_serves_is_started_and_joined() {
    let machine = Machine::new();
    machine.entry("publish", LONG).enter().await.unwrap();
}

#[tokio::test]
async fn a_failed_start_says_why() {
    let machine = Machine::new();
    let error = machine.entry("fail", LONG).enter().await.unwrap_err();
    assert_eq!(error.chain(), ["no image", "not found"]);
    assert_eq!(error.hints, ["prepare one"]);
    for plays in ["die", "vanish"] {
        let error = machine.entry(plays, LONG).enter().await.unwrap_err();
        assert!(error.hints.iter().any(|hint| hint.contains("lazaret logs d-")), "{plays}: {error:?}");
    }
}

#[tokio::test]
async fn whoever_loses_the_race_joins_the_winner() {
    let machine = Machine::new();
    let mut entry = machine.entry("lock held", LONG);
    let (domain, runtime) = (entry.waiting.domain.clone(), entry.waiting.runtime.clone());
    let winner = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        serve(&domain, &runtime, async {}).await;
    };
    let (entered, ()) = tokio::join!(entry.enter(), winner);
    entered.unwrap();
}

#[tokio::test]
async fn a_winner_that_ends_without_publishing_is_followed_by_an_own_start() {
    let machine = Machine::new();
    let mut entry = machine.entry("lock held once", LONG);
    // A holder that lives for a while, says so, and then is gone.
    let mut holder = tokio::process::Command::new("sleep").arg("0.4").spawn().unwrap();
    let record = StartupRecord { pid: holder.id().unwrap().cast_signed(), phase: "pulling".into(), since: 0 };
    std::fs::write(entry.waiting.runtime.startup(), serde_json::to_vec(&record).unwrap()).unwrap();
    let begun = std::time::Instant::now();
    let (entered, status) = tokio::join!(entry.enter(), holder.wait());
    entered.unwrap();
    status.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(350), "it waited for the holder");
}

#[tokio::test]
async fn waiting_is_bounded_and_says_for_what() {
    let machine = Machine::new();
    let mut entry = machine.entry("lock held", Duration::from_millis(300));
    let record = StartupRecord { pid: std::process::id().cast_signed(), phase: "pulling\u{1b}".into(), since: 0 };
    std::fs::write(entry.waiting.runtime.startup(), serde_json::to_vec(&record).unwrap()).unwrap();
    let error = entry.enter().await.unwrap_err();
    let text = error.chain().join("; ");
    assert!(text.contains("0.3 seconds") && text.contains("pulling\\u{1b}"), "{text}");
    assert!(text.contains(&std::process::id().to_string()));
}

#[tokio::test]
async fn an_interrupted_start_is_cancelled_and_waited_for() {
    let machine = Machine::new();
    let marker: PathBuf = machine.directory.path().join("marker");
    let mut entry = machine.entry("hang", LONG);
    let begun = async {
        while !Path::new(&marker).exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        entered = entry.enter() => panic!("{entered:?}"),
        () = begun => {}
    }
    entry.cancel().await;
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "cancelled");
}
