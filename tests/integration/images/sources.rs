//! Images from layouts and archives, and images that can't be used.

use std::time::Duration;

use anyhow::ensure;
use fs_err as fs;
use serde_json::json;

use super::NEEDS;
use super::fixture::{CONFIG_TYPE, Image, Layer, MANIFEST_TYPE, Packing, write_manifest, write_oci_archive};
use super::prepared::{artifacts, attempt, prepare, refused};
use crate::harness::environment::Data;
use crate::harness::{Case, CaseResult, Environment, Need, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("a_layout_and_its_archive_are_the_same_image", NEEDS, a_layout_and_its_archive_are_the_same_image),
        case("a_changed_layout_is_noticed", NEEDS, a_changed_layout_is_noticed),
        case("a_docker_archive_is_prepared_compressed_or_not", NEEDS, a_docker_archive_is_prepared_compressed_or_not),
        case("skopeo_writes_archives_that_are_read", SKOPEO, skopeo_writes_archives_that_are_read),
        case("layers_may_be_plain_gzip_or_zstandard", NEEDS, layers_may_be_plain_gzip_or_zstandard),
        case("names_that_lead_nowhere_are_refused", NEEDS, names_that_lead_nowhere_are_refused),
        case("documents_beyond_their_limits_are_refused", NEEDS, documents_beyond_their_limits_are_refused),
        case("other_media_types_are_refused", NEEDS, other_media_types_are_refused),
        case("a_full_disk_is_named", NEEDS, a_full_disk_is_named),
    ]
}

const SKOPEO: &[Need] = &[Need::IdMaps, Need::Program("umoci"), Need::Program("skopeo")];

fn a_layout_and_its_archive_are_the_same_image() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let layout = environment.directory().join("layout");
    let (reference, digest) = Image::simple().write_layout(&layout)?;
    let first = prepare(&environment, &reference, &[])?;
    ensure!(first.manifest.manifest_digest == digest, "{:?}", first.manifest);
    let archive = write_oci_archive(&layout, &environment.directory().join("image.tar"))?;
    let second = prepare(&environment, &archive, &[])?;
    ensure!(second.manifest.id == first.manifest.id, "the same manifest became another artifact");
    ensure!(second.printed["image"] == archive.as_str(), "{}", second.printed);
    // A relative path is taken from the current directory.
    let relative = attempt(&environment, "oci:../../layout", &[])?.ok()?;
    relative.expect_stdout(first.manifest.id.as_str())?;
    Ok(())
}

fn a_changed_layout_is_noticed() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let layout = environment.directory().join("layout");
    let (reference, _) = Image::simple().write_layout(&layout)?;
    prepare(&environment, &reference, &["--no-refresh"])?.expect("cat hello", "hello")?;
    Image::new([Layer::base().file("hello", b"newer", 0o644, 0)]).write_layout(&layout)?;
    prepare(&environment, &reference, &["--no-refresh"])?.expect("cat hello", "newer")?;
    Ok(())
}

fn a_docker_archive_is_prepared_compressed_or_not() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let image = Image::new([Layer::base(), Layer::new().file("top", b"top", 0o644, 0)]);
    let plain = image.write_docker_archive(&environment.directory().join("plain.tar"), Packing::Plain)?;
    let first = prepare(&environment, &plain, &[])?;
    first.expect("cat top", "top")?;
    let packed = image.write_docker_archive(&environment.directory().join("packed.tar"), Packing::Gzip)?;
    let second = prepare(&environment, &packed, &[])?;
    ensure!(second.manifest.id == first.manifest.id, "compression made another image of it");
    let unnamed = plain.trim_end_matches(":example/image:1");
    prepare(&environment, unnamed, &[])?;
    refused(&environment, &format!("{unnamed}:other"), &[], "has no image named 'other'; it has example/image:1")?;
    Ok(())
}

fn skopeo_writes_archives_that_are_read() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let (layout, _) = Image::simple().write_layout(&environment.directory().join("layout"))?;
    for transport in ["docker-archive", "oci-archive"] {
        let target = format!("{transport}:{}/{transport}.tar", environment.directory().display());
        let copy = ["--insecure-policy", "copy", "--quiet", &layout, &format!("{target}:example/image:1")];
        environment.invocation("skopeo").args(copy).run()?.ok()?;
        prepare(&environment, &target, &[])?.expect("cat hello", "hello")?;
    }
    Ok(())
}

