//! SIGKILL of each process at each stage of a generation's life.
//!
//! After each kill: within two seconds no process, mount or listening socket of the generation is
//! left, nothing foreign was touched, and the next command works and leaves nothing itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;

use crate::harness::aftermath::{Foreign, PATIENCE, expect_recovery, sleeping_session};
use crate::harness::{
    Case, CaseResult, Data, Environment, Need, Running, aftermath, case, eventually, leftovers, wait_until,
};

/// How long after a kill anything may be left.
const GONE: Duration = Duration::from_secs(2);

/// A process of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Client,
    Coordinator,
    Supervisor,
    Runsc,
    Exec,
    Sentry,
    Gofer,
    Helper,
}

impl Role {
    /// Tells whether a command line is this role's; clients are known by their pid instead.
    fn is(self, command: &str) -> bool {
        match self {
            Self::Client => false,
            Self::Coordinator => command.starts_with("lazaret: coordinator"),
            Self::Supervisor => command.starts_with("lazaret: supervisor"),
            Self::Runsc => command.contains("runsc --root=") && command.contains(" run --bundle="),
            Self::Exec => command.contains("runsc --root=") && command.contains(" exec --internal-pid-file"),
            Self::Sentry => command.starts_with("runsc-sandbox"),
            Self::Gofer => command.starts_with("runsc-gofer"),
            Self::Helper => command.contains("slirp4netns --mtu"),
        }
    }
}

/// Every role that exists without a session.
const STANDING: [Role; 6] = [Role::Coordinator, Role::Supervisor, Role::Runsc, Role::Sentry, Role::Gofer, Role::Helper];

pub fn cases() -> Vec<Case> {
    vec![
        case("preparing", &[Need::Sandbox, Need::Alone], preparing),
        case("starting", &[Need::Sandbox, Need::Alone], starting),
        case("published_idle", &[Need::Sandbox, Need::Alone], published_idle),
        case("published_with_two_sessions", &[Need::Sandbox, Need::Alone], published_with_two_sessions),
        case("tearing_down", &[Need::Sandbox, Need::Alone], tearing_down),
    ]
}

fn find(environment: &Environment, role: Role) -> Option<leftovers::Process> {
    environment.processes().into_iter().find(|process| role.is(&process.command))
}

fn kill(environment: &Environment, role: Role) -> Result<()> {
    let process = eventually(&format!("{role:?} runs"), PATIENCE, || find(environment, role))?;
    process.kill();
    Ok(())
}

/// Checks that no process, mount or listening socket is left, in time.
fn expect_gone(environment: &Environment, since: Instant, context: &str) -> Result<()> {
    aftermath::expect_gone(environment, GONE.saturating_sub(since.elapsed()), context)
}

fn published(environment: &Environment) -> Result<()> {
    let record = environment.runtime_root()?.publication();
    wait_until("the generation is published", PATIENCE, || record.exists())
}

fn preparing() -> CaseResult {
    for victim in [Role::Client, Role::Coordinator] {
        let context = format!("{victim:?} killed while preparing");
        let environment = Environment::with(Data::Private)?;
        let mut client = environment.lazaret(["run", "--", "true"]).spawn()?;
        let startup = environment.runtime_root()?.startup();
        wait_until("layers are unpacked", PATIENCE, || {
            fs::read_to_string(&startup).is_ok_and(|record| record.contains("unpacking"))
        })?;
        let foreign = Foreign::plant(&environment)?;
        let since = Instant::now();
        match victim {
            Role::Client => client.kill(),
            role => kill(&environment, role)?,
        }
        let ended = client.wait(PATIENCE)?;
        if victim == Role::Coordinator {
            ensure!(ended.code() == 125, "{context}: {ended:?}");
        }
        expect_gone(&environment, since, &context)?;
        expect_recovery(&environment, foreign, &context)?;
    }
    Ok(())
}

