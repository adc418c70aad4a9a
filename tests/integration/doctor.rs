//! `lazaret doctor`, and what `lazaret run` says on a machine that lacks something.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::harness::needs::find_program;
use crate::harness::root::{self, Deprived, DeprivedOutput, Lack, Who};
use crate::harness::world::world;
use crate::harness::{Case, CaseResult, Environment, Need, case};

pub fn cases() -> Vec<Case> {
    let needs = &[Need::Root, Need::Sandbox];
    vec![
        case("a_ready_machine_is_ready", &[Need::Sandbox], a_ready_machine_is_ready),
        case("json_has_every_check", &[Need::Sandbox], json_has_every_check),
        case("case_c15_no_newuidmap", needs, no_newuidmap),
        case("case_c15_newuidmap_without_privilege", needs, newuidmap_without_privilege),
        case("case_c15_no_subordinate_ids", needs, no_subordinate_ids),
        case("case_c15_no_user_namespaces", needs, no_user_namespaces),
        case("case_c15_no_runsc", needs, no_runsc),
        case("case_c15_runsc_too_old", needs, runsc_too_old),
        case("case_c15_no_slirp4netns", needs, no_slirp4netns),
        case("case_c15_no_umoci", needs, no_umoci),
        case("case_c15_tun_refuses", needs, tun_refuses),
        case("case_c15_no_tun", needs, no_tun),
        case("case_c15_fuse_is_only_a_warning", needs, fuse_is_only_a_warning),
        case("several_lacks_are_all_listed", needs, several_lacks_are_all_listed),
    ]
}

fn a_ready_machine_is_ready() -> CaseResult {
    let environment = Environment::new()?;
    let output = environment.lazaret(["doctor"]).run()?.ok()?;
    output.expect_stdout("Everything that is needed is there")?;
    environment.expect_nothing_left(Duration::from_secs(2))
}

fn json_has_every_check() -> CaseResult {
    let environment = Environment::new()?;
    let output = environment.lazaret(["doctor", "--json"]).run()?.ok()?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    ensure!(report["ready"] == true, "{report}");
    let names: Vec<_> = report["checks"].as_array().context("checks")?.iter().map(|check| &check["name"]).collect();
    for name in ["user-namespaces", "subordinate-ids", "runsc", "slirp4netns", "lazaret-guest", "/dev/net/tun"] {
        ensure!(names.iter().any(|found| *found == name), "{name} is not checked: {names:?}");
    }
    Ok(())
}

/// Runs `lazaret` on a machine with these lacks.
fn lazaret(environment: &Environment, lacks: &[Lack], arguments: &[&str]) -> Result<DeprivedOutput> {
    let program = world().lazaret().display().to_string();
    let command = [&[program.as_str()], arguments].concat().into_iter().map(str::to_owned).collect();
    let (environment, directory) = (environment.variables().into_iter().collect(), environment.project());
    root::run(Deprived { who: Who::TestUser, lacks: lacks.to_vec(), command, environment, directory })
}

/// Demands that `doctor` and `run` both name the cause and the remedy, fail with Lazaret's own
/// status, and leave nothing half-started.
fn expect_missing(lack: Lack, cause: &str, remedy: &str) -> CaseResult {
    let environment = Environment::new()?;
    let lacks = [lack];
    let doctor = lazaret(&environment, &lacks, &["doctor"])?;
    ensure!(doctor.code == 125, "doctor: {doctor:?}");
    for text in [cause, remedy] {
        ensure!(doctor.stdout.contains(text), "doctor does not say '{text}':\n{}", doctor.stdout);
    }
    let run = lazaret(&environment, &lacks, &["run", "--", "true"])?;
    ensure!(run.code == 125 && run.stdout.is_empty(), "run: {run:?}");
    for text in [cause, remedy] {
        ensure!(run.stderr.contains(text), "run does not say '{text}':\n{}", run.stderr);
    }
    let storage = environment.domain_root()?;
    ensure!(!storage.path().exists(), "run made {} before it noticed", storage.path().display());
    environment.expect_nothing_left(Duration::from_secs(2))
}

