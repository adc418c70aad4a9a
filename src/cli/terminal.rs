//! The user's terminal while a session has it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::Signal;

use crate::domain::session::WindowSize;
use crate::sys::pty;
use crate::sys::terminal::RawMode;

/// The terminal in raw mode. Dropping this restores it, and so do a panic and every other way to
/// exit (`sys::terminal`).
#[derive(Debug)]
pub struct SessionTerminal {
    device: OwnedFd,
    raw: Option<RawMode>,
}

impl SessionTerminal {
    /// Puts the terminal into raw mode.
    pub fn enter(device: OwnedFd) -> io::Result<Self> {
        let raw = RawMode::enter(device.as_fd())?;
        Ok(Self { device, raw: Some(raw) })
    }

    /// Gives the terminal's size.
    pub fn size(&self) -> io::Result<WindowSize> {
        pty::size(self.device.as_fd())
    }

    /// Restores the terminal and stops this process as SIGTSTP would have; returns when it is
    /// continued, with the terminal restored still.
    pub fn stop(&mut self) {
        self.raw = None;
        // Nothing follows from a failure but that this process is not stopped.
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
    }

    /// Puts the terminal into raw mode again after this process was continued. In the background
    /// the kernel stops the process once more (termios(3), SIGTTOU).
    pub fn resume(&mut self) -> io::Result<()> {
        // The shell may have changed the modes meanwhile, so what is restored later is read anew.
        self.raw = None;
        self.raw = Some(RawMode::enter(self.device.as_fd())?);
        Ok(())
    }
}

/// Gives the name of a terminal's device, for people; empty when it has none.
pub fn name(terminal: impl AsFd) -> String {
    rustix::termios::ttyname(terminal, Vec::new())
        .map_or_else(|_| String::new(), |name| String::from_utf8_lossy(name.as_bytes()).into_owned())
}
