//! Layers that try to leave their tree.

use std::path::Path;

use anyhow::{Result, ensure};
use fs_err as fs;

use super::NEEDS;
use super::fixture::{Image, Layer};
use super::prepared::{Prepared, artifacts, attempt, leftovers};
use crate::harness::environment::Data;
use crate::harness::{Case, CaseResult, Environment, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("dot_dot_names_stay_inside", NEEDS, dot_dot_names_stay_inside),
        case("writing_through_a_symlink_stays_inside", NEEDS, writing_through_a_symlink_stays_inside),
        case("hard_links_to_outside_stay_inside", NEEDS, hard_links_to_outside_stay_inside),
        case("whiteouts_remove_nothing_outside", NEEDS, whiteouts_remove_nothing_outside),
        case("a_layer_that_is_not_its_diff_id_is_refused", NEEDS, a_layer_that_is_not_its_diff_id_is_refused),
    ]
}

/// Prepares a hostile image. Refused or confined, what lies outside must be as it was.
fn attack(environment: &Environment, outside: &Path, layers: Vec<Layer>) -> Result<Option<Prepared>> {
    let secret = outside.join("secret");
    fs::write(&secret, "host")?;
    let before = inventory(outside)?;
    let storage_before = inventory(environment.directory())?;
    let (reference, _) = Image::new(layers).write_layout(&environment.directory().join("layout"))?;
    let output = attempt(environment, &reference, &[])?;
    ensure!(fs::read_to_string(&secret)? == "host", "the host's file was changed\n{output}");
    ensure!(inventory(outside)? == before, "something changed outside: {:?}\n{output}", inventory(outside)?);
    let news: Vec<_> =
        inventory(environment.directory())?.into_iter().filter(|name| !storage_before.contains(name)).collect();
    ensure!(news.iter().all(|name| name == "data" || name == "layout"), "new beside the storage: {news:?}");
    ensure!(leftovers(environment).is_empty(), "left over: {:?}", leftovers(environment));
    let prepared = if output.code() == 0 { Some(Prepared::read(environment, &output)?) } else { None };
    ensure!(prepared.is_some() || artifacts(environment).is_empty(), "a refused image became an artifact");
    Ok(prepared)
}

fn inventory(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn outside(environment: &Environment) -> Result<std::path::PathBuf> {
    let outside = environment.directory().join("outside");
    fs::create_dir(&outside)?;
    Ok(outside)
}

fn dot_dot_names_stay_inside() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let outside = outside(&environment)?;
    let ups = "../".repeat(20);
    let absolute = format!("{}/evil-absolute", outside.display());
    let layer = Layer::base()
        .file(&format!("{ups}{}/evil", outside.display().to_string().trim_start_matches('/')), b"evil", 0o644, 0)
        .file(&absolute, b"evil", 0o644, 0)
        .file("../evil-beside", b"evil", 0o644, 0)
        .file("etc/../../evil-middle", b"evil", 0o644, 0);
    if let Some(prepared) = attack(&environment, &outside, vec![layer])? {
        prepared.expect("cat evil-beside evil-middle", "evilevil")?;
        prepared.expect(&format!("cat .{absolute}"), "evil")?;
    }
    Ok(())
}

fn writing_through_a_symlink_stays_inside() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let outside = outside(&environment)?;
    let target = outside.display().to_string();
    let climbing = format!("{}{}", "../".repeat(20), target.trim_start_matches('/'));
    let layers = vec![
        Layer::base().symlink("absolute", &target).symlink("climbing", &climbing),
        Layer::new()
            .file("absolute/evil", b"evil", 0o644, 0)
            .file("climbing/evil2", b"evil", 0o644, 0)
            .file("absolute/secret", b"evil", 0o644, 0)
            .symlink("chain", "absolute")
            .file("chain/evil3", b"evil", 0o644, 0),
    ];
    if let Some(prepared) = attack(&environment, &outside, layers)? {
        prepared.expect(&format!("cat .{target}/evil .{target}/secret"), "evilevil")?;
    }
    Ok(())
}

fn hard_links_to_outside_stay_inside() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let outside = outside(&environment)?;
    let secret = format!("{}/secret", outside.display());
    let climbing = format!("{}{}", "../".repeat(20), secret.trim_start_matches('/'));
    for (link, target) in [("hard", secret.clone()), ("hard", climbing)] {
        let layers = vec![Layer::base().hard_link(link, &target), Layer::new().file(link, b"evil", 0o666, 0)];
        attack(&environment, &outside, layers)?;
    }
    // Through a symlink to the host's file.
    let layers = vec![
        Layer::base().symlink("to-secret", &secret),
        Layer::new().hard_link("hard", "to-secret"),
        Layer::new().file("hard/x", b"evil", 0o666, 0),
    ];
    attack(&environment, &outside, layers)?;
    Ok(())
}

fn whiteouts_remove_nothing_outside() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let outside = outside(&environment)?;
    let layers = vec![
        Layer::base().symlink("link", &outside.display().to_string()),
        Layer::new().file("link/.wh.secret", b"", 0o644, 0).file(".wh...", b"", 0o644, 0).file(
            "link/.wh..wh..opq",
            b"",
            0o644,
            0,
        ),
    ];
    attack(&environment, &outside, layers)?;
    Ok(())
}

fn a_layer_that_is_not_its_diff_id_is_refused() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let layout = environment.directory().join("layout");
    let honest = Image::new([Layer::base()]);
    let swapped = Image::new([Layer::base().file("evil", b"evil", 0o644, 0)]).with_layers_of(honest);
    let (reference, _) = swapped.write_layout(&layout)?;
    super::prepared::refused(&environment, &reference, &[], "but the image's configuration says sha256:")?;
    Ok(())
}
