//! A caller that finds a start under way waits for it, says for what, and never takes over.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::sessions::START;
use crate::harness::terminal::INTERRUPT;
use crate::harness::{Case, CaseResult, Data, Environment, Need, case, eventually, wait_until};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("a_waiting_caller_says_for_what", &[Need::Sandbox], a_waiting_caller_says_for_what),
        case("a_waiting_caller_joins_in_the_end", &[Need::Sandbox], a_waiting_caller_joins_in_the_end),
        case("attach_waits_for_a_start", &[Need::Sandbox], attach_waits_for_a_start),
        case("a_stopped_coordinator_is_not_waited_for_forever", &[Need::Sandbox], a_stopped_coordinator),
        case("an_interrupted_start_leaves_nothing", &[Need::Sandbox], an_interrupted_start_leaves_nothing),
        case("an_interrupted_preparation_leaves_nothing", &[Need::Sandbox], an_interrupted_preparation),
        case("a_killed_starter_leaves_nothing", &[Need::Sandbox], a_killed_starter_leaves_nothing),
    ]
}

/// A registry that takes a request and never answers it: a start that prepares as long as a case wants.
struct SilentRegistry {
    listener: TcpListener,
}

impl SilentRegistry {
    fn start(environment: &Environment) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let image = format!("{}/slow/image:latest", listener.local_addr()?);
        environment.write_profile("test", &format!("image = \"{image}\"\n[workspace]\nisolate_ignored = false\n"))?;
        Ok(Self { listener })
    }

    /// Waits until somebody asks for the image; the connection is to be kept.
    fn asked(&self) -> Result<std::net::TcpStream> {
        self.listener.set_nonblocking(true)?;
        let accepted = eventually("the registry is asked", START, || self.listener.accept().ok())?;
        let mut stream = accepted.0;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(START))?;
        ensure!(stream.read(&mut [0; 16])? > 0, "nothing was asked");
        Ok(stream)
    }
}

fn coordinator(environment: &Environment) -> Option<i32> {
    let all = environment.processes();
    all.iter().find(|process| process.command.starts_with("lazaret: coordinator ")).map(|process| process.pid)
}

/// Waits until a coordinator leads a start, and gives its process id. Its record says that it holds the lock: before that,
/// another could still take it.
fn leading(environment: &Environment) -> Result<i32> {
    let startup = environment.runtime_root()?.startup();
    eventually("a coordinator leads", START, || startup.exists().then(|| coordinator(environment)).flatten())
}

fn a_waiting_caller_says_for_what() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let registry = SilentRegistry::start(&environment)?;
    let leader = environment.lazaret(["run", "--", "true"]).spawn()?;
    let _asked = registry.asked()?;
    let leading = coordinator(&environment).context("no coordinator prepares")?;
    let waiter = environment.lazaret(["run", "--wait", "1.2", "--", "true"]).run()?.expect_code(125)?;
    let shown = format!("lazaret: waiting for process {leading}: looking up image 127.0.0.1:");
    ensure!(waiter.stderr().contains(&shown), "lacks '{shown}'\n{waiter}");
    ensure!(waiter.stderr().matches(&shown).count() == 1, "said more than once while it waits\n{waiter}");
    ensure!(waiter.stderr().contains("caused by: waiting for process "), "{waiter}");
    ensure!(waiter.stderr().contains("could not be entered within 1.2 seconds"), "{waiter}");
    ensure!(waiter.stderr().contains("hint: wait longer with --wait SECONDS"), "{waiter}");
    ensure!((1.2..10.0).contains(&waiter.elapsed.as_secs_f64()), "waited for {:?}", waiter.elapsed);
    ensure!(coordinator(&environment) == Some(leading), "the waiter took over");
    let quiet = environment.lazaret(["run", "--quiet", "--wait", "0", "--", "true"]).run()?.expect_code(125)?;
    ensure!(!quiet.stderr().starts_with("lazaret: waiting"), "{quiet}");
    leader.signal(Signal::SIGTERM)?;
    let ended = leader.wait(START)?.expect_code(143)?;
    ensure!(ended.stderr().contains("cancelled"), "{ended}");
    environment.expect_nothing_left(Duration::from_secs(2))
}

fn a_waiting_caller_joins_in_the_end() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "linger = \"20s\"")?;
    let leader = environment.lazaret(["run", "--", "true"]).spawn()?;
    let leading = leading(&environment)?;
    kill(Pid::from_raw(leading), Signal::SIGSTOP)?;
    let waiter = environment.lazaret(["run", "--", "echo", "joined"]).spawn()?;
    let waiting = waiter.wait_stderr("waiting for ", START);
    kill(Pid::from_raw(leading), Signal::SIGCONT)?;
    waiting?;
    waiter.wait(START)?.ok()?.expect_stdout("joined\n")?;
    leader.wait(START)?.ok()?;
    ensure!(coordinator(&environment) == Some(leading), "the waiter took over");
    Ok(())
}