fn starting() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    for victim in [&STANDING[..], &[Role::Client]].concat() {
        let context = format!("{victim:?} killed while starting");
        let client = environment.lazaret(["run", "--", "sleep", "1000"]).spawn()?;
        let role = if victim == Role::Client { Role::Supervisor } else { victim };
        // The process is killed as soon as it is seen, which is before or just after publication.
        let process = eventually(&format!("{role:?} runs"), PATIENCE, || find(&environment, role))?;
        let foreign = Foreign::plant(&environment)?;
        let since = Instant::now();
        if victim == Role::Client {
            client.signal(nix::sys::signal::Signal::SIGKILL)?
        } else {
            process.kill()
        }
        let ended = client.wait(PATIENCE)?;
        ensure!(matches!(ended.code(), 125 | 137), "{context}: {ended:?}");
        if victim != Role::Client {
            ensure!(!ended.stderr().is_empty(), "{context}: the client says nothing");
        }
        expect_gone(&environment, since, &context)?;
        expect_recovery(&environment, foreign, &context)?;
    }
    Ok(())
}

fn published_idle() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "linger = \"10m\"\n")?;
    for victim in STANDING {
        let context = format!("{victim:?} killed while idle");
        environment.lazaret(["run", "--", "true"]).deadline(PATIENCE).run()?.ok()?;
        published(&environment)?;
        let foreign = Foreign::plant(&environment)?;
        let since = Instant::now();
        kill(&environment, victim)?;
        expect_gone(&environment, since, &context)?;
        expect_recovery(&environment, foreign, &context)?;
    }
    Ok(())
}

fn published_with_two_sessions() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    for victim in [&STANDING[..], &[Role::Client, Role::Exec]].concat() {
        let context = format!("{victim:?} killed with two sessions");
        let first = sleeping_session(&environment, "first")?;
        let second = sleeping_session(&environment, "second")?;
        let foreign = Foreign::plant(&environment)?;
        let since = Instant::now();
        if matches!(victim, Role::Client | Role::Exec) {
            let survivor = one_session_of_two(&environment, victim, first, second).with_context(|| context.clone())?;
            let since = Instant::now();
            survivor.signal(nix::sys::signal::Signal::SIGKILL)?;
            drop(survivor.wait(PATIENCE)?);
            expect_gone(&environment, since, &context)?;
        } else {
            kill(&environment, victim)?;
            for client in [first, second] {
                let ended = client.wait(PATIENCE)?;
                ensure!(ended.code() == 125, "{context}: {ended:?}");
                ensure!(!ended.stderr().is_empty(), "{context}: the client says nothing");
            }
            expect_gone(&environment, since, &context)?;
        }
        expect_recovery(&environment, foreign, &context)?;
    }
    Ok(())
}

/// Ends the first of two sessions, checks that the other goes on, and gives it back.
fn one_session_of_two(environment: &Environment, victim: Role, first: Running, mut second: Running) -> Result<Running> {
    let execs = || -> Vec<_> {
        environment.processes().into_iter().filter(|process| Role::Exec.is(&process.command)).collect()
    };
    ensure!(execs().len() == 2, "two sessions run");
    match victim {
        Role::Client => {
            first.signal(nix::sys::signal::Signal::SIGKILL)?;
            drop(first.wait(PATIENCE)?);
        }
        Role::Exec => {
            execs().iter().min_by_key(|process| process.pid).context("an exec client runs")?.kill();
            let ended = first.wait(PATIENCE)?;
            ensure!(ended.code() == 125, "the client of the killed exec: {ended:?}");
        }
        other => bail!("{other:?} is shared by all sessions"),
    }
    wait_until("one session is left", GONE, || execs().len() == 1)?;
    ensure!(second.is_running()?, "the other session ended too");
    Ok(second)
}

fn tearing_down() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    for victim in STANDING {
        let context = format!("{victim:?} killed while tearing down");
        let session = sleeping_session(&environment, "session")?;
        let foreign = Foreign::plant(&environment)?;
        let process = find(&environment, victim).with_context(|| format!("{victim:?} runs"))?;
        let down = environment.lazaret(["down", "--yes"]).spawn()?;
        let record = environment.runtime_root()?.publication();
        wait_until("the teardown has begun", PATIENCE, || !record.exists())?;
        let since = Instant::now();
        process.kill();
        drop(session.wait(PATIENCE)?);
        drop(down.wait(PATIENCE)?);
        expect_gone(&environment, since, &context)?;
        expect_recovery(&environment, foreign, &context)?;
    }
    Ok(())
}