fn missing_program(name: &str, cause: &str, remedy: &str) -> CaseResult {
    expect_missing(Lack::Missing(find_program(name).context("it is installed")?), cause, remedy)
}

fn replaced_program(name: &str, script: &str, cause: &str, remedy: &str) -> CaseResult {
    let path = find_program(name).context("it is installed")?;
    expect_missing(Lack::Replaced(path, format!("#!/bin/sh\n{script}\n"), 0o755), cause, remedy)
}

fn no_newuidmap() -> CaseResult {
    missing_program("newuidmap", "newuidmap is not installed", "sudo apt-get install uidmap")
}

fn newuidmap_without_privilege() -> CaseResult {
    replaced_program("newuidmap", "exit 1", "neither the set-user-ID bit", "chmod u+s")
}

fn no_subordinate_ids() -> CaseResult {
    let lack = Lack::Replaced("/etc/subuid".into(), "root:100000:65536\n".into(), 0o644);
    expect_missing(lack, "has 0 subordinate user ids", "sudo usermod --add-subuids 165536-231071 lazaret-test")
}

fn no_user_namespaces() -> CaseResult {
    let lack = Lack::Replaced("/proc/sys/user/max_user_namespaces".into(), "0\n".into(), 0o644);
    expect_missing(lack, "no user namespaces may be created", "user.max_user_namespaces = ")
}

fn no_runsc() -> CaseResult {
    missing_program("runsc", "is not installed", "install -t bookworm-backports runsc")
}

fn runsc_too_old() -> CaseResult {
    replaced_program("runsc", "echo runsc version release-20221107.0", "is too old", "bookworm-backports runsc")
}

fn no_slirp4netns() -> CaseResult {
    missing_program("slirp4netns", "slirp4netns is not installed", "sudo apt-get install slirp4netns")
}

fn no_umoci() -> CaseResult {
    missing_program("umoci", "umoci is not installed", "sudo apt-get install umoci")
}

fn tun_refuses() -> CaseResult {
    let lack = Lack::Replaced("/dev/net/tun".into(), String::new(), 0);
    expect_missing(lack, "/dev/net/tun cannot be opened", "sudo chmod 0666 /dev/net/tun")
}

fn no_tun() -> CaseResult {
    expect_missing(Lack::Missing("/dev/net/tun".into()), "/dev/net/tun does not exist", "sudo modprobe tun")
}

fn fuse_is_only_a_warning() -> CaseResult {
    let environment = Environment::with_prepared_image()?;
    let lacks = [Lack::Replaced("/dev/fuse".into(), String::new(), 0)];
    let doctor = lazaret(&environment, &lacks, &["doctor"])?;
    ensure!(doctor.code == 0 && doctor.stdout.contains("sudo chmod 0666 /dev/fuse"), "{doctor:?}");
    let run = lazaret(&environment, &lacks, &["run", "--", "echo", "it runs"])?;
    ensure!(run.code == 0 && run.stdout == "it runs\n", "{run:?}");
    Ok(())
}

fn several_lacks_are_all_listed() -> CaseResult {
    let environment = Environment::new()?;
    let lacks = [
        Lack::Replaced(find_program("slirp4netns").context("it is installed")?, "#!/bin/sh\n".into(), 0o644),
        Lack::Replaced("/etc/subgid".into(), String::new(), 0o644),
        Lack::Replaced("/dev/net/tun".into(), String::new(), 0),
    ];
    let doctor = lazaret(&environment, &lacks, &["doctor"])?;
    ensure!(doctor.code == 125, "{doctor:?}");
    for text in ["slirp4netns is not installed", "subordinate group ids", "/dev/net/tun cannot be opened", "Missing: 3"]
    {
        ensure!(doctor.stdout.contains(text), "doctor does not say '{text}':\n{}", doctor.stdout);
    }
    Ok(())
}
