//! The preparation of an image, and the one that cleans up after it.

use anyhow::{Context, Result, ensure};
use lazaret::store::Catalog;

use super::{Point, crash_at, record, walk};
use crate::harness::aftermath::{Foreign, PATIENCE};
use crate::harness::{Case, CaseResult, Data, Environment, Invocation, case};
use crate::images::fixture::{Image, Layer};
use crate::images::prepared::{artifacts, leftovers, prepare};

pub(super) fn cases() -> Vec<Case> {
    let needs = &[crate::harness::Need::IdMaps, crate::harness::Need::Program("umoci"), crate::harness::Need::Faults];
    vec![case("preparation", needs, preparation), case("reclaiming_a_preparation", needs, reclaiming_a_preparation)]
}

fn empty() -> Result<Environment> {
    Environment::with(Data::Private)
}

/// Makes a small image of its own and the command that prepares it.
fn preparing(environment: &Environment, name: &str) -> Result<(String, Invocation)> {
    let image = Image::new([Layer::base().file("name", name.as_bytes(), 0o644, 1000)]);
    let layout = environment.directory().join(format!("layout-{name}"));
    let (reference, _) = image.write_layout(&layout)?;
    let command = environment.lazaret(["image", "prepare", "--json", "--user", "dev", &reference]).deadline(PATIENCE);
    Ok((reference, command))
}

/// Checks after a crash that a preparation of the image and one of another work, and that nothing but these is left.
fn expect_prepared(
    environment: &Environment,
    foreign: Foreign,
    reference: &str,
    name: &str,
    others: usize,
) -> Result<()> {
    let incomplete =
        artifacts(environment).into_iter().find(|path| path.is_dir() && !path.join("manifest.json").exists());
    ensure!(incomplete.is_none(), "an artifact without its record: {incomplete:?}");
    // What the crash left is in the way of nobody: neither of the same image nor of another.
    prepare(environment, reference, &["--user", "dev"])?.expect("cat name", name)?;
    foreign.collect()?;
    ensure!(leftovers(environment).is_empty(), "left over: {:?}", leftovers(environment));
    let catalog = Catalog::open(&environment.storage())?;
    let preparations: Vec<_> = catalog.state().preparations.values().collect();
    ensure!(preparations.is_empty(), "still being prepared: {preparations:?}");
    let counts = (catalog.state().artifacts.len(), artifacts(environment).len());
    ensure!(counts == (others + 1, others + 1), "artifacts in the catalog and on disk: {counts:?}");
    Ok(())
}

fn preparation() -> CaseResult {
    let points = {
        let environment = empty()?;
        let (_, command) = preparing(&environment, "recorded")?;
        let (ended, points) = record(&environment, &command)?;
        ended.ok()?;
        points
    };
    let passed = |at: &str| points.iter().any(|point| point.process == "client" && point.at == at);
    for step in ["BeginPreparation", "UnpackLayers", "SealPreparation", "RenameToArtifact", "CompletePreparation"] {
        ensure!(passed(&format!("before {step} 1")) && passed(&format!("after {step} 1")), "no {step}: {points:?}");
    }
    // Each with a Storage Root of its own: a first preparation makes more than later ones.
    walk(
        "preparation",
        &points,
        || Ok(()),
        |(), number, point| {
            let (environment, name) = (empty()?, format!("p{number}"));
            let foreign = Foreign::plant(&environment)?;
            let (reference, command) = preparing(&environment, &name)?;
            crash_at(&environment, &command, point)?.expect_code(86)?;
            expect_prepared(&environment, foreign, &reference, &name, 0)
        },
    )
}

/// Preparations that died with a filled directory, and right before their artifact was recorded.
fn reclaiming_a_preparation() -> CaseResult {
    for dead_at in ["after UnpackLayers 1", "after RenameToArtifact 1"] {
        let dead = || -> Result<(Environment, Foreign, String)> {
            let environment = empty()?;
            let foreign = Foreign::plant(&environment)?;
            let (reference, command) = preparing(&environment, "dead")?;
            let point = Point { process: "client".into(), at: dead_at.into() };
            crash_at(&environment, &command, &point)?.expect_code(86)?;
            Ok((environment, foreign, reference))
        };
        let points = {
            let (environment, _foreign, _) = dead()?;
            let (ended, points) = record(&environment, &preparing(&environment, "other")?.1)?;
            ended.ok()?;
            points
        };
        let end = points.iter().position(|point| point.at == "before RememberImage 1").context("no image")?;
        ensure!(end >= 2, "nothing was reclaimed: {points:?}");
        walk(
            &format!("reclaiming a preparation that died {dead_at}"),
            &points[..end],
            || Ok(()),
            |(), _, point| {
                let (environment, foreign, reference) = dead()?;
                let (other, command) = preparing(&environment, "other")?;
                crash_at(&environment, &command, point)?.expect_code(86)?;
                prepare(&environment, &other, &["--user", "dev"])?.expect("cat name", "other")?;
                expect_prepared(&environment, foreign, &reference, "dead", 1)
            },
        )?;
    }
    Ok(())
}
