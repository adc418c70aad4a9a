//! A tmux server on the host with one window, for what only a multiplexer does.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::command::Invocation;
use super::environment::Environment;
use super::wait::wait_until;

/// A tmux server of its own; killed with its window when dropped.
#[derive(Debug)]
pub struct Tmux {
    socket: PathBuf,
    base: Invocation,
}

impl Tmux {
    /// Starts a server with a window of the size, in which a shell command runs in the sample project.
    pub fn start(environment: &Environment, command: &str, rows: u16, columns: u16) -> Result<Self> {
        let socket = environment.directory().join("tmux.sock");
        let base = environment.invocation("tmux").args(["-f", "/dev/null", "-S"]).arg(&socket);
        let tmux = Self { socket, base };
        let size = ["-x".to_owned(), columns.to_string(), "-y".to_owned(), rows.to_string()];
        // The window stays after its command, so that the last screen can be read.
        let start = ["set-option", "-g", "remain-on-exit", "on", ";", "new-session", "-d"];
        tmux.base.clone().args(start).args(size).arg(command).run()?.ok()?;
        Ok(tmux)
    }

    /// Runs a tmux command and gives its output.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        Ok(self.base.clone().args(arguments).run()?.ok()?.stdout())
    }

    /// Types text.
    pub fn send(&self, text: &str) -> Result<()> {
        self.run(&["send-keys", "-l", text]).map(drop)
    }

    /// Presses a key by tmux's name for it, such as `C-c` or `Enter`.
    pub fn press(&self, key: &str) -> Result<()> {
        self.run(&["send-keys", key]).map(drop)
    }

    /// Changes the window's size.
    pub fn resize(&self, rows: u16, columns: u16) -> Result<()> {
        self.run(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]).map(drop)
    }

    /// Gives the screen as text.
    pub fn screen(&self) -> Result<String> {
        self.run(&["capture-pane", "-p"])
    }

    /// Waits until the window's command has ended and let go of its terminal. The text that tmux puts on the screen
    /// then is no sign of it: now and then there is none.
    pub fn wait_exit(&self, deadline: Duration) -> Result<()> {
        let dead = || self.run(&["list-panes", "-F", "#{pane_dead}"]).is_ok_and(|dead| dead.trim() == "1");
        wait_until("the tmux window's command has ended", deadline, dead)
            .map_err(|error| anyhow!("{error}\n--- the screen\n{}\n---", self.screen().unwrap_or_default()))
    }

    /// Waits until the screen shows the text.
    pub fn wait_for(&self, text: &str, deadline: Duration) -> Result<()> {
        let shown = || self.screen().is_ok_and(|screen| screen.contains(text));
        wait_until(&format!("the tmux window shows '{text}'"), deadline, shown)
            .map_err(|error| anyhow!("{error}\n--- the screen\n{}\n---", self.screen().unwrap_or_default()))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // Without a server there is nothing to kill.
        drop(self.base.clone().arg("kill-server").run());
        drop(std::fs::remove_file(&self.socket));
    }
}
