//! All mounts of a generation: root overlay, State Anchors, workspace and volumes.
//!
//! Parent: [`supervisor`](super::supervisor). Children: none. The mounts live in the supervisor's own
//! mount namespace and end with it at the latest; the actor keeps which it made, in order, and takes
//! them down in reverse. Its death fails the build or counts as the loss of the sandbox; the mounts then
//! end with the namespace.

mod anchors;
mod directories;
mod root;
mod workspace;

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tracing::{debug, warn};

use super::messages::SupervisorMessage;
use crate::core::supervision::Event;
use crate::domain::failure::Failure;
use crate::domain::ownership::MountIdentity;
use crate::domain::runtime::RuntimePlan;
use crate::sys::mounts::{self, MountError};
use crate::wire::lease::SupervisorReport;

/// Why the sandbox's file tree could not be staged.
#[derive(Debug, thiserror::Error)]
pub enum MountsError {
    /// A directory of the plan can't be opened.
    #[error("can't open {}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory can't be made.
    #[error("can't make {}", path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A persistent path can't be looked up in the image.
    #[error("the persistent path {path} is no directory in the image")]
    Image {
        /// Path in the sandbox.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A fixed entry can't be put into the root.
    #[error("can't prepare {path} in the sandbox's root")]
    Root {
        /// Path in the sandbox.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A protection has nothing to be mounted over, or a symbolic link is in the way.
    #[error("can't protect {} in the workspace", path.display())]
    Protect {
        /// Path below the workspace.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A mount failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The thread that stages was lost.
    #[error("the staging was interrupted")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl MountsError {
    fn failure(&self) -> Failure {
        let hint = match self {
            Self::Mount(MountError::Configure { filesystem: "overlay", .. }) => {
                "the storage directory must lie on a file system with user extended attributes, such as ext4, xfs or \
                 btrfs; `lazaret doctor` checks it"
            }
            Self::Protect { .. } => "the workspace changed while the sandbox was prepared; try again",
            _ => return Failure::of(self),
        };
        Failure::of(self).with_hints(vec![hint.to_owned()])
    }
}

/// What a mounts actor is started with.
pub struct MountsArguments {
    /// Where results go.
    pub supervisor: ActorRef<SupervisorMessage>,
    /// The generation's plan.
    pub plan: Arc<RuntimePlan>,
}

/// What a mounts actor is told.
pub enum MountsMessage {
    /// Make all mounts.
    Stage,
    /// Take down what was made.
    Unmount,
}

/// What a mounts actor remembers.
pub struct MountsState {
    arguments: MountsArguments,
    made: Made,
}

/// The mounts made so far, in order.
#[derive(Debug, Default)]
struct Made {
    mounts: Vec<(PathBuf, MountIdentity)>,
}

impl Made {
    fn record(&mut self, target: &Path) -> Result<(), MountsError> {
        self.mounts.push((target.to_owned(), mounts::mount_identity(target)?));
        Ok(())
    }
}

/// The mounts actor.
pub struct Mounts;

impl Actor for Mounts {
    type Msg = MountsMessage;
    type State = MountsState;
    type Arguments = MountsArguments;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        arguments: MountsArguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(MountsState { arguments, made: Made::default() })
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: MountsMessage,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let began = Instant::now();
        let (event, report) = match message {
            MountsMessage::Stage => {
                let plan = state.arguments.plan.clone();
                let work = move || {
                    let mut made = Made::default();
                    let outcome = stage(&plan, &mut made);
                    (made, outcome)
                };
                let (made, outcome) = match tokio::task::spawn_blocking(work).await {
                    Ok(finished) => finished,
                    Err(error) => (Made::default(), Err(MountsError::Interrupted(error))),
                };
                state.made = made;
                match outcome {
                    Ok(()) => (Event::MountsReady, Some(state.report())),
                    Err(error) => (Event::Failed(error.failure()), None),
                }
            }
            MountsMessage::Unmount => {
                let made = std::mem::take(&mut state.made);
                if tokio::task::spawn_blocking(move || unmount(made)).await.is_err() {
                    warn!("unmounting was interrupted");
                }
                (Event::Unmounted, None)
            }
        };
        debug!(elapsed_us = began.elapsed().as_micros(), ?event, "mounts");
        state.arguments.supervisor.cast(SupervisorMessage::Resource(event, report))?;
        Ok(())
    }
}

impl MountsState {
    fn report(&self) -> SupervisorReport {
        let mounts = self.made.mounts.iter().map(|(_, identity)| identity.clone()).collect();
        SupervisorReport::MountsReady { mounts }
    }
}

/// Makes everything; what was made before a failure is in `made`.
fn stage(plan: &RuntimePlan, made: &mut Made) -> Result<(), MountsError> {
    let owner = directories::Owner::of(plan);
    directories::make(&plan.scratch, owner, owner.private())?;
    gather(plan, owner, made)?;
    root::stage(plan, owner, made)?;
    anchors::stage(plan, owner, made)?;
    workspace::stage(plan, owner, made)?;
    workspace::stage_volumes(plan, owner, made)
}

/// Makes the directory that holds the mount points a mount itself, so that one call detaches all of them:
/// each costs the kernel some ten milliseconds.
fn gather(plan: &RuntimePlan, owner: directories::Owner, made: &mut Made) -> Result<(), MountsError> {
    let Some(base) = plan.root.merged.parent() else { return Ok(()) };
    directories::make(base, owner, owner.private())?;
    mounts::bind_recursive(directories::open(base)?.as_fd(), base)?;
    made.record(base)
}

/// Detaches every mount with all that is mounted beneath it, so that no path inside one, which the
/// sandbox could have changed, is walked.
fn unmount(made: Made) {
    let targets: Vec<_> = made.mounts.into_iter().map(|(target, _)| target).collect();
    let within_another = |path: &PathBuf| targets.iter().any(|other| other != path && path.starts_with(other));
    for target in targets.iter().rev().filter(|target| !within_another(target)) {
        if let Err(error) = mounts::unmount(target) {
            warn!(%error, "left to the end of the mount namespace");
        }
    }
}
