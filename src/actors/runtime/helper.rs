//! The connectivity helper, slirp4netns.
//!
//! Parent: [`supervisor`](super::supervisor). Children: none, but the slirp4netns process, which this
//! actor alone waits for, and tasks that watch it and drain its output. The process ending unasked, and
//! the actor's own death, mean that the sandbox has lost its network: the generation is lost.
//!
//! The process is forked before this process leaves the host's network namespace (see
//! [`prepare`]), and waits until the actor lets it execute. slirp4netns then joins the enforcement
//! namespace by path, attaches to the link that was made there, and says so on its ready descriptor.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tracing::{debug, info};

use super::children::{Children, Claim};
use super::messages::SupervisorMessage;
use super::process::{self, inner_process};
use crate::core::supervision::Event;
use crate::domain::failure::Failure;
use crate::domain::network::{Ipv6, LINK_DEVICE, LINK_RECEIVERS, LINK_RECEIVERS_V6};
use crate::domain::runtime::{ENFORCEMENT_NAMESPACE, RuntimePlan};
use crate::sys::child::Child;
use crate::sys::process::{Launcher, LauncherCommand, fork_launcher};
use crate::sys::procfs;
use crate::sys::tap::{self, HardwareAddress};
use crate::wire::lease::{InnerProcess, SupervisorReport};

/// Longest time that slirp4netns may take to make its link; it takes a few milliseconds.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Descriptor numbers in the helper.
const READY_FD: i32 = 3;
const EXIT_FD: i32 = 4;

