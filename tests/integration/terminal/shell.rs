//! A bash in a session, whose prompt counts commands, so that each one's end is seen.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::harness::{Environment, Terminal};

/// How long a command may take on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A shell in a terminal.
pub struct Shell {
    terminal: Terminal,
    commands: u32,
}

impl Shell {
    /// Starts a session with a shell in a terminal of 24 rows and 80 columns, and waits for its prompt.
    pub fn start(environment: &Environment) -> Result<Self> {
        Self::sized(environment, 24, 80)
    }

    /// Starts one in a terminal of the size.
    pub fn sized(environment: &Environment, rows: u16, columns: u16) -> Result<Self> {
        let arguments = ["up", "-q", "--", "env", "PS1=[\\#]> ", "bash", "--norc"];
        let terminal = Terminal::start(&environment.lazaret(arguments), rows, columns)?;
        let shell = Self { terminal, commands: 1 };
        shell.prompt()?;
        Ok(shell)
    }

    /// Types a command without waiting for its end.
    pub fn begin(&mut self, command: &str) -> Result<()> {
        self.commands += 1;
        self.terminal.send_line(command)
    }

    /// Waits for the prompt that follows the last command.
    pub fn prompt(&self) -> Result<()> {
        self.terminal.wait_for(&format!("[{}]> ", self.commands))
    }

    /// Runs a command and gives what the screen shows from its own line to the next prompt.
    pub fn run(&mut self, command: &str) -> Result<String> {
        self.begin(command)?;
        self.prompt()?;
        self.shown()
    }

    /// Gives what the screen shows of the last command that has ended.
    pub fn shown(&self) -> Result<String> {
        let contents = self.terminal.contents();
        let begin = contents.rfind(&format!("[{}]> ", self.commands - 1)).unwrap_or(0);
        let end = contents.rfind(&format!("[{}]> ", self.commands)).context("the prompt is shown")?;
        Ok(contents[begin..end].to_owned())
    }

    /// Ends the shell with a status and demands that the client ends with it in a sane terminal.
    pub fn finish(mut self, status: i32) -> Result<()> {
        self.terminal.send_line(&format!("exit {status}"))?;
        let code = self.terminal.wait_exit(DEADLINE)?;
        anyhow::ensure!(code == status, "status {code} instead of {status}\n{}", self.terminal.contents());
        self.terminal.expect_sane()
    }
}

impl Deref for Shell {
    type Target = Terminal;

    fn deref(&self) -> &Terminal {
        &self.terminal
    }
}

impl DerefMut for Shell {
    fn deref_mut(&mut self) -> &mut Terminal {
        &mut self.terminal
    }
}