fn layers_may_be_plain_gzip_or_zstandard() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let layer = |name: &str, packing| Layer::new().file(name, name.as_bytes(), 0o644, 0).packed(packing);
    let image = Image::new([
        Layer::base().packed(Packing::Zstandard),
        layer("plain", Packing::Plain),
        layer("gzip", Packing::Gzip),
        layer("zstandard", Packing::Zstandard),
    ]);
    let (reference, _) = image.write_layout(&environment.directory().join("layout"))?;
    let prepared = prepare(&environment, &reference, &["--user", "dev"])?;
    prepared.expect("cat plain gzip zstandard", "plaingzipzstandard")?;
    ensure!(prepared.printed["uid"] == 1000, "{}", prepared.printed);
    Ok(())
}

fn names_that_lead_nowhere_are_refused() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let (reference, _) = Image::simple().write_layout(&environment.directory().join("layout"))?;
    let directory = environment.directory().display().to_string();
    fs::write(environment.directory().join("text"), "no tar file ".repeat(100))?;
    fs::write(environment.directory().join("packed"), [0x1f, 0x8b, 8, 0])?;
    refused(&environment, &format!("{reference}s"), &[], "has no image named 'images'; it has image")?;
    refused(&environment, &format!("oci:{directory}/none"), &[], "is it an OCI image layout?")?;
    refused(&environment, &format!("oci-archive:{directory}/none"), &[], "can't be opened")?;
    refused(&environment, &format!("oci-archive:{directory}/text"), &[], "can't be read as a tar file")?;
    refused(&environment, &format!("docker-archive:{directory}/packed"), &[], "is compressed")?;
    refused(&environment, &reference, &["--user", "nobody"], "the image has no user 'nobody'; it has root, dev")?;
    attempt(&environment, "./image.tar", &[])?.expect_code(125)?.expect_stderr("oci-archive:FILE")?;
    attempt(&environment, &reference, &["--platform", "windows/amd64"])?.expect_code(2)?;
    Ok(())
}

fn documents_beyond_their_limits_are_refused() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let layout = |name: &str| environment.directory().join(name);
    let large = write_manifest(&layout("manifest"), " ".repeat(5 << 20).as_bytes())?;
    refused(&environment, &large, &[], "more than the 4194304")?;
    let (large, _) = Image::simple().label("big", &"x".repeat(9 << 20)).write_layout(&layout("config"))?;
    refused(&environment, &large, &[], "more than the 8388608")?;
    let (many, _) = Image::new((0..513).map(|_| Layer::new())).write_layout(&layout("layers"))?;
    refused(&environment, &many, &[], "513 layers, more than 512")?;
    // What is large but within the limits is of no consequence.
    let (labels, _) = Image::simple().label("big", &"x".repeat(100 << 10)).write_layout(&layout("labels"))?;
    prepare(&environment, &labels, &[])?;
    Ok(())
}

fn other_media_types_are_refused() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let layout = |name: &str| environment.directory().join(name);
    let chart = Image::simple().config_type("application/vnd.cncf.helm.config.v1+json");
    let (reference, _) = chart.write_layout(&layout("chart"))?;
    refused(&environment, &reference, &[], "unsupported media type 'application/vnd.cncf.helm.config.v1+json'")?;
    let digest = format!("sha256:{}", "0".repeat(64));
    let foreign = json!({
        "schemaVersion": 2, "mediaType": MANIFEST_TYPE,
        "config": {"mediaType": CONFIG_TYPE, "digest": digest, "size": 2},
        "layers": [{"mediaType": "application/x-\u{1b}[31mlayer", "digest": digest, "size": 2}],
    });
    let reference = write_manifest(&layout("foreign"), foreign.to_string().as_bytes())?;
    let output = refused(&environment, &reference, &[], "unsupported media type 'application/x-")?;
    ensure!(!output.stderr.contains(&0x1b), "an escape sequence of the image reaches the terminal: {output}");
    ensure!(artifacts(&environment).is_empty(), "an artifact was made");
    Ok(())
}

fn a_full_disk_is_named() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let noise = Image::new([Layer::base().noise("noise", 6 << 20, 21)]);
    let zeros = Image::new([Layer::base().file("zeros", &vec![0; 32 << 20], 0o644, 0)]);
    let storage = environment.storage();
    let lazaret = crate::harness::world::world().lazaret();
    for (name, image) in [("download", noise), ("unpacked", zeros)] {
        let (reference, _) = image.write_layout(&environment.directory().join(name))?;
        // A small file system can be mounted only in namespaces of our own.
        let script = format!(
            "mkdir -p '{0}' && mount -t tmpfs -o size=4m,mode=0700 small '{0}' && exec '{1}' image prepare '{reference}'",
            storage.path().display(),
            lazaret.display()
        );
        let unshare = ["--user", "--map-root-user", "--mount", "sh", "-c", &script];
        let output = environment.invocation("unshare").args(unshare).deadline(Duration::from_secs(60)).run()?;
        output.expect_code(125)?.expect_stderr("(ENOSPC)")?.expect_stderr("free some disk space")?;
    }
    Ok(())
}
