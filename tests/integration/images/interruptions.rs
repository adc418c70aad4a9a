//! Preparations that die, and several at once.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::Signal;

use super::NEEDS;
use super::fixture::{Image, Layer};
use super::prepared::{Prepared, artifacts, leftovers, partials, prepare};
use super::proxy::Proxy;
use crate::harness::environment::Data;
use crate::harness::registry::Registry;
use crate::harness::{Case, CaseResult, Environment, Running, case, eventually, wait_until};

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "a_killed_preparation_is_never_used_and_never_blocks",
            NEEDS,
            a_killed_preparation_is_never_used_and_never_blocks,
        ),
        case("a_killed_download_continues", super::REGISTRY, a_killed_download_continues),
        case("what_lazaret_did_not_make_stays", NEEDS, what_lazaret_did_not_make_stays),
        case("two_at_once_give_one_artifact", NEEDS, two_at_once_give_one_artifact),
        case("a_damaged_stored_blob_is_fetched_again", NEEDS, a_damaged_stored_blob_is_fetched_again),
    ]
}

const DEADLINE: Duration = Duration::from_secs(60);

/// An image whose unpacking takes long enough to be interrupted.
fn slow_image(environment: &Environment) -> Result<String> {
    let layer = (0..4000).fold(Layer::base(), |layer, number| {
        layer.file(&format!("etc/f{number}"), &[b'x'; 3000], 0o600, number % 60_000)
    });
    let layers = [layer, Layer::new().file("last", b"last", 0o644, 0)];
    Ok(Image::new(layers).write_layout(&environment.directory().join("layout"))?.0)
}

fn start(environment: &Environment, reference: &str) -> Result<Running> {
    environment.lazaret(["image", "prepare", "--json", "--user", "dev", reference]).spawn()
}

/// Waits until an unpacking has begun, and gives its directory.
fn unpacking(environment: &Environment) -> Result<PathBuf> {
    let begun = |directory: &PathBuf| directory.join("rootfs/etc").exists();
    eventually("an unpacking begins", DEADLINE, || leftovers(environment).into_iter().find(begun))
}

fn a_killed_preparation_is_never_used_and_never_blocks() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let reference = slow_image(&environment)?;
    for _ in 0..2 {
        let running = start(&environment, &reference)?;
        let directory = unpacking(&environment)?;
        running.signal(Signal::SIGKILL)?;
        drop(running);
        ensure!(directory.exists(), "too late: it was complete before it was killed");
        ensure!(artifacts(&environment).is_empty(), "an interrupted preparation became an artifact");
        wait_until("nothing of it runs", Duration::from_secs(5), || environment.processes().is_empty())?;
    }
    let prepared = prepare(&environment, &reference, &["--user", "dev"])?;
    prepared.expect("ls etc | wc -l; cat last", "4002\nlast")?;
    Ok(())
}

fn a_killed_download_continues() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let registry = Registry::start(&environment)?;
    let image = Image::new([Layer::base().noise("noise", 8 << 20, 13)]);
    let (layout, _) = image.write_layout(&environment.directory().join("layout"))?;
    registry.push(&environment, &layout, "image:v1")?;
    let proxy = Proxy::start(&registry.address())?;
    let reference = format!("{}/image:v1", proxy.address());
    proxy.allow(3 << 20);
    let running = start(&environment, &reference)?;
    let large = || partials(&environment).iter().any(|(_, size)| *size > 2 << 20);
    wait_until("a part is there", DEADLINE, large)?;
    running.signal(Signal::SIGKILL)?;
    drop(running);
    proxy.allow(u64::MAX);
    proxy.take_passed();
    prepare(&environment, &reference, &[])?;
    let passed = proxy.take_passed();
    ensure!(passed < image.layer_size(0) - (2 << 20) + (64 << 10), "{passed} bytes were fetched again");
    Ok(())
}

fn what_lazaret_did_not_make_stays() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let reference = slow_image(&environment)?;
    let running = start(&environment, &reference)?;
    let directory = unpacking(&environment)?;
    running.signal(Signal::SIGKILL)?;
    drop(running);
    wait_until("nothing of it runs", Duration::from_secs(5), || environment.processes().is_empty())?;
    // In its place lies now a directory of the same name that is another one.
    let moved = environment.directory().join("moved");
    fs::rename(&directory, &moved)?;
    fs::create_dir(&directory)?;
    fs::write(directory.join("precious"), "")?;
    let foreign = environment.storage().prepared().join(".preparing-00000000000000000000000000000000");
    fs::create_dir(&foreign)?;
    fs::write(foreign.join("precious"), "")?;
    let output = start(&environment, &reference)?.wait(DEADLINE)?.ok()?;
    ensure!(directory.join("precious").exists() && foreign.join("precious").exists(), "a foreign file is gone");
    fs::remove_dir_all(&directory)?;
    fs::remove_dir_all(&foreign)?;
    Prepared::read(&environment, &output)?.expect("cat last", "last")?;
    // With the impostor away the original is recognised where it was.
    fs::rename(&moved, &directory)?;
    let other = Image::simple().write_layout(&environment.directory().join("other"))?.0;
    prepare(&environment, &other, &[])?;
    Ok(())
}

fn two_at_once_give_one_artifact() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let reference = slow_image(&environment)?;
    let running: Vec<_> = (0..3).map(|_| start(&environment, &reference)).collect::<Result<_>>()?;
    let outputs: Vec<_> = running.into_iter().map(|running| running.wait(DEADLINE)?.ok()).collect::<Result<_>>()?;
    let prepared: Vec<_> = outputs.iter().map(|output| Prepared::read(&environment, output)).collect::<Result<_>>()?;
    let first = prepared.first().context("three were started")?;
    ensure!(prepared.iter().all(|other| other.manifest == first.manifest), "{prepared:?}");
    ensure!(artifacts(&environment).len() == 1, "{:?}", artifacts(&environment));
    first.expect("cat last", "last")?;
    Ok(())
}

fn a_damaged_stored_blob_is_fetched_again() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let image = Image::new([Layer::base().noise("noise", 100_000, 17)]);
    let (reference, _) = image.write_layout(&environment.directory().join("layout"))?;
    prepare(&environment, &reference, &[])?;
    let stored = environment.storage().blobs().join(image.layer_digest(0).hex());
    let mut bytes = fs::read(&stored)?;
    bytes[50_000] ^= 1;
    fs::write(&stored, bytes)?;
    // Another user needs another tree, hence the layer again.
    prepare(&environment, &reference, &["--user", "dev"])?.expect("stat -c %s noise", "100000")?;
    Ok(())
}
