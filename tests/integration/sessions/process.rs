//! What a session's process is given: the sandbox, environment, arguments, directory, user.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::NEEDS;
use crate::harness::command::DEADLINE;
use crate::harness::{Case, CaseResult, Environment, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("sessions_share_one_sandbox", NEEDS, sessions_share_one_sandbox),
        case("only_named_variables_pass", NEEDS, only_named_variables_pass),
        case("arguments_arrive_unchanged", NEEDS, arguments_arrive_unchanged),
        case("too_many_arguments_are_refused", NEEDS, too_many_arguments_are_refused),
        case("the_directory_is_that_of_the_client", NEEDS, the_directory_is_that_of_the_client),
        case("the_user_is_that_of_the_profile", NEEDS, the_user_is_that_of_the_profile),
    ]
}

fn sessions_share_one_sandbox() -> CaseResult {
    let environment = Environment::lingering()?;
    let script = "hostname; echo from the first > /tmp/first; until [ -e /tmp/second ]; do sleep 0.02; done; \
        cat /tmp/second";
    let first = environment.in_sandbox(script).spawn()?;
    let script = "hostname; until [ -s /tmp/first ]; do sleep 0.02; done; cat /tmp/first; \
        echo from the second > /tmp/second.new; mv /tmp/second.new /tmp/second";
    let second = environment.in_sandbox(script).run()?.ok()?;
    let first = first.wait(DEADLINE)?.ok()?;
    let lines = |output: &crate::harness::Output| output.stdout().lines().map(str::to_owned).collect::<Vec<_>>();
    let (first, second) = (lines(&first), lines(&second));
    ensure!(first.len() == 2 && first[0] == second[0] && !first[0].is_empty(), "{first:?} {second:?}");
    ensure!(first[1] == "from the second" && second[1] == "from the first", "{first:?} {second:?}");
    ensure!(first[0] != fs::read_to_string("/proc/sys/kernel/hostname")?.trim(), "the name is the host's");
    let generation = || -> Result<u64> {
        let status = environment.lazaret(["status", "--json"]).run()?.ok()?;
        let status: serde_json::Value = serde_json::from_slice(&status.stdout)?;
        status["generation"].as_u64().context("a running sandbox has a generation")
    };
    let before = generation()?;
    environment.in_sandbox("true").run()?.ok()?;
    ensure!(generation()? == before, "a session began another generation");
    Ok(())
}

fn only_named_variables_pass() -> CaseResult {
    let more = "[env]\npass = [\"PASSED\", \"ABSENT\"]\n[env.set]\nFIXED = \"a value = 'with' signs\"\nTZ = \"UTC\"\n";
    let environment = Environment::lingering_with(more)?;
    let output = environment
        .lazaret(["run", "--", "env", "-0"])
        .env("PASSED", "through\nlines")
        .env("SECRET", "never")
        .env("LC_TIME", "C")
        .env("TZ", "Mars/Olympus")
        .env("COLORTERM", "truecolor")
        .run()?
        .ok()?;
    let text = output.stdout();
    let variables: BTreeMap<&str, &str> = text.split_terminator('\0').filter_map(|line| line.split_once('=')).collect();
    for (name, value) in [
        ("PASSED", "through\nlines"),
        ("FIXED", "a value = 'with' signs"),
        ("TZ", "UTC"),
        ("TERM", "xterm-256color"),
        ("LANG", "C.UTF-8"),
        ("LC_TIME", "C"),
        ("COLORTERM", "truecolor"),
        ("HOME", "/home/dev"),
        ("USER", "dev"),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ] {
        ensure!(variables.get(name) == Some(&value), "{name} is {:?}\n{output}", variables.get(name));
    }
    let own = |name: &str| name.starts_with("LAZARET") || ["PWD", "SHELL", "LOGNAME", "container"].contains(&name);
    let known = ["PASSED", "FIXED", "TZ", "TERM", "LANG", "LC_TIME", "COLORTERM", "HOME", "USER", "PATH"];
    let odd: Vec<_> = variables.keys().filter(|name| !known.contains(*name) && !own(name)).collect();
    ensure!(odd.is_empty(), "these come from nowhere: {odd:?}");
    ensure!(!text.contains("never") && !variables.contains_key("LAZARET_TEST_CASE"), "{output}");
    Ok(())
}