/// As an `up` would, but it starts nothing itself.
fn attach_waits_for_a_start() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "linger = \"20s\"")?;
    let leader = environment.lazaret(["run", "--", "true"]).spawn()?;
    let leading = leading(&environment)?;
    kill(Pid::from_raw(leading), Signal::SIGSTOP)?;
    let waiter = environment.lazaret(["attach", "--", "echo", "attached"]).spawn()?;
    let waiting = waiter.wait_stderr(&format!("waiting for process {leading}: "), START);
    let impatient = environment.lazaret(["attach", "-q", "--wait", "0.2", "--", "true"]).run();
    kill(Pid::from_raw(leading), Signal::SIGCONT)?;
    waiting?;
    let impatient = impatient?.expect_code(125)?;
    let said = "lazaret: error: this sandbox could not be entered within 0.2 seconds\n";
    ensure!(impatient.stderr().starts_with(said), "{impatient}");
    waiter.wait(START)?.ok()?.expect_stdout("attached\n")?;
    leader.wait(START)?.ok()?;
    ensure!(coordinator(&environment) == Some(leading), "the waiter took over");
    Ok(())
}

fn a_stopped_coordinator() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let starter = environment.lazaret(["run", "--", "echo", "started"]).spawn()?;
    let stopped = leading(&environment)?;
    kill(Pid::from_raw(stopped), Signal::SIGSTOP)?;
    let waiter = environment.lazaret(["run", "--wait", "1", "--", "true"]).run();
    kill(Pid::from_raw(stopped), Signal::SIGCONT)?;
    let waiter = waiter?.expect_code(125)?;
    ensure!(waiter.stderr().contains("could not be entered within 1 seconds"), "{waiter}");
    ensure!(waiter.stderr().contains("waiting for "), "{waiter}");
    starter.wait(START)?.ok()?.expect_stdout("started\n")?;
    Ok(())
}

fn an_interrupted_start_leaves_nothing() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let registry = SilentRegistry::start(&environment)?;
    let mut terminal = environment.terminal(["up"])?;
    let _asked = registry.asked()?;
    terminal.wait_for("looking up image 127.0.0.1:")?;
    terminal.send(INTERRUPT)?;
    let code = terminal.wait_exit(START)?;
    ensure!(code == 130, "exit code {code}\n{}", terminal.contents());
    ensure!(terminal.contents().contains("cancelled"), "{}", terminal.contents());
    terminal.expect_sane()?;
    environment.expect_nothing_left(Duration::from_secs(2))?;
    nothing_half_prepared(&environment)
}

/// Where the interrupted work is that of unpacking a real image.
fn an_interrupted_preparation() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let starter = environment.lazaret(["run", "--", "true"]).spawn()?;
    // Blocks that are taken, rather than names, show that unpacking is under way.
    let unpacking = || {
        let entries = fs::read_dir(environment.storage().prepared()).ok()?.flatten();
        let root = entries.map(|entry| entry.path().join("rootfs/usr/bin")).find(|path| path.exists())?;
        (fs::read_dir(&root).ok()?.count() > 3 && fs::metadata(&root).ok()?.uid() != 0).then_some(())
    };
    eventually("the image is being unpacked", START, unpacking)?;
    starter.signal(Signal::SIGINT)?;
    starter.wait(START)?.expect_code(130)?.expect_stderr("cancelled")?;
    environment.expect_nothing_left(Duration::from_secs(2))?;
    nothing_half_prepared(&environment)
}

fn a_killed_starter_leaves_nothing() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let registry = SilentRegistry::start(&environment)?;
    let mut starter = environment.lazaret(["run", "--", "true"]).spawn()?;
    let _asked = registry.asked()?;
    starter.kill();
    let gone = || environment.leftovers().is_empty();
    wait_until("the coordinator notices and ends", Duration::from_secs(3), gone)?;
    nothing_half_prepared(&environment)
}

fn nothing_half_prepared(environment: &Environment) -> CaseResult {
    let entries = fs::read_dir(environment.storage().prepared()).into_iter().flatten().flatten();
    let left: Vec<_> = entries.map(|entry| entry.path()).collect();
    ensure!(left.is_empty(), "left of the preparation: {left:?}");
    Ok(())
}
