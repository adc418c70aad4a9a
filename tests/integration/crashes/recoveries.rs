//! The recovery of a generation whose coordinator was lost, itself interrupted.

use anyhow::{Result, ensure};

use super::generations::{Lasting, marking, settled};
use super::{Point, crash_at, record, walk};
use crate::harness::{Case, CaseResult, Environment, Need, case};

pub(super) fn cases() -> Vec<Case> {
    vec![case("recovery", &[Need::Sandbox, Need::Faults], recovery)]
}

/// Leaves a published generation without a coordinator.
fn lose(environment: &Environment) -> Result<()> {
    let published = Point { process: "coordinator".into(), at: "after Publish 1".into() };
    crash_at(environment, &marking(environment, "lost"), &published)?;
    Ok(())
}

fn recovery() -> CaseResult {
    let points = {
        let environment = settled()?;
        lose(&environment)?;
        let (ended, points) = record(&environment, &marking(&environment, "recorded"))?;
        ended.expect_stdout("marked\n")?;
        points
    };
    // What follows is a start like any other.
    let end = points.iter().position(|point| point.at == "before Prepare 1");
    ensure!(end.is_some_and(|end| end > 10), "no recovery: {points:?}");
    walk("recovery", &points[..end.unwrap_or_default()], settled, |environment, number, point| {
        lose(environment)?;
        let (lasting, mark) = (Lasting::of(environment)?, format!("mark-{number}"));
        let ended = crash_at(environment, &marking(environment, &mark), point)?.expect_code(125)?;
        lasting.check(environment, &ended, &mark)
    })
}
