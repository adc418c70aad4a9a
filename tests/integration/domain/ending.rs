//! A Domain ends with its last session, after its linger, or by `down`.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::harness::sessions::{START, hold, status};
use crate::harness::{Case, CaseResult, Environment, Need, case};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("the_last_session_takes_it_down", &[Need::Sandbox], the_last_session_takes_it_down),
        case("linger_keeps_it_for_its_time", &[Need::Sandbox], linger_keeps_it_for_its_time),
        case("down_spares_live_sessions", &[Need::Sandbox], down_spares_live_sessions),
        case("down_asks_on_a_terminal", &[Need::Sandbox], down_asks_on_a_terminal),
        case("down_ends_sessions_when_told", &[Need::Sandbox], down_ends_sessions_when_told),
        case("down_of_what_does_not_run", &[Need::Sandbox], down_of_what_does_not_run),
        case("case_c19_nothing_outlives_the_domain", &[Need::Sandbox], case_c19_nothing_outlives_the_domain),
    ]
}

fn the_last_session_takes_it_down() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let (first, second) = (hold(&environment, &[])?, hold(&environment, &[])?);
    first.wait(START)?.ok()?;
    ensure!(status(&environment, &[])?["state"] == "running", "the first of two sessions ended it");
    second.wait(START)?.ok()?;
    environment.expect_nothing_left(Duration::from_secs(2))?;
    ensure!(status(&environment, &[])?["state"] == "stopped");
    Ok(())
}

fn linger_keeps_it_for_its_time() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "linger = \"1s\"")?;
    environment.in_sandbox("echo kept > /tmp/mark").run()?.ok()?;
    let before = status(&environment, &[])?;
    ensure!(before["state"] == "running", "{before}");
    environment.in_sandbox("cat /tmp/mark").run()?.ok()?.expect_stdout("kept")?;
    let idle = Instant::now();
    environment.expect_nothing_left(Duration::from_secs(5))?;
    ensure!(idle.elapsed() > Duration::from_millis(800), "gone after {:?}", idle.elapsed());
    environment.in_sandbox("test ! -e /tmp/mark").run()?.ok()?;
    let after = status(&environment, &[])?;
    ensure!(after["generation"].as_u64() > before["generation"].as_u64(), "{before} {after}");
    environment.lazaret(["down"]).run()?.ok()?;
    Ok(())
}

fn down_spares_live_sessions() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let mut held = hold(&environment, &[])?;
    let refused = environment.lazaret(["down"]).run()?.expect_code(125)?;
    ensure!(refused.stderr().contains("is not taken down: 1 session is live"), "{refused}");
    let hint = format!("hint: end them as well: lazaret down --yes {}\n", environment.domain()?);
    ensure!(refused.stderr().contains(&hint), "{refused}");
    ensure!(held.is_running()?, "the session was ended");
    held.write(b"still here\n")?;
    held.wait(START)?.ok()?.expect_stdout("still here\n")?;
    Ok(())
}

fn down_asks_on_a_terminal() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let mut held = hold(&environment, &[])?;
    let mut terminal = environment.terminal(["down"])?;
    terminal.wait_for("1 session is live in ")?;
    terminal.send_line("n")?;
    let code = terminal.wait_exit(START)?;
    ensure!(code == 125, "exit code {code}\n{}", terminal.contents());
    terminal.expect_sane()?;
    ensure!(held.is_running()?, "the session was ended though the answer was no");
    let mut terminal = environment.terminal(["down"])?;
    terminal.wait_for("End them?")?;
    terminal.send_line("y")?;
    let code = terminal.wait_exit(START)?;
    ensure!(code == 0 && terminal.contents().contains(" is down"), "exit code {code}\n{}", terminal.contents());
    terminal.expect_sane()?;
    held.wait(START)?.expect_code(125)?;
    environment.expect_nothing_left(Duration::from_secs(2))
}

fn down_ends_sessions_when_told() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let piped = hold(&environment, &[])?;
    let mut terminal = environment.terminal(["up", "--", "sh", "-c", "echo raw; stty raw -echo; exec cat"])?;
    terminal.wait_for("raw")?;
    let down = environment.lazaret(["down", "--yes"]).run()?.ok()?;
    ensure!(down.stderr().contains(" is down"), "{down}");
    // When down returns, nothing is left, not even for a moment.
    let left = environment.leftovers();
    let left: Vec<_> =
        left.into_iter().filter(|left| !left.contains(" run -- ") && !left.contains(" up -- ")).collect();
    ensure!(left.is_empty(), "left when down returned: {left:#?}");
    let told = "lazaret: error: the sandbox was taken down\n  caused by: somebody ran `lazaret down`\n";
    let piped = piped.wait(START)?.expect_code(125)?;
    ensure!(piped.stderr().ends_with(told), "{piped}");
    let code = terminal.wait_exit(START)?;
    let told = told.lines().next().unwrap_or_default();
    ensure!(code == 125 && terminal.contents().contains(told), "exit code {code}\n{}", terminal.contents());
    terminal.expect_sane()
}

fn down_of_what_does_not_run() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    // What is asked for holds already, which a script need not find out by itself.
    let never = environment.lazaret(["down"]).run()?.ok()?;
    let said = format!("lazaret: nothing to take down: {} has no sandbox\n", environment.project().display());
    ensure!(never.stderr() == said, "{never}");
    let quiet = environment.lazaret(["down", "-q", "-p", "test"]).run()?.ok()?;
    ensure!(quiet.stderr.is_empty(), "{quiet}");
    // A name that names nothing is a mistake all the same.
    environment.lazaret(["down", "d-0000"]).run()?.expect_code(125)?.expect_stderr("there is no sandbox 'd-0000'")?;
    environment.lazaret(["run", "--", "true"]).run()?.ok()?;
    environment.expect_nothing_left(Duration::from_secs(2))?;
    let ended = environment.lazaret(["down"]).run()?.ok()?;
    ensure!(ended.stderr().contains(" was not running"), "{ended}");
    let domain = environment.domain()?;
    environment.lazaret(["down", domain.as_str()]).run()?.ok()?.expect_stderr(domain.as_str())?;
    environment
        .lazaret(["down", "d-0000000000000000"])
        .run()?
        .expect_code(125)?
        .expect_stderr("there is no sandbox")?;
    environment.expect_nothing_left(Duration::from_secs(2))
}

/// The half of the case that is about the Domain: whatever a session left behind is gone with it.
fn case_c19_nothing_outlives_the_domain() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let script = "sleep 1000 & setsid sleep 1001 >/dev/null 2>&1 </dev/null & \
         python3 -c 'import os,sys,time\nif os.fork(): sys.exit()\nos.setsid()\nif os.fork(): sys.exit()\ntime.sleep(1000)'; \
         exec > /tmp/log 2>&1; true";
    let output = environment.in_sandbox(script).run()?.ok()?;
    ensure!(output.elapsed < Duration::from_secs(20), "{output}");
    environment.expect_nothing_left(Duration::from_secs(2))?;
    // Lock and port are free: the next one starts at once and finds nothing of the last one.
    let next = environment.in_sandbox("pgrep -c sleep").run()?.expect_code(1)?;
    ensure!(next.stdout() == "0\n", "{next}");
    Ok(())
}
