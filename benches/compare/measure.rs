//! How single values are taken.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// One value, in the row's unit.
pub type Sample = f64;

/// Values of one turn, or why there are none.
pub type Turn = Result<Vec<Sample>>;

/// A subject that this machine does not have.
#[derive(Debug, thiserror::Error)]
#[error("not installed")]
pub struct NotInstalled;

/// How long any single step may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// What a program on a terminal says when it is ready for keys.
pub const READY: &str = "ready-for-keys";

/// Script that echoes keys itself: the terminal does not, so that every key makes the whole way.
pub const ECHO_SCRIPT: &str = "stty raw -echo; printf ready-for-keys; exec cat";

/// Gives a duration in milliseconds.
pub fn milliseconds(duration: Duration) -> Sample {
    duration.as_secs_f64() * 1000.0
}

/// Takes a value several times, after a first one that does not count.
pub fn repeat(rounds: usize, mut measure: impl FnMut() -> Result<Sample>) -> Turn {
    measure()?;
    (0..rounds).map(|_| measure()).collect()
}

/// Runs the program with its standard streams at /dev/null and gives its wall time in milliseconds.
pub fn wall(mut command: Command) -> Result<Sample> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let begin = Instant::now();
    let output = command.spawn()?.wait_with_output()?;
    let elapsed = begin.elapsed();
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    Ok(milliseconds(elapsed))
}

/// A program with a PTY as its controlling terminal.
struct OnTerminal {
    child: Child,
    master: OwnedFd,
}

impl OnTerminal {
    fn start(command: &Command) -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let slave = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        // setsid(1) makes its standard input the controlling terminal and executes the program in place.
        let mut setsid = Command::new("setsid");
        setsid.arg("--ctty").arg(command.get_program()).args(command.get_args());
        // Only a case's cleared environment is handed on whole; an inherited one stays.
        if command.get_envs().any(|(name, _)| name == "HOME") {
            setsid.env_clear();
        }
        setsid.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(directory) = command.get_current_dir() {
            setsid.current_dir(directory);
        }
        setsid
            .stdin(Stdio::from(slave.try_clone()?))
            .stdout(Stdio::from(slave.try_clone()?))
            .stderr(Stdio::from(slave));
        Ok(Self { child: setsid.spawn()?, master })
    }

    /// Reads what is there, and waits for it; nothing at the end.
    fn read<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>> {
        let timeout = Timespec { tv_sec: 120, tv_nsec: 0 };
        let mut ready = [PollFd::new(&self.master, PollFlags::IN)];
        ensure!(poll(&mut ready, Some(&timeout))? == 1, "nothing came out of the terminal for two minutes");
        match rustix::io::read(&self.master, &mut *buffer) {
            Ok(length) if length > 0 => Ok(Some(&buffer[..length])),
            // Linux says EIO when the last slave is closed.
            Ok(_) | Err(rustix::io::Errno::IO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn read_until(&self, text: &str) -> Result<()> {
        let (mut seen, mut buffer) = (String::new(), [0; 4096]);
        while !seen.contains(text) {
            let Some(bytes) = self.read(&mut buffer)? else { bail!("ended with: {}", seen.trim()) };
            seen += &String::from_utf8_lossy(bytes);
        }
        Ok(())
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        match self.child.kill() {
            Err(error) if error.kind() != ErrorKind::InvalidInput => eprintln!("cannot kill a program: {error}"),
            _ => {}
        }
        drop(self.child.wait());
    }
}

/// Types keys at a program that runs [`ECHO_SCRIPT`], one after the other's echo, and gives each
/// echo's time in milliseconds.
pub fn echo(command: &Command, keys: usize) -> Turn {
    let terminal = OnTerminal::start(command)?;
    terminal.read_until(READY)?;
    let mut samples = Vec::new();
    let mut buffer = [0; 64];
    for key in 0..keys + 20 {
        let begin = Instant::now();
        ensure!(rustix::io::write(&terminal.master, b"k")? == 1, "the terminal took no key");
        terminal.read(&mut buffer)?.context("the program ended")?;
        let elapsed = begin.elapsed();
        if key >= 20 {
            samples.push(milliseconds(elapsed));
        }
        // People pause between keys, and what has gone to sleep must wake up.
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(samples)
}

/// Reads all that the program writes to its terminal and gives millions of bytes a second.
pub fn output(command: &Command, least: u64) -> Turn {
    let begin = Instant::now();
    let mut terminal = OnTerminal::start(command)?;
    let (mut total, mut buffer) = (0u64, vec![0; 1 << 16]);
    while let Some(bytes) = terminal.read(&mut buffer)? {
        total += bytes.len() as u64;
        ensure!(begin.elapsed() < DEADLINE, "{total} bytes in {DEADLINE:?}");
    }
    let elapsed = begin.elapsed();
    let status = terminal.child.wait()?;
    ensure!(status.success() && total >= least, "{status} after {total} bytes");
    Ok(vec![total as f64 / 1e6 / elapsed.as_secs_f64()])
}
