//! Client Sessions: what is asked for and how one ends.

use serde::{Deserialize, Serialize};

use super::ids::{ClientCliId, SessionId};

/// Size of a terminal in character cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Number of rows.
    pub rows: u16,
    /// Number of columns.
    pub columns: u16,
}

/// How a session's standard streams are carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Terminal {
    /// One pseudo-terminal for input and merged output (FR-14).
    Interactive(WindowSize),
    /// Three pipes, with standard output and standard error kept apart.
    Pipes,
}

/// What a Client CLI asks for when it registers a Client Session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRequest {
    /// Argument vector; empty means the profile's command.
    pub argv: Vec<Vec<u8>>,
    /// Variables that the client contributes, such as `TERM`; the profile's own values win.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Working directory below `/workspace`, relative; empty for `/workspace` itself.
    pub directory: Vec<u8>,
    /// How the standard streams are carried.
    pub terminal: Terminal,
    /// The client's terminal device name, for people; empty without one.
    pub terminal_name: String,
}

/// Terminal events that a client sends instead of raw control characters (FR-15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlEvent {
    /// As Ctrl-C: SIGINT to the foreground process group.
    Interrupt,
    /// As Ctrl-\: SIGQUIT to the foreground process group.
    Quit,
    /// As Ctrl-Z: SIGTSTP to the foreground process group.
    Suspend,
    /// As `kill`: SIGTERM to the session's processes.
    Terminate,
    /// As a closed terminal: SIGHUP to the foreground process group.
    Hangup,
}

/// How a Client Session ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionEnd {
    /// The command ended with this status; death by signal n is 128+n, as a shell says it.
    Exited(u8),
    /// The command could not be started; the text says why.
    NotStarted(String),
    /// The sandbox or a process that carries it was lost; the text says which and how.
    SandboxLost(String),
    /// The Domain was taken down.
    TornDown(String),
}

/// One live session, as `lazaret status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// The session.
    pub id: SessionId,
    /// The client that owns it.
    pub client: ClientCliId,
    /// The client's process id on the host.
    pub client_pid: i32,
    /// The command, each argument escaped as `domain::escaped` says.
    pub command: Vec<String>,
    /// Whether it has a terminal.
    pub interactive: bool,
    /// The client's terminal device name; empty without one.
    pub terminal_name: String,
    /// When it was registered, seconds since the epoch.
    pub since: i64,
}
