//! The Runtime Supervisor: process 1 of a Domain generation's own namespaces.
//!
//! It starts as the coordinator's child with a user, pid and mount namespace of its own, as user 0 there,
//! with the lifetime lease and the directory of its log as inherited descriptors ([`wire::lease`]). It decides nothing
//! about what is granted: the plan says all of it.
//!
//! ```text
//! Supervisor ─┬─ LeaseLink  orders in, reports out; its loss ends the process
//!             ├─ Helper     slirp4netns; its loss, and that of the next three, ends the generation
//!             ├─ Network    policy and attestation
//!             ├─ Mounts     root, State Anchors, workspace, volumes
//!             ├─ Runsc      the sandbox
//!             └─ Exec ×n    one session each; its loss ends that session
//! ```
//!
//! None is restarted (see [`supervisor`]): a generation is whole or it is taken down. Everything runs
//! on the main thread, because a child is killed when the *thread* that started it ends (prctl(2)).
//!
//! - [`children`]: who waits for which child process
//! - [`process`]: what owners of a process need to know about it
//! - `sessions`: the live sessions and their actors
//! - `storage`: what is removed at the end

pub mod children;
pub mod exec;
pub mod helper;
pub mod lease;
pub mod messages;
pub mod mounts;
pub mod network;
pub mod process;
pub mod runsc;
mod sessions;
mod storage;
pub mod supervisor;

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ractor::Actor;
use tracing::{debug, error, info, warn};

use self::supervisor::{Supervisor, SupervisorArguments};
use crate::domain::failure::Failure;
use crate::domain::layout::SUPERVISOR_LOG;
use crate::domain::runtime::RuntimePlan;
use crate::observe::Subject;
use crate::sys::inherited;
use crate::sys::seqpacket::Lease;
use crate::wire::frame::{self, FrameError};
use crate::wire::lease::{CoordinatorOrder, SupervisorReport};
use crate::{fault, observe, wire};

/// The modules that are an actor each, for the log.
const ACTORS: &[&str] = &["exec", "helper", "lease", "mounts", "network", "runsc", "supervisor"];

/// Why the supervisor could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It was not started by a Host Coordinator.
    #[error("the Runtime Supervisor is started by a Host Coordinator, not by hand")]
    NotSupervisor,
    /// The runtime can't be built.
    #[error("can't start the asynchronous runtime")]
    Runtime(#[source] io::Error),
    /// The lease can't be used.
    #[error("the lease failed")]
    Lease(#[source] io::Error),
    /// The coordinator ended, or something else than a plan came.
    #[error("no build order came")]
    NoOrder,
    /// The first order can't be read.
    #[error("the build order can't be read")]
    Order(#[source] FrameError),
    /// More than one thread runs already.
    #[error("the process has {0} threads before it has left the host's network namespace")]
    Threads(usize),
    /// The helper can't be forked.
    #[error("can't prepare the connectivity helper")]
    Helper(#[source] helper::HelperError),
    /// No network namespace can be had.
    #[error("can't make the enforcement network namespace")]
    Unshare(#[source] io::Error),
    /// The actors can't be started.
    #[error("can't start the supervisor's actors")]
    Actors(#[source] ractor::SpawnErr),
}

/// Runs the Runtime Supervisor to its end.
pub fn main() -> ExitCode {
    let began = Instant::now();
    match run(began) {
        Ok(code) => code,
        Err(failed) => {
            error!(causes = ?Failure::of(&failed).causes, "the supervisor could not begin");
            ExitCode::FAILURE
        }
    }
}

fn run(began: Instant) -> Result<ExitCode, StartError> {
    let lease = inherited::take(wire::lease::DESCRIPTOR)
        .filter(|_| std::process::id() == 1)
        .ok_or(StartError::NotSupervisor)?;
    begin_log();
    prepare_process();
    // One thread until the blocking pool is first used, which is after the namespace is left.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build();
    let runtime = runtime.map_err(StartError::Runtime)?;
    let outcome = runtime.block_on(supervise(lease, began));
    // Nothing that still runs is waited for: the end of process 1 ends it.
    runtime.shutdown_background();
    outcome
}

/// Writes a log from now on. Without one the supervisor still works, and there is nobody to tell.
fn begin_log() {
    let domain = std::env::args().nth(2).and_then(|domain| domain.parse().ok());
    if let (Some(logs), Some(domain)) = (inherited::take(wire::lease::LOGS_DESCRIPTOR), domain) {
        let subject = Subject { domain, tree: module_path!(), actors: ACTORS };
        let _ = observe::to_file(logs, SUPERVISOR_LOG, subject);
    }
}

/// Sets what is inherited by everything that the supervisor starts.
fn prepare_process() {
    // Whatever is made on the host's side of the sandbox is the developer's alone.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    if let Err(error) = crate::sys::process::set_process_name("lazaret-rs") {
        warn!(%error, "the process keeps its name");
    }
    // runsc keeps a descriptor for each file that it caches.
    match crate::sys::process::raise_nofile() {
        Ok(limit) => debug!(limit, "open files"),
        Err(error) => warn!(%error, "the limit of open files stays as it is"),
    }
}

async fn supervise(lease: OwnedFd, began: Instant) -> Result<ExitCode, StartError> {
    let lease = Lease::new(lease).map_err(StartError::Lease)?;
    let plan = first_order(&lease).await?;
    observe::serves(plan.generation);
    info!(pid = std::process::id(), elapsed_us = began.elapsed().as_micros(), "supervisor begins");
    let helper = match leave_host_network(&plan) {
        Ok(helper) => helper,
        Err(error) => {
            if let Ok(bytes) = frame::encode(&SupervisorReport::BuildFailed(Failure::of(&error))) {
                let _ = lease.send(&bytes, &[]).await;
            }
            return Err(error);
        }
    };
    let orderly = Arc::new(AtomicBool::new(false));
    let arguments = SupervisorArguments { lease, plan, helper, began, orderly: orderly.clone() };
    let (_, ended) = Actor::spawn(None, fault::actor(Supervisor), arguments).await.map_err(StartError::Actors)?;
    let _ = ended.await;
    Ok(if orderly.load(Ordering::Relaxed) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn first_order(lease: &Lease) -> Result<Arc<RuntimePlan>, StartError> {
    let (bytes, _) = lease.receive().await.map_err(StartError::Lease)?.ok_or(StartError::NoOrder)?;
    match frame::decode(&bytes).map_err(StartError::Order)? {
        CoordinatorOrder::Build(plan) => Ok(plan.into()),
        _ => Err(StartError::NoOrder),
    }
}

/// Forks the connectivity helper, which stays, and then leaves the host's network namespace for good.
///
/// Only the calling thread moves, so there must be no other.
fn leave_host_network(plan: &RuntimePlan) -> Result<helper::PreparedHelper, StartError> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        return Err(StartError::Threads(threads));
    }
    let helper = helper::prepare(plan).map_err(StartError::Helper)?;
    crate::sys::process::unshare_network().map_err(StartError::Unshare)?;
    Ok(helper)
}
