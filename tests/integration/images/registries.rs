//! Images from a real registry on loopback.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use lazaret::oci::blobs::BlobDigest;

use super::REGISTRY;
use super::fixture::{Image, Layer, write_platforms};
use super::prepared::{artifacts, attempt, partials, prepare, refused};
use super::proxy::Proxy;
use crate::harness::environment::Data;
use crate::harness::registry::Registry;
use crate::harness::{Case, CaseResult, Environment, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("a_tag_is_prepared_and_listed", REGISTRY, a_tag_is_prepared_and_listed),
        case("a_digest_is_prepared", REGISTRY, a_digest_is_prepared),
        case("a_layer_with_the_wrong_digest_is_refused", REGISTRY, a_layer_with_the_wrong_digest_is_refused),
        case("a_manifest_with_the_wrong_digest_is_refused", REGISTRY, a_manifest_with_the_wrong_digest_is_refused),
        case("a_truncated_blob_is_refused", REGISTRY, a_truncated_blob_is_refused),
        case("what_is_not_there_is_said_so", REGISTRY, what_is_not_there_is_said_so),
        case("a_password_is_needed_and_found", REGISTRY, a_password_is_needed_and_found),
        case("a_download_continues_after_the_registry_died", REGISTRY, a_download_continues_after_the_registry_died),
        case("a_connection_that_breaks_is_made_again", REGISTRY, a_connection_that_breaks_is_made_again),
        case("the_platform_is_chosen", REGISTRY, the_platform_is_chosen),
        case("another_platform_is_refused", REGISTRY, another_platform_is_refused),
        case("what_was_had_once_needs_no_registry", REGISTRY, what_was_had_once_needs_no_registry),
        case("a_tag_that_moved_is_prepared_anew", REGISTRY, a_tag_that_moved_is_prepared_anew),
        case("layers_of_two_images_are_stored_once", REGISTRY, layers_of_two_images_are_stored_once),
    ]
}

/// A registry in surroundings of its own. It is dropped first, since nothing may be left of it when these are.
struct Fixture {
    registry: Registry,
    environment: Environment,
}

impl Fixture {
    fn new() -> Result<Self> {
        let environment = Environment::with(Data::Private)?;
        let registry = Registry::start(&environment)?;
        Ok(Self { registry, environment })
    }

    /// Pushes an image; gives its reference and its manifest's digest.
    fn push(&self, image: &Image, name: &str) -> Result<(String, String)> {
        let layout = self.environment.directory().join(format!("layout-{}", name.replace([':', '/'], "-")));
        let (source, digest) = image.write_layout(&layout)?;
        Ok((self.registry.push(&self.environment, &source, name)?, digest))
    }

    /// Gives where the registry keeps a blob.
    fn blob(&self, digest: &BlobDigest) -> PathBuf {
        let hex = digest.hex();
        self.registry.storage().join(format!("docker/registry/v2/blobs/sha256/{}/{hex}/data", &hex[..2]))
    }
}

fn a_tag_is_prepared_and_listed() -> CaseResult {
    let fixture = Fixture::new()?;
    let (reference, digest) = fixture.push(&Image::simple(), "some/image:v1")?;
    let prepared = prepare(&fixture.environment, &reference, &[])?;
    prepared.expect("cat hello", "hello")?;
    ensure!(prepared.manifest.manifest_digest == digest, "{:?}", prepared.manifest);
    ensure!(prepared.manifest.runtime.command == ["/bin/sh"], "{:?}", prepared.manifest.runtime);
    let size = prepared.look("du -sb . | cut -f1")?.parse::<u64>()?;
    ensure!(prepared.manifest.size == size && size > 0, "{} is not {size}", prepared.manifest.size);
    let list = fixture.environment.lazaret(["image", "list", "--json"]).run()?.ok()?;
    let listed: serde_json::Value = serde_json::from_slice(&list.stdout)?;
    ensure!(listed[0]["image"] == reference.as_str() && listed[0]["id"] == prepared.printed["id"], "{listed}");
    let table = fixture.environment.lazaret(["image", "list"]).run()?.ok()?;
    table.expect_stdout(&reference)?.expect_stdout("linux/")?;
    Ok(())
}