fn arguments_arrive_unchanged() -> CaseResult {
    let environment = Environment::lingering()?;
    let all: Vec<u8> = (1..=255).collect();
    let arguments: Vec<&[u8]> = vec![
        b"",
        b"plain",
        b"two words",
        b"two\nlines\n",
        b"%41%",
        b"100%",
        b"\xff\xfe",
        b"-x",
        b"--",
        b"$HOME",
        b"\\",
        b"'\"",
        "ä€😀".as_bytes(),
        b"\x1b[31m",
        &all,
        b"",
    ];
    let given = arguments.iter().map(|bytes| OsString::from_vec(bytes.to_vec()));
    let script = ["run", "--", "sh", "-c", "printf '%s\\0' \"$@\"", "sh"].map(OsString::from);
    let output = environment.lazaret(script.into_iter().chain(given)).run()?.ok()?;
    let arrived: Vec<&[u8]> = output.stdout.strip_suffix(b"\0").context("a NUL ends it")?.split(|b| *b == 0).collect();
    ensure!(arrived == arguments, "{arrived:?}");
    Ok(())
}

fn too_many_arguments_are_refused() -> CaseResult {
    let environment = Environment::lingering()?;
    let count = |arguments: Vec<String>| {
        let base = ["run", "--", "sh", "-c", "echo $# ${#1}", "sh"].map(str::to_owned);
        environment.lazaret(base.into_iter().chain(arguments)).run()
    };
    ensure!(count(vec!["x".repeat(60_000)])?.ok()?.stdout() == "1 60000\n", "one of 60 kB");
    ensure!(count(vec!["ab".into(); 10_000])?.ok()?.stdout() == "10000 2\n", "many small ones");
    for arguments in [vec!["x".repeat(80_000)], vec!["abcdefgh".into(); 10_000]] {
        let refused = count(arguments)?.expect_code(125)?;
        refused.expect_stderr("lazaret: error: ")?.expect_stderr("more than the limit of 73728")?;
    }
    // And the sandbox serves on.
    environment.in_sandbox("true").run()?.ok()?;
    Ok(())
}

fn the_directory_is_that_of_the_client() -> CaseResult {
    let environment = Environment::lingering()?;
    let odd = environment.project().join("src").join(OsStr::from_bytes(b"deep er/\xffodd\n%41"));
    fs::create_dir_all(&odd)?;
    let pwd = || environment.lazaret(["run", "--", "pwd"]);
    ensure!(pwd().run()?.ok()?.stdout() == "/workspace\n", "the workspace");
    let below = pwd().directory(environment.project().join("src")).run()?.ok()?;
    ensure!(below.stdout() == "/workspace/src\n", "{below}");
    let below = pwd().directory(&odd).run()?.ok()?;
    ensure!(below.stdout == b"/workspace/src/deep er/\xffodd\n%41\n", "{below}");
    let other = environment.lazaret(["run", "-C", "src", "--", "pwd"]).run()?.ok()?;
    ensure!(other.stdout() == "/workspace/src\n", "{other}");
    // One that disappears between the client's look and the session's start is no crash.
    let hidden = environment.project().join(".git/hooks");
    fs::create_dir_all(hidden.join("below"))?;
    let refused = pwd().directory(hidden.join("below")).run()?.expect_code(125)?;
    refused.expect_stderr("cannot enter directory '/workspace/.git/hooks/below': no such file or directory")?;
    Ok(())
}

fn the_user_is_that_of_the_profile() -> CaseResult {
    let environment = Environment::lingering()?;
    let who = "id -u; id -g; id -G; id -un; echo $HOME; cat /proc/self/status | grep -c 'CapEff.*0000000000000000'; \
        touch made; stat -c %u:%g made";
    let output = environment.in_sandbox(who).run()?.ok()?;
    ensure!(output.stdout() == "1000\n1000\n1000\ndev\n/home/dev\n1\n1000:1000\n", "{output}");
    let made = environment.project().join("made");
    let developer = fs::metadata(environment.project())?;
    let owner = |path| -> Result<(u32, u32)> { fs::metadata(path).map(|m| (m.uid(), m.gid())).map_err(Into::into) };
    ensure!(owner(&made)? == (developer.uid(), developer.gid()), "the file is not the developer's");
    fs::remove_file(&made)?;
    let image = environment.image_reference();
    let common = "linger = \"10m\"\n[workspace]\nisolate_ignored = false\n";
    for (profile, user, expected) in [
        ("root", "root", "0\n0\n0\nroot\n/root\n0\n0:0\n"),
        ("grouped", "dev:users", "1000\n100\n100\ndev\n/home/dev\n1\n1000:100\n"),
    ] {
        environment.write_profile(profile, &format!("image = \"{image}\"\nuser = \"{user}\"\n{common}"))?;
        let output = environment.lazaret(["run", "-p", profile, "--", "sh", "-c", who]).run()?.ok()?;
        ensure!(output.stdout() == expected, "{output}");
        ensure!(owner(&made)? == (developer.uid(), developer.gid()), "{profile}: the file is not the developer's");
        fs::remove_file(&made)?;
    }
    Ok(())
}