/// Why the connectivity helper does not serve.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// Its pipes can't be made.
    #[error("can't make the pipes of slirp4netns")]
    Pipes(#[source] io::Error),
    /// Its link can't be made.
    #[error("can't make the device {LINK_DEVICE} by /dev/net/tun")]
    Link(#[source] io::Error),
    /// It can't be started.
    #[error("can't start slirp4netns")]
    Start(#[source] crate::sys::process::LaunchError),
    /// It can't be identified.
    #[error("can't identify slirp4netns or its namespace")]
    Identify(#[source] io::Error),
    /// It ended before it served.
    #[error("slirp4netns ended before it was ready, {how}{said}")]
    Ended {
        /// How it ended.
        how: String,
        /// What it said, with a colon before.
        said: String,
    },
    /// It was not ready in time.
    #[error("slirp4netns was not ready in {} seconds", READY_TIMEOUT.as_secs())]
    TimedOut,
}

impl HelperError {
    fn failure(&self) -> Failure {
        let hint = match self {
            Self::Start(_) | Self::Ended { .. } => "`lazaret doctor` checks slirp4netns and /dev/net/tun",
            _ => return Failure::of(self),
        };
        Failure::of(self).with_hints(vec![hint.to_owned()])
    }
}

/// A forked helper that does not execute yet.
pub struct PreparedHelper {
    launcher: Launcher,
    ready: OwnedFd,
    output: OwnedFd,
    /// slirp4netns ends when this is closed.
    exit: OwnedFd,
    /// Who receives frames on the link.
    receivers: Vec<HardwareAddress>,
}

/// Forks the helper in the network namespace of now, the host's.
pub fn prepare(plan: &RuntimePlan) -> Result<PreparedHelper, HelperError> {
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| HelperError::Pipes(e.into()));
    let ((ready, says_ready), (output, writes), (reads_exit, exit)) = (pipe()?, pipe()?, pipe()?);
    let says = writes.try_clone().map_err(HelperError::Pipes)?;
    let command = LauncherCommand {
        executable: plan.slirp4netns.clone(),
        argv: arguments(plan.policy.ipv6),
        env: vec![("PATH".into(), "/usr/sbin:/usr/bin:/sbin:/bin".into())],
        fds: vec![(writes, 1), (says, 2), (says_ready, READY_FD), (reads_exit, EXIT_FD)],
    };
    let launcher = fork_launcher(command).map_err(HelperError::Start)?;
    let mut receivers = LINK_RECEIVERS.to_vec();
    if plan.policy.ipv6.is_on() {
        receivers.extend(LINK_RECEIVERS_V6);
    }
    Ok(PreparedHelper { launcher, ready, output, exit, receivers })
}

/// slirp4netns(1): confined to an empty root and a system call filter, and without a way to the
/// host's own loopback services.
fn arguments(ipv6: Ipv6) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["slirp4netns".into(), "--mtu=65520".into()];
    arguments.extend(["--disable-host-loopback", "--enable-sandbox", "--enable-seccomp"].map(OsString::from));
    if ipv6.is_on() {
        arguments.push("--enable-ipv6".into());
    }
    arguments.push(format!("--ready-fd={READY_FD}").into());
    arguments.push(format!("--exit-fd={EXIT_FD}").into());
    arguments.extend(["--netns-type=path", ENFORCEMENT_NAMESPACE, LINK_DEVICE].map(OsString::from));
    arguments
}

/// What a helper actor is started with.
pub struct HelperArguments {
    /// Where results go.
    pub supervisor: ActorRef<SupervisorMessage>,
    /// The forked process.
    pub prepared: PreparedHelper,
    /// Who waits for which child.
    pub children: Children,
}

/// What a helper actor is told.
pub enum HelperMessage {
    /// Let the helper execute.
    Start,
    /// From the task that waits for it: the helper has made its link.
    Ready(InnerProcess),
    /// From the task that waits for it: it failed to get ready.
    NotReady(HelperError),
    /// From the task that waits for it: it ended.
    Ended(String),
    /// End the helper.
    End,
}

/// Where the helper is.
pub enum HelperState {
    /// Forked, waiting at its gate.
    Prepared(Box<HelperArguments>),
    /// Executing.
    Running {
        /// Where results go.
        supervisor: ActorRef<SupervisorMessage>,
        /// Dropped, it makes slirp4netns end.
        exit: OwnedFd,
        /// The process.
        pidfd: OwnedFd,
        /// When it was let go.
        since: Instant,
    },
    /// Told to end.
    Ending(ActorRef<SupervisorMessage>),
    /// Gone.
    Gone(ActorRef<SupervisorMessage>),
}

/// The helper actor.
pub struct Helper;

impl Actor for Helper {
    type Msg = HelperMessage;
    type State = HelperState;
    type Arguments = HelperArguments;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        arguments: HelperArguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(HelperState::Prepared(Box::new(arguments)))
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: HelperMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let supervisor = state.supervisor().clone();
        let resource = |event, report| supervisor.cast(SupervisorMessage::Resource(event, report));
        match message {
            HelperMessage::Start => {
                let HelperState::Prepared(arguments) = std::mem::replace(state, HelperState::Gone(supervisor.clone()))
                else {
                    return Ok(());
                };
                match start(*arguments, myself) {
                    Ok(running) => *state = running,
                    Err(error) => resource(Event::Failed(error.failure()), None)?,
                }
            }
            HelperMessage::Ready(helper) => {
                if let HelperState::Running { since, .. } = state {
                    debug!(elapsed_us = since.elapsed().as_micros(), pid = helper.pid, "helper ready");
                    match procfs::namespace_identity(ENFORCEMENT_NAMESPACE.as_ref()) {
                        Ok(namespace) => {
                            let report = SupervisorReport::HelperReady { helper, namespace };
                            resource(Event::HelperReady, Some(report))?;
                        }
                        Err(error) => resource(Event::Failed(HelperError::Identify(error).failure()), None)?,
                    }
                }
            }
            HelperMessage::NotReady(error) => resource(Event::Failed(error.failure()), None)?,
            HelperMessage::Ended(how) => {
                let event = match std::mem::replace(state, HelperState::Gone(supervisor.clone())) {
                    HelperState::Running { .. } => Event::Lost(format!("slirp4netns ended, {how}")),
                    _ => Event::HelperGone,
                };
                resource(event, None)?;
            }
            HelperMessage::End => match std::mem::replace(state, HelperState::Ending(supervisor.clone())) {
                HelperState::Running { exit, pidfd, .. } => {
                    drop(exit);
                    // It has nothing to put in order: its sandbox is gone.
                    crate::sys::process::kill(&pidfd)?;
                }
                // Dropping the launcher ends a process that never executed.
                HelperState::Prepared(_) | HelperState::Gone(_) => {
                    *state = HelperState::Gone(supervisor.clone());
                    resource(Event::HelperGone, None)?;
                }
                HelperState::Ending(_) => {}
            },
        }
        Ok(())
    }
}