fn a_digest_is_prepared() -> CaseResult {
    let fixture = Fixture::new()?;
    let (reference, digest) = fixture.push(&Image::simple(), "image:v1")?;
    let pinned = format!("{}@{digest}", reference.trim_end_matches(":v1"));
    prepare(&fixture.environment, &pinned, &[])?.expect("cat hello", "hello")?;
    Ok(())
}

fn a_layer_with_the_wrong_digest_is_refused() -> CaseResult {
    let fixture = Fixture::new()?;
    let image = Image::new([Layer::base().noise("noise", 300_000, 7)]);
    let (reference, _) = fixture.push(&image, "image:v1")?;
    let stored = fixture.blob(&image.layer_digest(0));
    let good = fs::read(&stored)?;
    let mut bad = good.clone();
    bad[150_000] ^= 1;
    fs::write(&stored, bad)?;
    refused(&fixture.environment, &reference, &[], "wrong digest: expected sha256:")?;
    ensure!(artifacts(&fixture.environment).is_empty(), "an artifact was made");
    fs::write(&stored, good)?;
    prepare(&fixture.environment, &reference, &[])?;
    Ok(())
}

fn a_manifest_with_the_wrong_digest_is_refused() -> CaseResult {
    let fixture = Fixture::new()?;
    let (reference, digest) = fixture.push(&Image::simple(), "image:v1")?;
    let stored = fixture.blob(&digest.parse()?);
    let mut text = fs::read_to_string(&stored)?;
    text.push(' ');
    fs::write(&stored, text)?;
    let pinned = format!("{}@{digest}", reference.trim_end_matches(":v1"));
    let output = attempt(&fixture.environment, &pinned, &[])?.expect_code(125)?;
    // The registry may notice by itself; what counts is that nothing is made of it.
    let noticed = output.stderr().contains("wrong digest") || output.stderr().contains("status 500");
    ensure!(noticed || output.stderr().contains("404"), "{output}");
    ensure!(artifacts(&fixture.environment).is_empty(), "an artifact was made");
    Ok(())
}

fn a_truncated_blob_is_refused() -> CaseResult {
    let fixture = Fixture::new()?;
    let image = Image::new([Layer::base().noise("noise", 300_000, 11)]);
    let (reference, _) = fixture.push(&image, "image:v1")?;
    let stored = fixture.blob(&image.layer_digest(0));
    let good = fs::read(&stored)?;
    fs::write(&stored, &good[..100_000])?;
    for attempt in 0..2 {
        // Whether the registry promises the whole length or only what it has is its own affair. The
        // second time the range begins where its bytes end.
        let text = format!("100000 of {} bytes", good.len());
        refused(&fixture.environment, &reference, &[], &text).with_context(|| format!("attempt {attempt}"))?;
    }
    fs::write(&stored, good)?;
    prepare(&fixture.environment, &reference, &[])?;
    Ok(())
}

fn what_is_not_there_is_said_so() -> CaseResult {
    let mut fixture = Fixture::new()?;
    let (reference, _) = fixture.push(&Image::simple(), "image:v1")?;
    let address = fixture.registry.address();
    for name in ["image:v2", "other:v1", &format!("image@sha256:{}", "0".repeat(64))] {
        let text = format!("registry {address} has no image {address}/{name} (404)");
        refused(&fixture.environment, &format!("{address}/{name}"), &[], &text)?;
    }
    fs::remove_file(fixture.blob(&Image::simple().layer_digest(0)))?;
    refused(&fixture.environment, &reference, &[], "(404)")?;
    fixture.registry.kill();
    refused(&fixture.environment, &reference, &[], "can't be reached")?;
    Ok(())
}

