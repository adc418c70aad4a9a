//! What signals to the client mean while a session runs.
//!
//! | signal | interactive | pipes |
//! | :--- | :--- | :--- |
//! | SIGWINCH | the session's terminal gets the new size | |
//! | SIGTSTP | terminal restored, client stopped | client stopped (default action) |
//! | SIGCONT | raw mode and size again | |
//! | SIGINT, SIGQUIT, SIGTERM, SIGHUP | terminal restored, client ends by it | passed on; the second one ends the client by it |

use std::io;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc;

use crate::cli::terminal::SessionTerminal;
use crate::domain::session::ControlEvent;
use crate::wire::client::ClientMessage;

/// The signals that a client with a session handles.
pub struct Signals {
    interrupt: Handled,
    quit: Handled,
    terminate: Handled,
    hangup: Handled,
    terminal: Option<TerminalSignals>,
}

/// A signal that is handled, unless the process was started with it ignored, as nohup(1) does and
/// shells do for background commands: then it stays so.
struct Handled(Option<unix::Signal>);

impl Handled {
    fn take_over(signal: Signal, ignored: u64) -> io::Result<Self> {
        let is_ignored = ignored & (1 << (signal as i32 - 1)) != 0;
        let handler = (!is_ignored).then(|| unix::signal(SignalKind::from_raw(signal as i32)));
        Ok(Self(handler.transpose()?))
    }

    /// Waits for the signal.
    async fn came(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }
}

/// Gives the signals that are ignored, a bit each (proc_pid_status(5), SigIgn).
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Those that concern only a client with a terminal.
struct TerminalSignals {
    resize: unix::Signal,
    stop: unix::Signal,
    resume: unix::Signal,
}

/// Whether a session has the client's terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It has.
    Terminal,
    /// It has pipes.
    Pipes,
}

impl Signals {
    /// Takes the signals over for the rest of the process's life. Must be called in a tokio runtime.
    pub fn take_over(presence: Presence) -> io::Result<Self> {
        let terminal = match presence {
            Presence::Pipes => None,
            Presence::Terminal => Some(TerminalSignals {
                resize: unix::signal(SignalKind::window_change())?,
                stop: unix::signal(SignalKind::from_raw(Signal::SIGTSTP as i32))?,
                resume: unix::signal(SignalKind::from_raw(Signal::SIGCONT as i32))?,
            }),
        };
        let ignored = ignored();
        Ok(Self {
            interrupt: Handled::take_over(Signal::SIGINT, ignored)?,
            quit: Handled::take_over(Signal::SIGQUIT, ignored)?,
            terminate: Handled::take_over(Signal::SIGTERM, ignored)?,
            hangup: Handled::take_over(Signal::SIGHUP, ignored)?,
            terminal,
        })
    }

    /// Waits for a signal that asks the client to end.
    pub async fn ending(&mut self) -> Signal {
        tokio::select! {
            () = self.interrupt.came() => Signal::SIGINT,
            () = self.quit.came() => Signal::SIGQUIT,
            () = self.terminate.came() => Signal::SIGTERM,
            () = self.hangup.came() => Signal::SIGHUP,
        }
    }

    /// Serves signals of a session with pipes; gives the one that ends the client.
    pub async fn pass_on(&mut self, messages: &mpsc::Sender<ClientMessage>) -> Signal {
        let mut passed = false;
        loop {
            let signal = self.ending().await;
            let event = match signal {
                Signal::SIGINT => ControlEvent::Interrupt,
                Signal::SIGQUIT => ControlEvent::Quit,
                Signal::SIGTERM => ControlEvent::Terminate,
                _ => ControlEvent::Hangup,
            };
            // One that can't be passed on at once has to end the client.
            if passed || messages.try_send(ClientMessage::Control(event)).is_err() {
                return signal;
            }
            passed = true;
        }
    }

    /// Serves signals of a session with a terminal; gives the one that ends the client.
    pub async fn serve_terminal(
        &mut self,
        terminal: &mut SessionTerminal,
        messages: &mpsc::Sender<ClientMessage>,
    ) -> Signal {
        loop {
            let Some(own) = &mut self.terminal else { return self.ending().await };
            tokio::select! {
                _ = own.resize.recv() => announce_size(terminal, messages).await,
                _ = own.stop.recv() => terminal.stop(),
                _ = own.resume.recv() => match terminal.resume() {
                    Ok(()) => announce_size(terminal, messages).await,
                    // The terminal went away while this process was stopped.
                    Err(_) => return Signal::SIGHUP,
                },
                () = self.interrupt.came() => return Signal::SIGINT,
                () = self.quit.came() => return Signal::SIGQUIT,
                () = self.terminate.came() => return Signal::SIGTERM,
                () = self.hangup.came() => return Signal::SIGHUP,
            }
        }
    }
}

async fn announce_size(terminal: &SessionTerminal, messages: &mpsc::Sender<ClientMessage>) {
    if let Ok(size) = terminal.size() {
        // A closed queue means that the session is ending.
        let _ = messages.send(ClientMessage::Resize(size)).await;
    }
}