impl HelperState {
    fn supervisor(&self) -> &ActorRef<SupervisorMessage> {
        match self {
            Self::Prepared(arguments) => &arguments.supervisor,
            Self::Running { supervisor, .. } | Self::Ending(supervisor) | Self::Gone(supervisor) => supervisor,
        }
    }
}

fn start(arguments: HelperArguments, myself: ActorRef<HelperMessage>) -> Result<HelperState, HelperError> {
    let HelperArguments { supervisor, prepared, children } = arguments;
    let PreparedHelper { launcher, ready, output, exit, receivers } = prepared;
    let since = Instant::now();
    // The helper attaches to it. One that it made itself would hand it multicast for the host's network.
    tap::make(LINK_DEVICE, &receivers).map_err(HelperError::Link)?;
    let claim = children.claim(launcher.pid());
    let child = launcher.launch().map_err(HelperError::Start)?;
    let pidfd = child.pidfd().try_clone_to_owned().map_err(HelperError::Identify)?;
    let ready = receiver(ready)?;
    let output = receiver(output)?;
    tokio::spawn(attend(child, claim, ready, output, myself));
    Ok(HelperState::Running { supervisor, exit, pidfd, since })
}

fn receiver(pipe: OwnedFd) -> Result<pipe::Receiver, HelperError> {
    rustix::io::ioctl_fionbio(&pipe, true).map_err(|error| HelperError::Pipes(error.into()))?;
    pipe::Receiver::from_owned_fd(pipe).map_err(HelperError::Pipes)
}

/// Sees the helper through its life.
async fn attend(
    mut child: Child,
    claim: Claim,
    mut ready: pipe::Receiver,
    output: pipe::Receiver,
    actor: ActorRef<HelperMessage>,
) {
    let said = process::drain(output, |line| info!(line, "slirp4netns"));
    let mut byte = [0u8; 1];
    let outcome = match tokio::time::timeout(READY_TIMEOUT, ready.read(&mut byte)).await {
        Err(_) => Err(HelperError::TimedOut),
        Ok(Err(error)) => Err(HelperError::Pipes(error)),
        Ok(Ok(0)) => {
            let how = describe(child.wait().await);
            let said = said.end().await;
            let said = if said.is_empty() { said } else { format!(": {said}") };
            Err(HelperError::Ended { how, said })
        }
        Ok(Ok(_)) => inner_process(child.pid()).map_err(HelperError::Identify),
    };
    let _ = actor.cast(match outcome {
        Ok(helper) => HelperMessage::Ready(helper),
        Err(error) => HelperMessage::NotReady(error),
    });
    let how = describe(child.wait().await);
    drop(claim);
    let _ = actor.cast(HelperMessage::Ended(how));
}

fn describe(status: io::Result<ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), process::describe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_is_confined_whatever_the_policy() {
        for ipv6 in [Ipv6::Off, Ipv6::On] {
            let arguments = arguments(ipv6);
            for flag in ["--disable-host-loopback", "--enable-sandbox", "--enable-seccomp"] {
                assert!(arguments.contains(&flag.into()), "{flag}");
            }
            assert_eq!(arguments.contains(&"--enable-ipv6".into()), ipv6.is_on());
            assert_eq!(arguments.last(), Some(&LINK_DEVICE.into()));
        }
    }
}
