//! A real terminal: a PTY with the program under test at one end and an emulated screen at the other.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use super::command::{self, Invocation};
use super::wait::{eventually, wait_until};

/// How long to wait for something on the screen unless a case says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// How long a vim that has not drawn is left alone.
const VIM_WAITS: Duration = Duration::from_secs(2);

/// How much of the output's end is kept as it came.
const TAIL: usize = 1 << 20;

/// What the reader has seen so far.
struct Seen {
    screen: vt100::Parser,
    tail: VecDeque<u8>,
    bytes: u64,
    ended: bool,
}

/// A program in a terminal; hung up and killed when dropped.
pub struct Terminal {
    child: Child,
    master: Option<Arc<OwnedFd>>,
    stop: Option<OwnedFd>,
    reader: Option<JoinHandle<()>>,
    seen: Arc<Mutex<Seen>>,
}

/// Ctrl-C.
pub const INTERRUPT: &str = "\x03";
/// Ctrl-D.
pub const END_OF_FILE: &str = "\x04";
/// Ctrl-Z.
pub const SUSPEND: &str = "\x1a";
/// Ctrl-\.
pub const QUIT: &str = "\x1c";
/// Escape.
pub const ESCAPE: &str = "\x1b";
/// Enter.
pub const ENTER: &str = "\r";

