//! The start, a session and the end of a generation.

use anyhow::{Context, Result, ensure};
use lazaret::core::generation::Decision;
use lazaret::store::{Catalog, DomainStore};

use super::{Point, crash_at, record, walk};
use crate::harness::aftermath::{Foreign, PATIENCE, expect_gone};
use crate::harness::{Case, CaseResult, Environment, Invocation, Need, Output, case, project};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("start_session_and_teardown", &[Need::Sandbox, Need::Faults], start_session_and_teardown),
        case("what_may_have_run_is_not_run_again", &[Need::Sandbox, Need::Faults], what_may_have_run_is_not_run_again),
    ]
}

/// What a State Anchor holds all the time.
const KEPT: &str = "kept from the beginning";

/// Makes an environment with something in a State Anchor, in the project, and in a path that Git ignores.
pub(super) fn settled() -> Result<Environment> {
    let environment = Environment::with_prepared_image()?;
    environment.profile("test", "persistent = [\"/srv/kept\"]\n")?;
    let settle = format!(
        "echo {KEPT} > /srv/kept/first; touch /srv/kept/marks; mkdir node_modules; echo ignored > node_modules/file"
    );
    environment.in_sandbox(&settle).deadline(PATIENCE).run()?.ok()?;
    environment.expect_nothing_left(super::GONE)?;
    Ok(environment)
}

/// Makes the command that is interrupted. Its session adds a mark in the State Anchor and says so.
pub(super) fn marking(environment: &Environment, mark: &str) -> Invocation {
    environment.in_sandbox(&format!("echo {mark} >> /srv/kept/marks && echo marked")).deadline(PATIENCE)
}

/// What lasts, as it is before a crash.
pub(super) struct Lasting {
    project: Vec<String>,
    foreign: Foreign,
}

impl Lasting {
    pub(super) fn of(environment: &Environment) -> Result<Self> {
        Ok(Self { project: project::inventory(&environment.project())?, foreign: Foreign::plant(environment)? })
    }

    /// Checks it after the crash and once more after the next command, which must work, end clean and leave nothing.
    ///
    /// The interrupted command ran at most once; if its client has seen it end, exactly once, and what it wrote is there.
    pub(super) fn check(self, environment: &Environment, interrupted: &Output, mark: &str) -> Result<()> {
        expect_gone(environment, super::GONE, "after the crash")?;
        self.expect_project(environment)?;
        let next = environment.in_sandbox("cat /srv/kept/first /srv/kept/marks").deadline(PATIENCE).run()?.ok()?;
        let kept = next.stdout();
        ensure!(kept.starts_with(&format!("{KEPT}\n")), "the State Anchor has changed: {next}");
        let runs = kept.lines().filter(|line| *line == mark).count();
        let saw = usize::from(interrupted.stdout() == "marked\n");
        ensure!((saw..=1).contains(&runs), "the command ran {runs} times, and its client saw {saw}: {interrupted}");
        self.expect_project(environment)?;
        self.foreign.collect()?;
        environment.expect_nothing_left(super::GONE)?;
        expect_clean(environment)
    }

    fn expect_project(&self, environment: &Environment) -> Result<()> {
        let project = project::inventory(&environment.project())?;
        ensure!(project == self.project, "the project has changed:\n{}", project.join("\n"));
        Ok(())
    }
}

/// Checks that neither store knows anything that is not over.
fn expect_clean(environment: &Environment) -> Result<()> {
    let domain = environment.domain()?;
    let store = DomainStore::open(&environment.domain_root()?.store(), &domain)?;
    let decision = store.document().map(|document| document.decision);
    ensure!(decision == Some(Decision::Clean), "the last generation is {decision:?}");
    let catalog = Catalog::open(&environment.storage())?;
    let leases: Vec<_> = catalog.state().leases.values().filter(|lease| lease.domain == domain).collect();
    ensure!(leases.is_empty(), "leases are left: {leases:?}");
    Ok(())
}

fn start_session_and_teardown() -> CaseResult {
    let points = {
        let environment = settled()?;
        let (ended, points) = record(&environment, &marking(&environment, "recorded"))?;
        ended.expect_stdout("marked\n")?.expect_code(0)?;
        points
    };
    // A write of each store, an effect of each root, and an actor that carries one out.
    for point in [
        "coordinator before Begin 1",
        "coordinator after AcquireLease 1",
        "coordinator before ReleaseLease 1",
        "coordinator after Publish 1",
        "supervisor before StartSandbox 1",
        "supervisor after Runsc 1",
    ] {
        ensure!(points.iter().any(|passed| passed.to_string() == point), "no run passes {point}");
    }
    walk("start, session and teardown", &points, settled, interrupted)
}

fn interrupted(environment: &Environment, number: usize, point: &Point) -> Result<()> {
    let lasting = Lasting::of(environment)?;
    let mark = format!("mark-{number}");
    let ended = crash_at(environment, &marking(environment, &mark), point)?;
    let saw = ended.stdout() == "marked\n";
    ensure!(matches!((ended.code(), saw), (0, true) | (125, _)), "the client ends otherwise: {ended}");
    ensure!(ended.code() == 0 || ended.stderr().contains("lazaret: error: "), "the client says nothing: {ended}");
    lasting.check(environment, &ended, &mark)
}

/// A client asks again when it was not told that its session is open, and never after it was.
fn what_may_have_run_is_not_run_again() -> CaseResult {
    let environment = settled()?;
    for (at, code) in [("before AdoptSession 1", 0), ("after AdoptSession 1", 0), ("before StopLinger 1", 125)] {
        let lasting = Lasting::of(&environment)?;
        let point = Point { process: "coordinator".into(), at: at.into() };
        let ended = crash_at(&environment, &marking(&environment, at), &point)?.expect_code(code).context(at)?;
        lasting.check(&environment, &ended, at)?;
    }
    Ok(())
}
