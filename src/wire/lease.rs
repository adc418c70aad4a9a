//! Host Coordinator ↔ Runtime Supervisor, over the lifetime lease: an inherited SOCK_SEQPACKET pair.
//!
//! One packet is one message; file descriptors ride along as SCM_RIGHTS (unix(7)). Either end closed
//! means that the other process is gone: the supervisor then ends, and with it everything it owns.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::failure::Failure;
use crate::domain::ids::SessionId;
use crate::domain::network::{NetworkAttestation, ProbeReport};
use crate::domain::ownership::{MountIdentity, NamespaceIdentity};
use crate::domain::runtime::{GuestProcess, RuntimePlan};
use crate::domain::session::ControlEvent;

/// The hidden first argument that makes the executable a Runtime Supervisor; the Domain follows, for its log.
pub const SUPERVISOR: &str = "__supervisor";

/// The supervisor's descriptor of the lease, the first after the standard streams.
pub const DESCRIPTOR: i32 = 3;

/// The supervisor's descriptor of the directory of its log.
pub const LOGS_DESCRIPTOR: i32 = 4;

/// How long a supervisor tries to end a session's processes before it kills the session's client. The coordinator
/// gives it [`GRACE`] more before it gives the generation up.
pub const KILL_LIMIT: Duration = Duration::from_secs(4);

/// How long a supervisor tries to take everything down before it leaves that to the kernel. The coordinator gives
/// it [`GRACE`] more before it kills the supervisor.
pub const TEAR_DOWN_LIMIT: Duration = Duration::from_secs(4);

/// How much longer the coordinator waits than the supervisor takes.
pub const GRACE: Duration = Duration::from_secs(1);

/// What a Host Coordinator sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoordinatorOrder {
    /// Builds everything up to the started and probed sandbox. First message; sent once.
    Build(Box<RuntimePlan>),
    /// Starts a session's process. Carries one descriptor (the PTY slave) for an interactive
    /// session, three (stdin, stdout, stderr) otherwise.
    StartSession {
        /// The session.
        session: SessionId,
        /// What to run.
        process: GuestProcess,
    },
    /// Starts a session's process as soon as the sandbox is created, so that it is there when the session is
    /// registered; its command waits for `BeginSession`. Descriptors as for `StartSession`.
    PrepareSession {
        /// The session.
        session: SessionId,
        /// What to run.
        process: GuestProcess,
    },
    /// Lets the command of a prepared session begin.
    BeginSession {
        /// The session.
        session: SessionId,
    },
    /// Delivers a terminal event to exactly this session (FR-15).
    SignalSession {
        /// The session.
        session: SessionId,
        /// The event.
        event: ControlEvent,
    },
    /// Ends a session's whole process tree and no other.
    KillSession {
        /// The session.
        session: SessionId,
    },
    /// Takes everything down in order and ends.
    TearDown,
}

/// A process as the supervisor knows it: its id in the supervisor's pid namespace, and its start
/// time. The coordinator translates the id through `/proc/PID/status` (`NSpid`, proc(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerProcess {
    /// Process id in the supervisor's pid namespace.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
}

/// What a Runtime Supervisor sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorReport {
    /// The connectivity helper serves the enforcement namespace.
    HelperReady {
        /// slirp4netns.
        helper: InnerProcess,
        /// The enforcement namespace.
        namespace: NamespaceIdentity,
    },
    /// All mounts are made.
    MountsReady {
        /// Each mount.
        mounts: Vec<MountIdentity>,
    },
    /// The policy is installed and was read back.
    NetworkReady(NetworkAttestation),
    /// runsc runs; its sandbox is not yet probed.
    SandboxCreated {
        /// The attached runsc client.
        runsc: InnerProcess,
    },
    /// The probe inside the sandbox ended. After a report without failures the sandbox is ready.
    Probed(ProbeReport),
    /// A build step failed; the supervisor tears down and ends.
    BuildFailed(Failure),
    /// A session's process runs, so input may flow.
    SessionStarted {
        /// The session.
        session: SessionId,
        /// The `runsc exec` client.
        exec: InnerProcess,
        /// The guest process id in the sandbox's root pid namespace.
        guest_pid: i32,
    },
    /// A session's process ended.
    SessionEnded {
        /// The session.
        session: SessionId,
        /// How.
        outcome: ExecOutcome,
    },
    /// The sandbox, or a process that it needs, ended without being asked to.
    SandboxLost {
        /// Which process, and how it ended, for people.
        cause: String,
    },
    /// Everything is taken down; the supervisor ends.
    TornDown,
}

/// How a `runsc exec` ended, after the three cases that its exit status cannot tell apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecOutcome {
    /// The guest's own status.
    Exited(u8),
    /// The guest process never ran; runsc's error.
    NotStarted(String),
    /// The sandbox was lost while it ran.
    SandboxLost(String),
    /// The `runsc exec` client itself was killed by a signal.
    ClientKilled(i32),
}
