//! The three standard streams.

use std::time::Duration;

use anyhow::{Context, ensure};
use fs_err as fs;

use super::NEEDS;
use crate::harness::command::DEADLINE;
use crate::harness::{Case, CaseResult, Environment, Running, case, wait_until};

/// How long a session that is to end at once may take on a busy machine.
const PROMPTLY: Duration = Duration::from_secs(10);

/// Runs to a file and as many to a pipe. Five hundred take most of a minute on two processors, and what can
/// hang (a race at a session's end) shows in a hundred as well when four race each other.
const RUNS: usize = 50;

pub fn cases() -> Vec<Case> {
    vec![
        case("output_and_error_are_apart_and_binary_clean", NEEDS, apart_and_binary_clean),
        case("every_kind_of_input", NEEDS, every_kind_of_input),
        case("every_kind_of_output", NEEDS, every_kind_of_output),
        case("case_c12_hashes_are_the_same_inside_and_outside", NEEDS, hashes),
        case("case_c12_a_reader_that_leaves_ends_the_session", NEEDS, a_reader_that_leaves),
        case("case_c12_many_runs", NEEDS, many_runs),
    ]
}

fn apart_and_binary_clean() -> CaseResult {
    let environment = Environment::lingering()?;
    let input: Vec<u8> = (0..5_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    ensure!((0..=255).all(|byte| input.contains(&byte)), "every byte value occurs");
    let program =
        "import sys\nd = sys.stdin.buffer.read()\nsys.stdout.buffer.write(d)\nsys.stderr.buffer.write(d[::-1])";
    let output = environment.lazaret(["run", "--", "python3", "-c", program]).input(input.clone()).run()?;
    ensure!(output.code() == 0, "{}", output.code());
    let mut reversed = input.clone();
    reversed.reverse();
    ensure!(output.stdout == input, "standard output differs: {} bytes", output.stdout.len());
    ensure!(output.stderr == reversed, "standard error differs: {} bytes", output.stderr.len());
    // Nothing of this is a terminal, whatever the client has.
    let kinds = environment.in_sandbox("for n in 0 1 2; do test -t $n && echo $n is a terminal; done; true");
    let kinds = kinds.run()?.ok()?;
    ensure!(kinds.stdout.is_empty(), "{kinds}");
    Ok(())
}

fn every_kind_of_input() -> CaseResult {
    let environment = Environment::lingering()?;
    fs::write(environment.project().join("lines"), "first\nsecond\nthird\n")?;
    for (script, expected) in [
        ("printf piped | lazaret run -- cat", "piped"),
        ("lazaret run -- cat < lines", "first\nsecond\nthird\n"),
        // What was read before the session stays read.
        ("{ read -r line; lazaret run -- cat; } < lines", "second\nthird\n"),
        ("lazaret run -- cat < /dev/null", ""),
        ("lazaret run -- cat <&-", ""),
        ("lazaret run -- cat < /", ""),
        ("printf 'a\\nb\\n' | lazaret run -- sh -c 'read -r line; echo got $line'", "got a\n"),
    ] {
        let output = environment.host_script(script).run()?.ok().context(script)?;
        ensure!(output.stdout() == expected && output.stderr.is_empty(), "{output}");
    }
    // Input that never ends does not keep a session whose command has ended.
    let mut endless = environment.in_sandbox("exit 5").spawn()?;
    wait_until("the client ends", PROMPTLY, || !endless.is_running().unwrap_or(true))?;
    endless.wait(PROMPTLY)?.expect_code(5)?;
    // The same with somebody who writes all the time, more than anybody reads.
    environment.host_script("yes | lazaret run -- head -c 10 | wc -c").run()?.ok()?.expect_stdout("10")?;
    Ok(())
}

fn every_kind_of_output() -> CaseResult {
    let environment = Environment::lingering()?;
    for (script, expected) in [
        ("{ echo a; lazaret run -- sh -c 'echo b; echo c'; echo d; } > out", "a\nb\nc\nd\n"),
        ("echo a > out; lazaret run -- echo b >> out", "a\nb\n"),
        ("lazaret run -- sh -c 'echo b; echo c >&2' > out 2> err; cat err >> out", "b\nc\n"),
        // Both into one file, in order, as each waits for the one before.
        (
            "lazaret run -- sh -c 'echo b' > out 2>&1; lazaret run -- ./nope >> out 2>&1; true",
            "b\nlazaret: ./nope: no such file or directory\n",
        ),
        ("lazaret run -- echo gone > /dev/null; echo $? > out", "0\n"),
        ("lazaret run -- echo closed >&-; echo $? > out", "0\n"),
    ] {
        let output = environment.host_script(script).run()?.ok().context(script)?;
        ensure!(output.stdout.is_empty() && output.stderr.is_empty(), "{output}");
        let written = fs::read_to_string(environment.project().join("out"))?;
        ensure!(written == expected, "{script}\n{written}");
    }
    let full = environment.host_script("lazaret run -- echo full > /dev/full").run()?.expect_code(125)?;
    full.expect_stderr("the output can't be written")?;
    Ok(())
}

fn hashes() -> CaseResult {
    let environment = Environment::lingering()?;
    let inside = environment.in_sandbox("seq 1 5000000 | sha256sum").run()?.ok()?;
    let outside = environment.host_script("set -o pipefail; lazaret run -- seq 1 5000000 | sha256sum").run()?.ok()?;
    let host = environment.host_script("seq 1 5000000 | sha256sum").run()?.ok()?;
    ensure!(inside.stdout == host.stdout, "inside: {inside}\nhost: {host}");
    ensure!(outside.stdout == host.stdout, "outside: {outside}\nhost: {host}");
    Ok(())
}

fn a_reader_that_leaves() -> CaseResult {
    let environment = Environment::lingering()?;
    for command in ["seq 1 5000000", "yes 1"] {
        let script = format!("lazaret run -- {command} | head -1; echo ${{PIPESTATUS[0]}}");
        let output = environment.host_script(&script).deadline(PROMPTLY).run()?.ok()?;
        ensure!(output.stdout() == "1\n141\n" && output.stderr.is_empty(), "{output}");
    }
    // Nobody reads and nobody writes either: the command of a session whose client is gone ends too.
    let script = "lazaret run -- sh -c 'echo 1; while :; do date +%N > beat; sleep 0.02; echo 2; done' | head -1";
    environment.host_script(script).deadline(PROMPTLY).run()?.ok()?;
    super::ends::expect_stopped(&environment, "beat")
}

fn many_runs() -> CaseResult {
    let environment = Environment::lingering()?;
    let to_file = environment.host_script("exec lazaret run -- sh -c 'echo to a file; exit 3' > \"out-$$\"");
    let to_pipe = environment.lazaret(["run", "--", "sh", "-c", "echo to a pipe; exit 4"]);
    for _ in 0..RUNS / 2 {
        let started: Result<Vec<Running>, _> =
            [&to_file, &to_pipe, &to_file, &to_pipe].into_iter().map(|invocation| invocation.spawn()).collect();
        for (number, running) in started?.into_iter().enumerate() {
            let file = environment.project().join(format!("out-{}", running.pid()));
            let output = running.wait(DEADLINE)?;
            if number % 2 == 0 {
                let output = output.expect_code(3)?;
                ensure!(fs::read(&file)? == b"to a file\n", "{output}");
                fs::remove_file(file)?;
            } else {
                let output = output.expect_code(4)?;
                ensure!(output.stdout == b"to a pipe\n", "{output}");
            }
        }
    }
    Ok(())
}
