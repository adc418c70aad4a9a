//! The sandbox: one attached `runsc run`, on which sentry and gofer hang.
//!
//! Parent: [`supervisor`](super::supervisor). Children: none, but the runsc process, which this actor
//! alone waits for, and a task that watches it. The process ending unasked, and the actor's own death,
//! which kills it, mean that the sandbox is lost.
//!
//! The sandbox's first process probes the network before anything else and prints its report as one
//! line of JSON on runsc's standard output. Both the line and everything around it come from the
//! sandbox, so they are bounded.

pub mod bundle;
pub mod command;
pub mod control;
pub mod log;
pub mod pid_file;
mod watch;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use rustix::process::Signal;
use tracing::{debug, warn};

use self::bundle::BundleError;
use self::command::Sandbox;
use self::control::Target;
use self::pid_file::PidFile;
use self::watch::Watch;
use super::children::Children;
use super::messages::SupervisorMessage;
use super::process::{self, Held};
use crate::core::supervision::Event;
use crate::domain::failure::Failure;
use crate::domain::network::ProbeReport;
use crate::domain::runtime::RuntimePlan;
use crate::sys::process::KilledOnDrop;
use crate::wire::lease::{InnerProcess, SupervisorReport};

/// How long the sandbox may take to start, besides what the probe itself may take.
const START_ALLOWANCE: Duration = Duration::from_secs(20);
/// How long a sandbox that was told to end may take before it is killed.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the processes of a killed sandbox may take to be gone.
const GONE_TIMEOUT: Duration = Duration::from_secs(3);

/// Why the sandbox did not come up.
#[derive(Debug, thiserror::Error)]
pub enum RunscError {
    /// The bundle can't be written.
    #[error("can't prepare the sandbox's bundle")]
    Bundle(#[from] BundleError),
    /// runsc can't be started.
    #[error("can't start {}", path.display())]
    Start {
        /// The executable.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// runsc ended before the sandbox was ready.
    #[error("runsc could not start the sandbox, {how}{said}")]
    Ended {
        /// How it ended.
        how: String,
        /// What it gave as its reason, with a colon before.
        said: String,
    },
    /// No report came in time.
    #[error("the sandbox did not report within {} seconds{said}", .limit.as_secs())]
    TimedOut {
        /// How long it had.
        limit: Duration,
        /// What runsc said meanwhile, with a colon before.
        said: String,
    },
    /// What the sandbox printed is no report.
    #[error("the sandbox's probe gave no valid report: {said}")]
    Report {
        /// What it printed, or runsc's reason.
        said: String,
    },
}

/// What a runsc actor is started with.
pub struct RunscArguments {
    /// Where results go.
    pub supervisor: ActorRef<SupervisorMessage>,
    /// The generation's plan.
    pub plan: Arc<RuntimePlan>,
    /// The sandbox's names and files.
    pub sandbox: Sandbox,
    /// Who waits for which child.
    pub children: Children,
}

/// What a runsc actor is told.
pub enum RunscMessage {
    /// Start the sandbox.
    Start,
    /// From the watching task: the pid file is there.
    Created(InnerProcess),
    /// From the watching task: the probe's report.
    Probed(ProbeReport),
    /// From the watching task: the sandbox did not come up.
    NotReady(RunscError),
    /// From the watching task: runsc ended.
    Ended(String),
    /// End the sandbox and everything in it.
    End,
    /// The sandbox had its time to end.
    EndExpired,
    /// From the task that waits: the sandbox's processes are gone.
    Gone,
}

/// What a runsc actor remembers.
pub struct RunscState {
    arguments: RunscArguments,
    began: Instant,
    process: Process,
    ending: bool,
}

/// The attached client.
enum Process {
    None,
    Running(KilledOnDrop),
    Ended,
}

/// The runsc actor.
pub struct Runsc;

impl Actor for Runsc {
    type Msg = RunscMessage;
    type State = RunscState;
    type Arguments = RunscArguments;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        arguments: RunscArguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(RunscState { arguments, began: Instant::now(), process: Process::None, ending: false })
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: RunscMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RunscMessage::Start => {
                state.began = Instant::now();
                match start(&state.arguments, myself) {
                    Ok(pidfd) => state.process = Process::Running(KilledOnDrop::new(pidfd)),
                    Err(error) => state.resource(Event::Failed(error.failure()), None)?,
                }
            }
            RunscMessage::Created(runsc) => {
                debug!(elapsed_us = state.began.elapsed().as_micros(), pid = runsc.pid, "sandbox created");
                state.resource(Event::SandboxCreated, Some(SupervisorReport::SandboxCreated { runsc }))?;
            }
            RunscMessage::Probed(report) => {
                debug!(elapsed_us = state.began.elapsed().as_micros(), probe_us = report.elapsed_us, "sandbox probed");
                match probe_failure(&report) {
                    None => state.resource(Event::ProbePassed, Some(SupervisorReport::Probed(report)))?,
                    Some(failure) => state.resource(Event::Failed(failure), None)?,
                }
            }
            RunscMessage::NotReady(error) => state.resource(Event::Failed(error.failure()), None)?,
            RunscMessage::Ended(how) => {
                state.process = Process::Ended;
                if state.ending {
                    wait_until_gone(state.arguments.children.clone(), myself);
                } else {
                    state.resource(Event::Lost(format!("the sandbox ended: runsc {how}")), None)?;
                }
            }
            RunscMessage::End => state.end(myself),
            RunscMessage::EndExpired => {
                if let Process::Running(pidfd) = &state.process {
                    warn!("the sandbox does not end by itself and is killed");
                    crate::sys::process::kill(pidfd)?;
                }
            }
            RunscMessage::Gone => state.resource(Event::SandboxGone, None)?,
        }
        Ok(())
    }
}