impl Terminal {
    /// Starts the program as leader of a session whose controlling terminal is a new PTY.
    pub fn start(invocation: &Invocation, rows: u16, columns: u16) -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        tcsetwinsize(&master, winsize(rows, columns))?;
        let name = ptsname(&master, Vec::new())?;
        let slave = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        // setsid(1) makes its standard input the controlling terminal and executes the program in place.
        let mut command = invocation.command_of(OsStr::new("setsid"), &[OsStr::new("--ctty")]);
        command
            .stdin(Stdio::from(slave.try_clone()?))
            .stdout(Stdio::from(slave.try_clone()?))
            .stderr(Stdio::from(slave));
        let child = command.spawn().context("cannot start a program in a terminal")?;
        drop(command);
        let screen = vt100::Parser::new(nonzero(rows)?, nonzero(columns)?, 10_000);
        let seen = Arc::new(Mutex::new(Seen { screen, tail: VecDeque::new(), bytes: 0, ended: false }));
        let mut terminal = Self { child, master: Some(Arc::new(master)), stop: None, reader: None, seen };
        terminal.look()?;
        Ok(terminal)
    }

    /// Reads what comes out, as from the start or again after [`Terminal::look_away`].
    pub fn look(&mut self) -> Result<()> {
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (master, seen) =
            (Arc::clone(self.master.as_ref().context("the terminal was hung up")?), Arc::clone(&self.seen));
        self.stop = Some(stop);
        self.reader = Some(std::thread::spawn(move || read(&master, &stopped, &seen)));
        Ok(())
    }

    /// Stops reading what comes out, as a terminal that is held does.
    pub fn look_away(&mut self) {
        self.stop = None;
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
    }

    /// Gives the program's process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id fits")
    }

    /// Types.
    pub fn send(&self, text: &str) -> Result<()> {
        self.send_bytes(text.as_bytes())
    }

    /// Types a line and Enter.
    pub fn send_line(&self, line: &str) -> Result<()> {
        self.send(&format!("{line}{ENTER}"))
    }

    /// Types bytes; blocks while the terminal takes none.
    pub fn send_bytes(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let written = rustix::io::write(self.master()?, bytes)?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Waits until the screen shows the text.
    pub fn wait_for(&self, text: &str) -> Result<()> {
        self.wait_for_within(text, DEADLINE)
    }

    /// Waits until the screen shows the text, for as long as given.
    pub fn wait_for_within(&self, text: &str, deadline: Duration) -> Result<()> {
        self.wait_screen(&format!("the screen shows '{text}'"), deadline, |screen| screen.contents().contains(text))
    }

    /// Waits until the text has come out since the start, also when it has scrolled away; only the last
    /// MiB is searched.
    pub fn wait_for_output(&self, text: &str, deadline: Duration) -> Result<()> {
        let found = || contains(&self.tail(), text.as_bytes());
        wait_until(&format!("the output has '{text}'"), deadline, found).map_err(|error| self.explain(&error))
    }

    /// Waits until the screen is as the condition says.
    pub fn wait_screen(
        &self,
        what: &str,
        deadline: Duration,
        mut condition: impl FnMut(&vt100::Screen) -> bool,
    ) -> Result<()> {
        let shown = || condition(self.seen().screen.screen());
        wait_until(what, deadline, shown).map_err(|error| self.explain(&error))
    }

    /// Waits until vim, just started, shows what the condition asks for.
    ///
    /// On a loaded machine vim 9.0 may wait for a key before it draws at all: it takes the time that has passed off a
    /// wait of no time, and a negative wait has no end. The answers of a terminal to its queries wake it; this one
    /// presses Escape.
    pub fn wait_vim(&self, mut condition: impl FnMut(&vt100::Screen) -> bool) -> Result<()> {
        let began = Instant::now();
        let mut pressed = began;
        self.wait_screen("vim is open", DEADLINE, |screen| {
            let open = screen.alternate_screen() && condition(screen);
            let waits = screen.alternate_screen() && !open && pressed.elapsed() > VIM_WAITS;
            if waits && self.send(ESCAPE).is_ok() {
                pressed = Instant::now();
            }
            open
        })
    }

    fn explain(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow!("{error}\n--- the screen\n{}\n---", self.contents())
    }

    /// Gives the screen as text.
    pub fn contents(&self) -> String {
        self.seen().screen.screen().contents()
    }

    /// Gives the last MiB of output as it came.
    pub fn tail(&self) -> Vec<u8> {
        self.seen().tail.iter().copied().collect()
    }

    /// Gives the number of bytes that came out.
    pub fn bytes(&self) -> u64 {
        self.seen().bytes
    }

    /// Changes the size, which the program learns by SIGWINCH.
    pub fn resize(&self, rows: u16, columns: u16) -> Result<()> {
        self.seen().screen.set_size(nonzero(rows)?, nonzero(columns)?);
        Ok(tcsetwinsize(self.master()?, winsize(rows, columns))?)
    }

    /// Gives the terminal's modes.
    pub fn modes(&self) -> Result<Termios> {
        Ok(tcgetattr(self.master()?)?)
    }

    /// Demands that the terminal is as a shell wants it: echo, line mode and signals on, alternate screen
    /// off, cursor shown, no paste or mouse mode.
    pub fn expect_sane(&self) -> Result<()> {
        let modes = self.modes()?.local_modes;
        let wanted = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        if !modes.contains(wanted) {
            bail!("the terminal is left without {:?}", wanted - modes);
        }
        let seen = self.seen();
        let screen = seen.screen.screen();
        let wrong = [
            (screen.alternate_screen(), "the alternate screen"),
            (screen.hide_cursor(), "a hidden cursor"),
            (screen.bracketed_paste(), "bracketed paste"),
            (screen.application_cursor(), "application cursor keys"),
            (screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None, "mouse reports"),
        ];
        match wrong.iter().find(|(wrong, _)| *wrong) {
            Some((_, what)) => bail!("the terminal is left with {what}"),
            None => Ok(()),
        }
    }

    /// Sends the signal to the program alone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.pid()), signal)?)
    }

    /// Waits for the program's end and all its output; gives the exit code, 128+n for death by signal n.
    pub fn wait_exit(&mut self, deadline: Duration) -> Result<i32> {
        let ended = eventually("the program in the terminal ends", deadline, || self.child.try_wait().transpose());
        let status = ended.map_err(|error| self.explain(&error))??;
        // What still holds the slave open may keep the output from ending; the exit counts.
        drop(wait_until("the output ends", Duration::from_millis(500), || self.seen().ended));
        Ok(command::code(status))
    }

    /// Closes the terminal as a window that is closed does.
    pub fn hang_up(&mut self) {
        self.look_away();
        self.master = None;
    }

    fn master(&self) -> Result<&OwnedFd> {
        self.master.as_deref().context("the terminal was hung up")
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.hang_up();
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads until the last slave is closed or the other end of `stopped` is.
fn read(master: &OwnedFd, stopped: &OwnedFd, seen: &Mutex<Seen>) {
    let mut buffer = vec![0; 65536];
    loop {
        let mut ready = [PollFd::new(master, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
        }
        if ready[0].revents().contains(PollFlags::IN) {
            match rustix::io::read(master, &mut buffer) {
                Ok(length) if length > 0 => {
                    let mut seen = seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    seen.screen.process(&buffer[..length]);
                    seen.bytes += length as u64;
                    seen.tail.extend(&buffer[..length]);
                    let excess = seen.tail.len().saturating_sub(TAIL);
                    seen.tail.drain(..excess);
                    continue;
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                _ => break,
            }
        }
        if !ready[0].revents().is_empty() || !ready[1].revents().is_empty() {
            break;
        }
    }
    seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).ended = true;
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn nonzero(size: u16) -> Result<NonZeroU16> {
    NonZeroU16::new(size).context("a terminal has at least one row and column")
}

fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
