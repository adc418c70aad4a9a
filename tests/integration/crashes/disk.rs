//! A disk that is full at any moment.

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use crate::harness::aftermath::PATIENCE;
use crate::harness::{Case, CaseResult, Data, Environment, Need, case};

pub(super) fn cases() -> Vec<Case> {
    vec![case("case_c17_a_full_disk", &[Need::Sandbox, Need::Root], case_c17_a_full_disk)]
}

/// Room for the test image and a Domain.
const DISK: u64 = 1 << 30;

/// What the kernel calls it.
const FULL: &str = "No space left on device";

/// Takes what is free, and gives it back when dropped.
struct Ballast<'a>(&'a Environment);

impl<'a> Ballast<'a> {
    fn fill(environment: &'a Environment) -> Result<Self> {
        let file = environment.data().join("ballast");
        let filled = environment.host_script(&format!("head -c {DISK} /dev/zero > {}", file.display())).run()?;
        ensure!(filled.stderr().contains(FULL), "the disk is not full: {filled:?}");
        Ok(Self(environment))
    }
}

impl Drop for Ballast<'_> {
    fn drop(&mut self) {
        drop(fs::remove_file(self.0.data().join("ballast")));
    }
}

/// Checks that a command worked nevertheless, or failed and said why.
fn works_or_says_why(environment: &Environment, moment: &str) -> Result<()> {
    let ended = environment.in_sandbox("true").deadline(PATIENCE).run()?;
    let said = ended.code() == 125 && ended.stderr().contains(FULL);
    ensure!(ended.code() == 0 || said, "{moment}: {ended:?}");
    Ok(())
}

fn case_c17_a_full_disk() -> CaseResult {
    let environment = Environment::with(Data::Limited(DISK))?;
    environment.profile("test", "persistent = [\"/srv/kept\"]\nlinger = \"10m\"\n")?;
    let keep = "echo state > /srv/kept/state; echo work > work";
    environment.in_sandbox(keep).deadline(PATIENCE).run()?.ok()?;
    // While the Domain is up, when its coordinator dies, and when it is to come up again.
    let ballast = Ballast::fill(&environment)?;
    works_or_says_why(&environment, "a session more")?;
    let coordinator =
        environment.processes().into_iter().find(|process| process.command.starts_with("lazaret: coordinator"));
    if let Some(coordinator) = coordinator {
        coordinator.kill();
    }
    works_or_says_why(&environment, "a recovery")?;
    works_or_says_why(&environment, "a start")?;
    drop(environment.lazaret(["down", "--yes"]).deadline(PATIENCE).run()?);
    works_or_says_why(&environment, "a start after a teardown")?;
    drop(ballast);
    let kept = environment.in_sandbox("cat /srv/kept/state work").deadline(PATIENCE).run()?;
    kept.expect_stdout("state\nwork\n").context("with room again")?;
    environment.lazaret(["down", "--yes"]).deadline(PATIENCE).run()?.ok()?;
    environment.expect_nothing_left(std::time::Duration::from_secs(5))
}
