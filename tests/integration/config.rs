//! Configuration through the real command: mistakes shown where they are, grants explained, and nothing
//! configured by what a sandbox can write.

mod mistakes;
mod placement;

use std::os::unix::fs::PermissionsExt;

use anyhow::ensure;
use fs_err as fs;
use serde_json::Value;

use crate::harness::{Case, CaseResult, Environment, case};

pub fn cases() -> Vec<Case> {
    let own = vec![
        case("init_writes_a_valid_starter", &[], init_writes_a_valid_starter),
        case("check_looks_at_every_file", &[], check_looks_at_every_file),
        case("show_says_where_grants_come_from", &[], show_says_where_grants_come_from),
    ];
    own.into_iter().chain(mistakes::cases()).chain(placement::cases()).collect()
}

fn init_writes_a_valid_starter() -> CaseResult {
    let environment = Environment::new()?;
    let config = environment.config().join("lazaret");
    fs::remove_dir_all(&config)?;
    let run = |arguments: &[&str]| environment.lazaret(arguments).run();
    let unconfigured = run(&["run", "--", "true"])?.expect_code(125)?;
    ensure!(unconfigured.stderr().contains("there is no configuration in"), "{unconfigured}");
    ensure!(unconfigured.stderr().contains("hint: run 'lazaret init'"), "{unconfigured}");
    let init = run(&["init"])?.ok()?;
    for file in ["config.toml", "profiles/claude.toml", "profiles/codex.toml", "profiles/shell.toml"] {
        ensure!(config.join(file).exists() && init.stdout().contains(file), "{file} is not written: {init}");
    }
    // What comes next is said, the agent's installation included, as its image lacks it; and each step can be run.
    for step in [
        "lazaret doctor ",
        "lazaret image prepare node:22-bookworm ",
        "lazaret run -p claude -- npm install -g ",
        "lazaret up -p claude ",
    ] {
        ensure!(init.stdout().contains(&format!("\n  {step}")), "'{step}' is not a next step: {init}");
    }
    let reference = run(&["config", "reference"])?.ok()?.stdout();
    ensure!(reference == include_str!("../../docs/configuration.md"), "not the documentation: {reference}");
    let check = run(&["config", "check"])?.ok()?;
    ensure!(
        check.stdout().lines().count() == 4 && check.stdout().lines().all(|line| line.starts_with("valid ")),
        "{check}"
    );
    // What the developer changed stays, unless replacing it is asked for.
    fs::write(config.join("profiles/shell.toml"), "image = \"mine\"\n")?;
    run(&["init"])?.ok()?.expect_stdout("kept ")?;
    ensure!(fs::read_to_string(config.join("profiles/shell.toml"))? == "image = \"mine\"\n");
    run(&["init", "--force"])?.ok()?;
    ensure!(fs::read_to_string(config.join("profiles/shell.toml"))?.len() > 1000);
    let mode = fs::metadata(config.join("profiles"))?.permissions().mode() & 0o022;
    ensure!(mode == 0, "others may write the configuration");
    Ok(())
}

fn check_looks_at_every_file() -> CaseResult {
    let environment = Environment::new()?;
    environment.write_profile("broken", "imag = \"x\"\n")?;
    environment.write_profile("second", "image = 5\n")?;
    let check = environment.lazaret(["config", "check"]).run()?.expect_code(125)?;
    let verdicts: Vec<_> =
        check.stdout().lines().map(|line| line.split_whitespace().next().map(str::to_owned)).collect();
    ensure!(verdicts.iter().flatten().eq(["valid", "invalid", "invalid", "valid"]), "{check}");
    let json = environment.lazaret(["config", "check", "--json"]).run()?.expect_code(125)?;
    let records: Vec<Value> = serde_json::from_slice(&json.stdout)?;
    let broken =
        records.iter().find(|record| record["file"].as_str().is_some_and(|file| file.ends_with("broken.toml")));
    let broken = broken.ok_or_else(|| anyhow::anyhow!("broken.toml is not reported: {json}"))?;
    let problem = &broken["problems"][0];
    ensure!(broken["valid"] == false && problem["line"] == 1 && problem["column"] == 1, "{broken}");
    ensure!(problem["message"] == "unknown key 'imag'" && problem["help"] == "did you mean 'image'?", "{problem}");
    let test = records.iter().find(|record| record["profile"] == "test");
    ensure!(
        test.is_some_and(|test| test["valid"] == true && test["fingerprint"].as_str().is_some_and(|f| f.len() == 64))
    );
    // A profile that is broken stands in nobody else's way.
    environment.lazaret(["config", "show", "test"]).run()?.ok()?;
    Ok(())
}

fn show_says_where_grants_come_from() -> CaseResult {
    let environment = Environment::new()?;
    environment.write_profile(
        "test",
        "image = \"debian:bookworm\"\npersistent = [\"/srv\"]\n[network]\nallow = [\"10.1.2.0/24\"]\n[env.set]\nTOKEN = \"secret\"\n",
    )?;
    let common = environment.config().join("lazaret/config.toml");
    fs::write(&common, "default_profile = \"test\"\n[network]\ndeny = [\"169.254.0.0/16\"]\n")?;
    let shown = environment.lazaret(["config", "show"]).run()?.ok()?.stdout();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let profile = environment.config().join("lazaret/profiles/test.toml");
    for expected in [
        format!("image docker.io/library/debian:bookworm {}:1", profile.display()),
        format!("persistent /srv {}:2", profile.display()),
        format!("network.allow 10.1.2.0/24 {}:4", profile.display()),
        format!("network.deny 169.254.0.0/16 {}:3", common.display()),
        format!("10.1.2.0/24 permitted {}:4", profile.display()),
        "10.0.0.0/8 denied default".to_owned(),
        format!("169.254.0.0/16 denied {}:3", common.display()),
        "any other IPv6 off default".to_owned(),
    ] {
        ensure!(shown.lines().any(|line| words(line) == words(&expected)), "lacks '{expected}':\n{shown}");
    }
    let json = environment.lazaret(["config", "show", "test", "--json"]).run()?.ok()?.stdout();
    ensure!(!shown.contains("secret") && !json.contains("secret"), "a fixed value is shown, which may be a secret");
    let json: Value = serde_json::from_str(&json)?;
    ensure!(json["profile"] == "test" && json["grants"].as_array().is_some_and(|grants| grants.len() > 10), "{json}");
    Ok(())
}