impl RunscState {
    fn resource(&self, event: Event, report: Option<SupervisorReport>) -> Result<(), ActorProcessingErr> {
        Ok(self.arguments.supervisor.cast(SupervisorMessage::Resource(event, report))?)
    }

    fn end(&mut self, myself: ActorRef<RunscMessage>) {
        self.ending = true;
        let RunscArguments { sandbox, children, .. } = &self.arguments;
        match &self.process {
            Process::None | Process::Ended => wait_until_gone(children.clone(), myself),
            Process::Running(_) => {
                let sandbox = sandbox.clone();
                tokio::spawn(async move {
                    // The sandbox's own processes first, so that the sentry ends in order.
                    match control::signal_over_socket(&sandbox, Target::All, Signal::KILL).await {
                        Ok(()) => tokio::time::sleep(END_TIMEOUT).await,
                        Err(error) => debug!(%error, "the sandbox is killed from outside"),
                    }
                    let _ = myself.cast(RunscMessage::EndExpired);
                });
            }
        }
    }
}

/// Waits until sentry, gofer and their stubs are gone, and reports back.
fn wait_until_gone(children: Children, actor: ActorRef<RunscMessage>) {
    tokio::spawn(async move {
        until_gone(&children).await;
        let _ = actor.cast(RunscMessage::Gone);
    });
}

/// Returns when the processes of a killed sandbox are gone, or had their time for it.
pub(super) async fn until_gone(children: &Children) {
    let left = children.until_alone(GONE_TIMEOUT).await;
    if !left.is_empty() {
        warn!(?left, "processes of the sandbox are still there");
    }
}

/// Gives the failure that a report amounts to.
fn probe_failure(report: &ProbeReport) -> Option<Failure> {
    let failed: Vec<_> = report.failures().collect();
    if failed.is_empty() && !report.observations.is_empty() {
        return None;
    }
    let mut causes = vec!["the network inside the sandbox is not as the policy says".to_owned()];
    causes.extend(failed.iter().map(|o| log::bounded(&format!("{}: {}", o.subject, o.seen))));
    if failed.is_empty() {
        causes.push("the probe observed nothing".to_owned());
    }
    Some(Failure { causes, hints: vec![] })
}

impl RunscError {
    fn failure(&self) -> Failure {
        let hint = match self {
            Self::Ended { said, .. } if said.contains("ptrace") => {
                "runsc needs to trace its own processes: see /proc/sys/kernel/yama/ptrace_scope"
            }
            Self::Start { .. } | Self::Ended { .. } | Self::TimedOut { .. } => {
                "`lazaret doctor` checks what runsc needs"
            }
            _ => return Failure::of(self),
        };
        Failure::of(self).with_hints(vec![hint.to_owned()])
    }
}

/// Writes the bundle and starts the attached client.
fn start(arguments: &RunscArguments, actor: ActorRef<RunscMessage>) -> Result<OwnedFd, RunscError> {
    let RunscArguments { plan, sandbox, children, .. } = arguments;
    bundle::write(plan, sandbox)?;
    let failed = |source| RunscError::Start { path: plan.runsc.clone(), source };
    let pid_file = PidFile::watch(sandbox.pid_file()).map_err(failed)?;
    let mut command = sandbox.command(&sandbox.run_log());
    let flag = |name: &str, path: PathBuf| {
        let mut flag = std::ffi::OsString::from(name);
        flag.push(path);
        flag
    };
    command.arg("run").arg(flag("--bundle=", sandbox.bundle())).arg(flag("--pid-file=", sandbox.pid_file()));
    command.arg(sandbox.name());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    crate::sys::process::die_with_parent(&mut command);
    // It makes the mount points that the root lacks, on the way to which every user must get.
    crate::sys::process::with_common_umask(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    let Held { pid, claim, pidfd } = process::hold(&child, children).map_err(failed)?;
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(failed(io::ErrorKind::BrokenPipe.into()));
    };
    let stderr = process::drain(stderr, |line| debug!(line, "runsc"));
    let limit = START_ALLOWANCE + Duration::from_millis(plan.probe.deadline_ms);
    let watch = Watch { child, claim, pid, pid_file, stdout, stderr, sandbox: sandbox.clone(), limit, actor };
    tokio::spawn(watch.run());
    Ok(pidfd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::network::ProbeObservation;

    fn report(holds: &[bool]) -> ProbeReport {
        let observation = |holds: &bool| ProbeObservation {
            subject: "deny 10.1.1.1 (route)".into(),
            holds: *holds,
            seen: "\x1b".into(),
        };
        ProbeReport { observations: holds.iter().map(observation).collect(), elapsed_us: 1 }
    }

    #[test]
    fn only_a_report_that_holds_and_observed_something_passes() {
        assert_eq!(probe_failure(&report(&[true, true])), None);
        let failure = probe_failure(&report(&[true, false, false])).unwrap();
        assert_eq!(failure.causes.len(), 3, "one cause for each failed observation, after the summary");
        assert!(failure.causes[1].contains("10.1.1.1") && !failure.causes[1].contains('\x1b'));
        assert!(probe_failure(&report(&[])).is_some());
    }
}