fn a_password_is_needed_and_found() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let registry = Registry::start_with_password(&environment, "me", "secret")?;
    let (source, _) = Image::simple().write_layout(&environment.directory().join("layout"))?;
    let reference = registry.push(&environment, &source, "image:v1")?;
    let docker = environment.home().join(".docker/config.json");
    let output = refused(&environment, &reference, &[], "(401): no credentials")?;
    output.expect_stderr(&docker.display().to_string())?.expect_stderr("podman login")?;
    // "bWU6d3Jvbmc=" is me:wrong, "bWU6c2VjcmV0" me:secret.
    let file = |encoded: &str| format!(r#"{{"auths": {{"{}": {{"auth": "{encoded}"}}}}}}"#, registry.address());
    let podman = environment.runtime().join("containers/auth.json");
    fs::create_dir_all(environment.runtime().join("containers"))?;
    fs::write(&podman, file("bWU6d3Jvbmc="))?;
    let text = format!("the credentials in {} were refused", podman.display());
    refused(&environment, &reference, &[], &text)?;
    fs::write(&podman, file("bWU6c2VjcmV0"))?;
    let output = attempt(&environment, &reference, &[])?.ok()?;
    ensure!(!output.stderr().contains("secret"), "{output}");
    // The same from Docker's file, for another image that must be fetched.
    fs::remove_file(&podman)?;
    fs::create_dir_all(environment.home().join(".docker"))?;
    fs::write(&docker, file("bWU6c2VjcmV0"))?;
    let other = Image::new([Layer::base().noise("other", 1000, 5)]);
    let (source, _) = other.write_layout(&environment.directory().join("other"))?;
    let reference = registry.push(&environment, &source, "other:v1")?;
    prepare(&environment, &reference, &[])?;
    Ok(())
}

fn a_download_continues_after_the_registry_died() -> CaseResult {
    let mut fixture = Fixture::new()?;
    let image = Image::new([Layer::base().noise("noise", 8 << 20, 3)]);
    fixture.push(&image, "image:v1")?;
    let proxy = Proxy::start(&fixture.registry.address())?;
    let reference = format!("{}/image:v1", proxy.address());
    proxy.allow(3 << 20);
    let text = format!("the download of {} broke off after", image.layer_digest(0));
    refused(&fixture.environment, &reference, &[], &text)?;
    let kept = partials(&fixture.environment);
    let [(_, size)] = kept.as_slice() else { anyhow::bail!("one partial blob is expected: {kept:?}") };
    ensure!(*size > 2 << 20 && *size < 4 << 20, "{size} bytes are kept");
    proxy.take_passed();
    proxy.allow(u64::MAX);
    prepare(&fixture.environment, &reference, &[])?;
    let passed = proxy.take_passed();
    let rest = image.layer_size(0) - size;
    ensure!(passed < rest + (64 << 10), "{passed} bytes were fetched although only {rest} were missing");
    ensure!(partials(&fixture.environment).is_empty(), "a partial blob is left");
    fixture.registry.kill();
    Ok(())
}

fn a_connection_that_breaks_is_made_again() -> CaseResult {
    let fixture = Fixture::new()?;
    let image = Image::new([Layer::base().noise("noise", 8 << 20, 4)]);
    fixture.push(&image, "image:v1")?;
    let proxy = Proxy::start(&fixture.registry.address())?;
    proxy.allow(3 << 20);
    let reference = format!("{}/image:v1", proxy.address());
    let running = fixture.environment.lazaret(["image", "prepare", "--json", &reference]).spawn()?;
    let deadline = std::time::Duration::from_secs(60);
    crate::harness::wait_until("the connection is cut", deadline, || {
        proxy.cut() > 0 && partials(&fixture.environment).iter().any(|(_, size)| *size > 2 << 20)
    })?;
    proxy.allow(u64::MAX);
    running.wait(deadline)?.ok()?;
    Ok(())
}

fn the_platform_is_chosen() -> CaseResult {
    let fixture = Fixture::new()?;
    let image = |architecture: &str| {
        Image::new([Layer::base().file("arch", architecture.as_bytes(), 0o644, 0)]).architecture(architecture)
    };
    let images = ["amd64", "arm64", "s390x"].map(|architecture| (architecture, image(architecture)));
    let layout = fixture.environment.directory().join("platforms");
    let source = write_platforms(&layout, &images)?;
    let reference = format!("{}/image:v1", fixture.registry.address());
    let destination = format!("docker://{reference}");
    let copy = ["--insecure-policy", "copy", "--all", "--quiet", "--dest-tls-verify=false", &source, &destination];
    fixture.environment.invocation("skopeo").args(copy).run()?.ok()?;
    let host = lazaret::domain::artifact::Platform::host();
    prepare(&fixture.environment, &reference, &[])?.expect("cat arch", &host.architecture)?;
    for from in [reference.as_str(), source.as_str()] {
        let prepared = prepare(&fixture.environment, from, &["--platform", "linux/s390x"])?;
        prepared.expect("cat arch", "s390x")?;
        ensure!(prepared.printed["platform"] == "linux/s390x", "{}", prepared.printed);
    }
    let text = "no manifest for platform linux/riscv64; there is linux/amd64, linux/arm64, linux/s390x";
    refused(&fixture.environment, &reference, &["--platform", "linux/riscv64"], text)?;
    Ok(())
}

