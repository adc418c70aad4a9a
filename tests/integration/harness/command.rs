//! Running programs with deadlines.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::wait::{eventually, wait_until};

/// How long a program may run unless a case says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How long after a program's end its standard streams may stay open in somebody else's hands.
const STREAMS: Duration = Duration::from_secs(3);

/// A program to run: what [`Command`] is, with standard input and a deadline.
#[derive(Debug, Clone)]
pub struct Invocation {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: BTreeMap<OsString, OsString>,
    inherits: bool,
    directory: Option<PathBuf>,
    input: Vec<u8>,
    deadline: Duration,
}

impl Invocation {
    /// Names the program; it inherits this process's environment.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            inherits: true,
            directory: None,
            input: Vec::new(),
            deadline: DEADLINE,
        }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Starts from an empty environment instead of this process's.
    pub fn clear_env(mut self) -> Self {
        self.inherits = false;
        self.environment.clear();
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Takes away a variable that was set before.
    pub fn without_env(mut self, name: impl AsRef<OsStr>) -> Self {
        self.environment.remove(name.as_ref());
        self
    }

    /// Sets the working directory.
    pub fn directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().to_owned());
        self
    }

    /// Sets what the program reads from standard input; nothing by default.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Sets how long the program may run.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Gives the plain [`Command`], for what this type does not offer.
    pub fn command(&self) -> Command {
        self.command_of(self.program.as_os_str(), &[])
    }

    /// Gives a [`Command`] that runs another program with `before`, the program and its arguments.
    pub fn command_of(&self, program: &OsStr, before: &[&OsStr]) -> Command {
        let mut command = Command::new(program);
        command.args(before);
        if program != self.program.as_os_str() {
            command.arg(&self.program);
        }
        command.args(&self.arguments);
        if !self.inherits {
            command.env_clear();
        }
        command.envs(&self.environment);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command
    }

    /// Starts the program with its standard streams as pipes, in a process group of its own.
    pub fn spawn(&self) -> Result<Running> {
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.describe()))?;
        let stdout = collect(child.stdout.take().context("stdout is piped")?);
        let stderr = collect(child.stderr.take().context("stderr is piped")?);
        let input = child.stdin.take();
        let (description, begin) = (self.describe(), Instant::now());
        Ok(Running { child, input, stdout, stderr, description, begin, ended: None })
    }

    /// Runs the program to its end, and kills it when the deadline passes.
    pub fn run(&self) -> Result<Output> {
        let mut running = self.spawn()?;
        let (mut input, bytes) = (running.input.take().context("stdin is piped")?, self.input.clone());
        // A program that ends without reading its input is no error.
        let feeder = std::thread::spawn(move || drop(input.write_all(&bytes)));
        let output = running.wait(self.deadline);
        drop(feeder);
        output
    }

    fn describe(&self) -> String {
        let short = |argument: &OsString| argument.to_string_lossy().chars().take(500).collect::<String>();
        let words: Vec<_> = self.arguments.iter().map(short).collect();
        format!("{} {}", self.program.display(), words.join(" "))
    }
}

/// What a program has written to one of its standard streams so far.
#[derive(Debug)]
struct Stream {
    bytes: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl Stream {
    fn seen(&self) -> Vec<u8> {
        self.bytes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn shows(&self, text: &str) -> bool {
        self.seen().windows(text.len()).any(|window| window == text.as_bytes())
    }

    /// Gives everything, once the stream has ended.
    fn whole(&self) -> Option<Vec<u8>> {
        self.ended.recv_timeout(STREAMS).ok().map(|()| self.seen())
    }
}

fn collect(mut stream: impl Read + Send + 'static) -> Stream {
    let (sender, ended) = channel();
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let filled = Arc::clone(&bytes);
    std::thread::spawn(move || {
        let mut buffer = [0; 65536];
        loop {
            match stream.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // An error ends the stream as its end does; what came before counts.
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    let mut seen = filled.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    seen.extend_from_slice(&buffer[..length]);
                }
            }
        }
        // A program that is dropped is waited for by nobody.
        let _ = sender.send(());
    });
    Stream { bytes, ended }
}

