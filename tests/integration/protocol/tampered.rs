//! Traces of real runs in which something was changed.

use anyhow::{Result, ensure};

use super::runs::{lose, prepared, session, traced};
use crate::harness::CaseResult;
use crate::harness::replay::{Trace, replay};

/// Actions of a run whose first event may as well be missing, as that is what another run does.
const DISPENSABLE: &[&str] = &[
    // A session's processes are recorded if it lives that long.
    "StartSession",
    // The Runtime Supervisor removes directories as well and does not tell.
    "RemoveDirectory",
    // The last: its coordinator may have been killed.
    "Exit",
];

/// Pairs of actions of which the second is never before the first.
const ORDERED: &[(&str, &str)] = &[
    ("Elect", "Recovered"),
    ("BeginGeneration", "Intend"),
    ("MakeDirectory", "Own"),
    ("AcquireLease", "OrderBuild"),
    ("SpawnSupervisor", "OrderBuild"),
    ("AttestNetwork", "AcceptProbe"),
    ("AcceptProbe", "Attested"),
    ("BindSocket", "Publish"),
    ("Publish", "WritePublication"),
    ("PublicationOpen", "AdoptSession"),
    ("AdoptSession", "EndSession"),
    ("EndSession", "LingerElapsed"),
    ("LingerElapsed", "OrderTearDown"),
    ("OrderTearDown", "BeginRelease"),
    ("ConfirmUnmounted", "ReleaseLease"),
    ("ReleaseLease", "ConfirmCatalogDelete"),
    ("ConfirmCatalogDelete", "Finish"),
    ("Finish", "Exit"),
];

pub(super) fn traces_are_rejected() -> CaseResult {
    let environment = prepared()?;
    let whole = traced(&environment, "whole", session)?;
    let lost = traced(&environment, "lost", |environment| {
        lose(environment)?;
        session(environment)
    })?;
    let mut tampered = without(&whole);
    tampered.extend(swapped(&whole)?);
    tampered.extend(of_another(&whole)?);
    tampered.extend(unrecovered(&lost)?);
    let directory = environment.directory().join("traces");
    let verdicts = replay(&directory, &[vec![whole, lost], tampered].concat())?;
    for verdict in &verdicts[..2] {
        ensure!(verdict.rejected.is_none(), "{verdict:?}");
    }
    let accepted: Vec<_> = verdicts[2..].iter().filter(|verdict| verdict.rejected.is_none()).collect();
    ensure!(accepted.is_empty(), "of {} tampered traces are accepted: {accepted:#?}", verdicts.len() - 2);
    eprintln!("{} tampered traces are rejected", verdicts.len() - 2);
    Ok(())
}

/// Gives a trace's variants in which one line is dropped, the first of each action.
fn without(trace: &Trace) -> Vec<Trace> {
    let mut actions: Vec<String> = Vec::new();
    let mut variants = Vec::new();
    for (place, event) in trace.events.iter().enumerate() {
        let action = action(event);
        if DISPENSABLE.contains(&action.as_str()) || actions.contains(&action) {
            continue;
        }
        let mut events = trace.events.clone();
        events.remove(place);
        variants.push(Trace { name: format!("without-{action}"), events });
        actions.push(action);
    }
    variants
}

/// Gives a trace's variants in which two lines have changed places.
fn swapped(trace: &Trace) -> Result<Vec<Trace>> {
    let swap = |(first, second): &(&str, &str)| {
        let (one, other) = (trace.first(first)?, trace.first(second)?);
        ensure!(one < other, "{second} comes before {first}");
        let mut events = trace.events.clone();
        events.swap(one, other);
        Ok(Trace { name: format!("{second}-before-{first}"), events })
    };
    ORDERED.iter().map(swap).collect()
}

/// Gives a trace's variants in which something is done for another client or another generation.
fn of_another(trace: &Trace) -> Result<Vec<Trace>> {
    let mut variants = Vec::new();
    for (action, field) in [
        ("BeginGeneration", "generation"),
        ("AcquireLease", "generation"),
        ("AdoptSession", "generation"),
        ("AdoptSession", "client"),
        ("StartSession", "client"),
        ("EndSession", "client"),
    ] {
        let place = trace.first(action)?;
        let mut event: serde_json::Value = serde_json::from_str(&trace.events[place])?;
        event[field] = match event[field].as_u64() {
            Some(generation) => (generation + 1).into(),
            None => "another".into(),
        };
        let mut events = trace.events.clone();
        events[place] = event.to_string();
        variants.push(Trace { name: format!("{action}-of-another-{field}"), events });
    }
    Ok(variants)
}

/// Gives variants of a run with a recovery in which that leaves something out.
fn unrecovered(trace: &Trace) -> Result<Vec<Trace>> {
    let recovery = trace.first("BeginRecovery")?;
    let dropped = ["BeginRecovery", "RemoveFile", "Release", "RemoveDirectory", "ReleaseLease", "Finish"];
    let drop = |action: &&str| {
        let offset = trace.events[recovery..].iter().position(|event| self::action(event) == **action);
        let place = offset.map(|offset| recovery + offset);
        ensure!(place.is_some(), "no {action} in the recovery");
        let mut events = trace.events.clone();
        events.remove(place.unwrap_or_default());
        Ok(Trace { name: format!("recovery-without-{action}"), events })
    };
    dropped.iter().map(drop).collect()
}

fn action(event: &str) -> String {
    let event: serde_json::Value = serde_json::from_str(event).unwrap_or_default();
    event["action"].as_str().unwrap_or_default().to_owned()
}
