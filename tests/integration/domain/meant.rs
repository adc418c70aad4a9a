//! Which sandbox a command means when none is named, and what is said when that can't be told.

use anyhow::ensure;
use fs_err as fs;

use crate::harness::sessions::status;
use crate::harness::{Case, CaseResult, Environment, Need, case};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("of_several_the_default_profile_is_meant", &[Need::Sandbox], of_several_the_default_profile_is_meant),
        case("what_does_not_exist_is_told_with_a_way_on", &[], what_does_not_exist_is_told_with_a_way_on),
    ]
}

fn of_several_the_default_profile_is_meant() -> CaseResult {
    let environment = Environment::lingering()?;
    environment.profile("other", "linger = \"10m\"")?;
    environment.lazaret(["run", "-p", "other", "--", "true"]).run()?.ok()?;
    ensure!(status(&environment, &[])?["profile"] == "test", "both run, and 'test' is the default profile");
    ensure!(status(&environment, &["-p", "other"])?["profile"] == "other");
    let file = environment.config().join("lazaret/config.toml");
    let configured = fs::read(&file)?;
    fs::write(&file, "")?;
    let domains = [environment.domain()?, environment.domain_of("other", &environment.project())?];
    for command in ["status", "logs", "attach", "down"] {
        let unclear = environment.lazaret([command]).run()?.expect_code(2)?;
        ensure!(unclear.stderr().contains(" has several sandboxes\n"), "{unclear}");
        for (domain, profile) in domains.iter().zip(["test", "other"]) {
            ensure!(unclear.stderr().contains(&format!("\n  {domain} (profile {profile})\n")), "{unclear}");
        }
    }
    fs::write(&file, configured)?;
    environment.lazaret(["down"]).run()?.ok()?;
    ensure!(status(&environment, &[])?["profile"] == "other", "only 'other' runs");
    ensure!(status(&environment, &["-p", "test"])?["state"] == "stopped", "down did not take the default one");
    environment.lazaret(["attach", "--", "true"]).run()?.ok()?;
    environment.lazaret(["down"]).run()?.ok()?;
    ensure!(status(&environment, &["-p", "other"])?["state"] == "stopped");
    Ok(())
}

fn what_does_not_exist_is_told_with_a_way_on() -> CaseResult {
    let environment = Environment::new()?;
    for (arguments, said) in [
        (
            &["attach", "bash"][..],
            "lazaret: error: there is neither a sandbox nor a directory bash\n\
             hint: list all: lazaret ls --all\n\
             hint: to run it as a command: lazaret attach -- bash\n",
        ),
        (
            &["attach", "-p", "test", "a b"],
            "lazaret: error: there is neither a sandbox nor a directory 'a b'\n\
             hint: list all: lazaret ls --all\n\
             hint: to run it as a command: lazaret attach -p test -- 'a b'\n",
        ),
        (
            &["status", "foo"],
            "lazaret: error: there is neither a sandbox nor a directory foo\nhint: list all: lazaret ls --all\n",
        ),
        (
            &["run", "--workspace", "/no/such", "--", "true"],
            "lazaret: error: the directory /no/such does not exist\nhint: name a directory that exists\n",
        ),
        (
            &["down", "-C", "README.md"],
            "lazaret: error: README.md is not a directory\nhint: name a directory that exists\n",
        ),
    ] {
        let output = environment.lazaret(arguments).run()?.expect_code(125)?;
        ensure!(output.stderr() == said, "{arguments:?}: {output}");
    }
    Ok(())
}