/// A program that runs; killed with its process group when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    stdout: Stream,
    stderr: Stream,
    description: String,
    begin: Instant,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Gives the process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id fits")
    }

    /// Writes to the program's standard input.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let input = self.input.as_mut().context("standard input is closed already")?;
        input.write_all(bytes)?;
        Ok(input.flush()?)
    }

    /// Closes the program's standard input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Waits until standard output shows the text.
    pub fn wait_stdout(&self, text: &str, deadline: Duration) -> Result<()> {
        self.wait_stream(&self.stdout, text, deadline)
    }

    /// Waits until standard error shows the text.
    pub fn wait_stderr(&self, text: &str, deadline: Duration) -> Result<()> {
        self.wait_stream(&self.stderr, text, deadline)
    }

    fn wait_stream(&self, stream: &Stream, text: &str, deadline: Duration) -> Result<()> {
        wait_until(&format!("'{text}' is written"), deadline, || stream.shows(text)).map_err(|error| {
            let (stdout, stderr) = (self.stdout.seen(), self.stderr.seen());
            let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            anyhow!("{error}: {}\n{}\n{}", self.description, shown(&stdout), shown(&stderr))
        })
    }

    /// Sends the signal to this process alone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.pid()), signal)?)
    }

    /// Tells whether it still runs.
    pub fn is_running(&mut self) -> Result<bool> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended.is_none())
    }

    /// Closes standard input and waits for the program's end; kills it when the deadline passes.
    pub fn wait(mut self, deadline: Duration) -> Result<Output> {
        self.input = None;
        let waited = eventually("the program ends", deadline, || match self.is_running() {
            Ok(true) => None,
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        let elapsed = self.begin.elapsed();
        if waited.is_err() {
            self.kill();
        }
        let (stdout, stderr) = (self.stdout.whole(), self.stderr.whole());
        if waited.is_err() {
            let text = |bytes: Option<Vec<u8>>| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
            bail!("killed after {deadline:?}: {}\n{}\n{}", self.description, text(stdout), text(stderr));
        }
        waited??;
        let held = || anyhow!("somebody holds a standard stream of this open after its end: {}", self.description);
        Ok(Output {
            status: self.ended.context("it has ended")?,
            stdout: stdout.ok_or_else(held)?,
            stderr: stderr.ok_or_else(held)?,
            elapsed,
            description: self.description.clone(),
        })
    }

    /// Kills the program's process group.
    pub fn kill(&mut self) {
        // Nothing to do when it is gone already.
        let _ = killpg(Pid::from_raw(self.pid()), Signal::SIGKILL);
        self.ended = self.child.wait().ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
        }
    }
}

/// How a program ended and what it wrote.
#[derive(Debug, Clone)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// All of standard output.
    pub stdout: Vec<u8>,
    /// All of standard error.
    pub stderr: Vec<u8>,
    /// From start to end.
    pub elapsed: Duration,
    description: String,
}

impl Output {
    /// Gives the exit code, 128+n for death by signal n.
    pub fn code(&self) -> i32 {
        code(self.status)
    }

    /// Gives standard output as text.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Gives standard error as text.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Demands the exit code.
    pub fn expect_code(self, code: i32) -> Result<Self> {
        ensure!(self.code() == code, "exit code {} instead of {code}\n{self}", self.code());
        Ok(self)
    }

    /// Demands success.
    pub fn ok(self) -> Result<Self> {
        self.expect_code(0)
    }

    /// Demands that standard error contains the text.
    pub fn expect_stderr(self, text: &str) -> Result<Self> {
        ensure!(self.stderr().contains(text), "standard error lacks '{text}'\n{self}");
        Ok(self)
    }

    /// Demands that standard output contains the text.
    pub fn expect_stdout(self, text: &str) -> Result<Self> {
        ensure!(self.stdout().contains(text), "standard output lacks '{text}'\n{self}");
        Ok(self)
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |bytes: &[u8]| {
            let tail = bytes.len().saturating_sub(4000);
            String::from_utf8_lossy(&bytes[tail..]).into_owned()
        };
        writeln!(f, "$ {}   [{}, {:?}]", self.description, self.status, self.elapsed)?;
        write!(f, "--- stdout\n{}\n--- stderr\n{}", shown(&self.stdout), shown(&self.stderr))
    }
}

/// Gives a status as a shell says it: the exit code, or 128+n for death by signal n.
pub fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