fn another_platform_is_refused() -> CaseResult {
    let fixture = Fixture::new()?;
    let (reference, _) = fixture.push(&Image::simple().architecture("s390x"), "image:v1")?;
    refused(&fixture.environment, &reference, &[], "; there is linux/s390x")?;
    Ok(())
}

fn what_was_had_once_needs_no_registry() -> CaseResult {
    let mut fixture = Fixture::new()?;
    let (reference, digest) = fixture.push(&Image::simple(), "image:v1")?;
    let first = prepare(&fixture.environment, &reference, &[])?;
    fixture.registry.kill();
    let again = prepare(&fixture.environment, &reference, &["--no-refresh"])?;
    ensure!(again.manifest == first.manifest, "it was prepared anew");
    // For another user it is unpacked anew, from the stored blobs.
    let other = prepare(&fixture.environment, &reference, &["--no-refresh", "--user", "dev"])?;
    ensure!(other.manifest.id != first.manifest.id && other.printed["user"] == "dev", "{}", other.printed);
    let root = prepare(&fixture.environment, &reference, &["--no-refresh", "--user", "0"])?;
    ensure!(root.manifest.id == first.manifest.id, "the same mapping is the same artifact");
    let pinned = format!("{}@{digest}", reference.trim_end_matches(":v1"));
    ensure!(prepare(&fixture.environment, &pinned, &[])?.manifest.id == first.manifest.id, "a digest never changes");
    Ok(())
}

fn a_tag_that_moved_is_prepared_anew() -> CaseResult {
    let fixture = Fixture::new()?;
    let (reference, _) = fixture.push(&Image::simple(), "image:v1")?;
    let first = prepare(&fixture.environment, &reference, &[])?;
    let newer = Image::new([Layer::base().file("hello", b"newer", 0o644, 0)]);
    let layout = fixture.environment.directory().join("newer");
    fixture.registry.push(&fixture.environment, &newer.write_layout(&layout)?.0, "image:v1")?;
    let known = prepare(&fixture.environment, &reference, &["--no-refresh"])?;
    ensure!(known.manifest.id == first.manifest.id, "the registry was asked");
    prepare(&fixture.environment, &reference, &[])?.expect("cat hello", "newer")?;
    // From here on the reference stands for the newer image.
    prepare(&fixture.environment, &reference, &["--no-refresh"])?.expect("cat hello", "newer")?;
    first.expect("cat hello", "hello")?;
    Ok(())
}

fn layers_of_two_images_are_stored_once() -> CaseResult {
    let fixture = Fixture::new()?;
    let base = || Layer::base().noise("noise", 1 << 20, 9);
    let top = |text: &str| Layer::new().file("top", text.as_bytes(), 0o644, 0);
    let first = Image::new([base(), top("first")]);
    let (one, _) = fixture.push(&first, "one:v1")?;
    let (two, _) = fixture.push(&Image::new([base(), top("second")]), "two:v1")?;
    let proxy = Proxy::start(&fixture.registry.address())?;
    let through = |reference: &str| reference.replace(&fixture.registry.address(), &proxy.address());
    prepare(&fixture.environment, &through(&one), &[])?.expect("cat top", "first")?;
    proxy.take_passed();
    prepare(&fixture.environment, &through(&two), &[])?.expect("cat top", "second")?;
    let passed = proxy.take_passed();
    ensure!(passed < 100_000, "{passed} bytes were fetched for one small layer");
    let blobs = fs::read_dir(fixture.environment.storage().blobs())?.count();
    // One shared layer, two small ones, two configurations, two manifests.
    ensure!(blobs == 7, "{blobs} blobs are stored");
    Ok(())
}
