//! What every case stands on.
//!
//! The binary starts up to three times ([`stage`]): as whoever runs it; as root, which makes the
//! test network and serves it; and as the unprivileged user that all cases run as. What one stage
//! tells the next is the [`world`]. A case is a function with its [`needs`]; unmet needs make
//! it ignored with the reason, or failed when `LAZARET_REQUIRE=all`.
//!
//! ```text
//! let environment = Environment::new()?;                       // own HOME, XDG directories, project
//! let output = environment.lazaret(["run", "--", "true"]).run()?;   // deadline, captured output
//! output.expect_code(0)?;
//! let mut terminal = environment.terminal(["up", "--", "bash"])?;   // a real PTY
//! terminal.wait_for("$")?;
//! ```

#![allow(unused_imports, reason = "what capabilities may use is re-exported whether or not one does")]

pub mod aftermath;
pub mod command;
pub mod environment;
pub mod executable;
pub mod image;
pub mod leftovers;
pub mod needs;
pub mod network;
pub mod project;
pub mod registry;
pub mod replay;
pub mod resolver;
pub mod root;
pub mod sessions;
pub mod stage;
pub mod terminal;
pub mod tmux;
pub mod user;
pub mod wait;
pub mod world;

use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

pub use command::{Invocation, Output, Running};
pub use environment::{Data, Environment};
pub use needs::Need;
pub use terminal::Terminal;
pub use tmux::Tmux;
pub use wait::{eventually, wait_until};

/// How a case ends: an error or a panic fails it.
pub type CaseResult = anyhow::Result<()>;

/// One case of a capability.
pub struct Case {
    name: &'static str,
    needs: &'static [Need],
    run: fn() -> CaseResult,
}

/// Makes a case; it is reported as `CAPABILITY::NAME`.
pub fn case(name: &'static str, needs: &'static [Need], run: fn() -> CaseResult) -> Case {
    Case { name, needs, run }
}

/// Cases that need the machine for themselves hold this for writing, all others for reading.
static ALONE: RwLock<()> = RwLock::new(());

/// Runs the whole binary: passes through the stages, and in the last one runs the cases.
pub fn main(capabilities: fn() -> Vec<(&'static str, Vec<Case>)>) -> ExitCode {
    let arguments = Arguments::from_args();
    if !arguments.list
        && let Some(code) = stage::enter()
    {
        return code;
    }
    let trials = capabilities().into_iter().flat_map(|(capability, cases)| {
        cases.into_iter().map(move |case| {
            let name = format!("{capability}::{}", case.name);
            Trial::ignorable_test(name.clone(), move || run(&name, &case))
        })
    });
    let code = libtest_mimic::run(&arguments, trials.collect()).exit_code();
    // Last, since the end of a long log is what is looked at first.
    for reason in failures().iter() {
        eprintln!("{reason}");
    }
    code
}

/// Why cases failed, one short line each.
fn failures() -> MutexGuard<'static, Vec<String>> {
    static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    FAILURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most characters of a reason in the list of [`failures`].
const REASON_LIMIT: usize = 600;

/// How often each case runs, to find one that fails now and then: `LAZARET_TEST_REPEAT`, or once.
fn repetitions() -> u32 {
    std::env::var("LAZARET_TEST_REPEAT").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

fn run(name: &str, case: &Case) -> Result<Completion, Failed> {
    if let Some(reason) = needs::unmet(case.needs) {
        if needs::all_required() {
            return Err(format!("an unmet need fails the case, as LAZARET_REQUIRE=all says: {reason}").into());
        }
        return Ok(Completion::ignored_with(reason));
    }
    // A poisoned lock only means that another case panicked.
    let (_shared, _alone) = if case.needs.contains(&Need::Alone) {
        (None, Some(ALONE.write().unwrap_or_else(PoisonError::into_inner)))
    } else {
        (Some(ALONE.read().unwrap_or_else(PoisonError::into_inner)), None)
    };
    environment::enter_case(name);
    for _ in 0..repetitions() {
        once(name, case)?;
    }
    Ok(Completion::Completed)
}

fn once(name: &str, case: &Case) -> Result<(), Failed> {
    let reason = match std::panic::catch_unwind(case.run) {
        Ok(Ok(())) => return Ok(()),
        // The chain of causes without anyhow's backtrace, which would bury it.
        Ok(Err(error)) => error.chain().map(ToString::to_string).collect::<Vec<_>>().join("\n  because: "),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text").to_owned()
        }
    };
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    failures().push(format!("{name}: {}", line.chars().take(REASON_LIMIT).collect::<String>()));
    Err(reason.into())
}
