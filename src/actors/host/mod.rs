//! The Host Coordinator: one process that leads one Domain from the host's namespaces.
//!
//! ```text
//! Coordinator                carries out core::lifecycle; the process ends with it
//! ├── StoreWriter            the only opener of the Domain Store; its loss ends the generation
//! ├── RuntimeLink            the lifetime lease and the supervisor process; its loss ends both
//! ├── Registry               live Client Sessions; its loss ends them and the generation
//! │   └── Session …          one each: PTY master or pipes, the client's channel; a loss ends that session
//! └── Publisher              accepts on the listening socket; started again, a few times
//! ```
//!
//! Steps of the generation's life that take long (recovery, preparation, beginning, lease, publication)
//! are tasks beside the coordinator's mailbox; the loss of one ends the generation.
//!
//! It runs on one thread: every child process is spawned by the thread that lives as long as the
//! process, which is what PR_SET_PDEATHSIG is about (prctl(2)).

use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use ractor::Actor;

use self::coordinator::{Coordinator, CoordinatorArguments};
use self::election::{Elected, elect};
use crate::domain::failure::Failure;
use crate::sys::seqpacket::Lease;
use crate::wire::bootstrap::{BootstrapMessage, DESCRIPTOR, StartOutcome};
use crate::wire::frame;
use crate::{fault, protocol_trace, sys};

pub mod begin;
pub mod coordinator;
pub mod election;
pub mod evidence;
pub mod generation;
pub mod guest_executable;
pub mod lease;
pub mod messages;
pub mod plan;
pub mod preparation;
pub mod prepared;
pub mod preparing;
pub mod publication;
pub mod reclaim;
pub mod records;
pub mod registry;
pub mod runtime_link;
pub mod session;
pub mod startup;
pub mod task;
pub mod workspace;

/// The module below which the coordinator's actors are, for the log.
const TREE: &str = module_path!();

/// The modules that are an actor each, for the log.
const ACTORS: &[&str] = &["coordinator", "publication", "registry", "runtime_link", "session"];

/// Runs a Host Coordinator; its bootstrap pair is an inherited descriptor ([`bootstrap`](crate::wire::bootstrap)).
/// The calling process has one thread and is dedicated to this.
pub fn main() -> ExitCode {
    let Some(bootstrap) = sys::inherited::take(DESCRIPTOR) else {
        eprintln!("lazaret: the coordinator is started by `lazaret up`, not by hand");
        return ExitCode::FAILURE;
    };
    sys::process::set_process_name("lazaret-hc").ok();
    // Whatever this process makes is the developer's alone.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(lead(bootstrap));
            // A blocking task that hangs in the file system must not keep the Domain lock.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            eprintln!("lazaret: the coordinator's runtime can't be made: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads what to start, takes the Domain lock, and leads the Domain until its end.
async fn lead(bootstrap: OwnedFd) -> ExitCode {
    let pair = match Lease::new(bootstrap) {
        Ok(pair) => Arc::new(pair),
        Err(error) => {
            eprintln!("lazaret: the bootstrap pair is unusable: {error}");
            return ExitCode::FAILURE;
        }
    };
    match elect(&pair).await {
        Ok(Some(elected)) => {
            protocol_trace::serves(&elected.domain);
            protocol_trace::event("Elect").with("client", &elected.start.client).write();
            serve(elected, pair).await
        }
        Ok(None) => {
            tell(&pair, StartOutcome::LockHeld).await;
            ExitCode::SUCCESS
        }
        Err(error) => {
            let failure = Failure::of(&error).with_hints(error.hints());
            tell(&pair, StartOutcome::Failed(failure)).await;
            ExitCode::FAILURE
        }
    }
}

async fn tell(pair: &Lease, outcome: StartOutcome) {
    if let Ok(bytes) = frame::encode(&BootstrapMessage::Outcome(outcome)) {
        pair.send(&bytes, &[]).await.ok();
    }
}

async fn serve(elected: Elected, pair: Arc<Lease>) -> ExitCode {
    let Elected { domain, start, places, store, lock } = elected;
    let status = Arc::new(Mutex::new(ExitCode::FAILURE));
    let arguments = CoordinatorArguments { domain, start, places, store, bootstrap: pair, status: status.clone() };
    match Actor::spawn(None, fault::actor(Coordinator), arguments).await {
        Ok((_, ended)) => {
            ended.await.ok();
        }
        Err(error) => tracing::error!(%error, "the coordinator can't be started"),
    }
    drop(lock);
    status.lock().map_or(ExitCode::FAILURE, |status| *status)
}
