//! What becomes of a layer's entries, and whose they are.

use std::os::unix::fs::MetadataExt;

use anyhow::{Context, ensure};
use fs_err as fs;

use super::NEEDS;
use super::fixture::{Image, Layer, odd_path};
use super::prepared::{Prepared, prepare, refused};
use crate::harness::environment::Data;
use crate::harness::{Case, CaseResult, Environment, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("whiteouts_and_opaque_directories_hide", NEEDS, whiteouts_and_opaque_directories_hide),
        case("hard_links_and_modes_are_kept", NEEDS, hard_links_and_modes_are_kept),
        case("odd_names_are_kept", NEEDS, odd_names_are_kept),
        case("device_nodes_do_no_harm", NEEDS, device_nodes_do_no_harm),
        case("the_named_user_is_the_developer", NEEDS, the_named_user_is_the_developer),
        case("the_user_is_found_where_the_last_layer_has_it", NEEDS, the_user_is_found_where_the_last_layer_has_it),
        case("ids_out_of_reach_are_refused", NEEDS, ids_out_of_reach_are_refused),
    ]
}

fn of_layers(environment: &Environment, layers: impl IntoIterator<Item = Layer>) -> anyhow::Result<Prepared> {
    let (reference, _) = Image::new(layers).write_layout(&environment.directory().join("layout"))?;
    prepare(environment, &reference, &[])
}

fn whiteouts_and_opaque_directories_hide() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let lower = Layer::base()
        .directory("d", 0o755, 0)
        .file("d/gone", b"", 0o644, 0)
        .file("d/stays", b"", 0o644, 0)
        .directory("o", 0o755, 0)
        .file("o/lower", b"", 0o644, 0)
        .directory("o/sub", 0o755, 0)
        .file("o/sub/lower", b"", 0o644, 0)
        .directory("tree", 0o755, 0)
        .file("tree/file", b"", 0o644, 0)
        .directory("kind", 0o755, 0)
        .file("kind/file", b"", 0o644, 0);
    let upper = Layer::new()
        .file("d/.wh.gone", b"", 0o644, 0)
        .directory("o", 0o755, 0)
        .file("o/.wh..wh..opq", b"", 0o644, 0)
        .file("o/upper", b"", 0o644, 0)
        .file(".wh.tree", b"", 0o644, 0)
        .file("kind", b"a file now", 0o644, 0);
    let prepared = of_layers(&environment, [lower, upper])?;
    prepared.expect("find d o tree kind 2>/dev/null | sort || true", "d\nd/stays\nkind\no\no/upper")?;
    prepared.expect("cat kind", "a file now")?;
    prepared.expect("find . -name '.wh.*'", "")?;
    Ok(())
}

fn hard_links_and_modes_are_kept() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let lower = Layer::base()
        .file("one", b"shared", 0o644, 0)
        .hard_link("two", "one")
        .file("suid", b"", 0o4755, 0)
        .file("sgid", b"", 0o2755, 33)
        .directory("sticky", 0o1777, 0);
    let upper = Layer::new().hard_link("three", "one").symlink("absolute", "/one").symlink("dangling", "../../../x");
    let prepared = of_layers(&environment, [lower, upper])?;
    prepared.expect("stat -c %h one; cat three; [ one -ef two ] && [ one -ef three ] && echo same", "3\nsharedsame")?;
    prepared.expect("stat -c '%a %u %g' suid sgid sticky", "4755 0 0\n2755 33 33\n1777 0 0")?;
    prepared.expect("readlink absolute dangling", "/one\n../../../x")?;
    // Not the developer's on the host: setuid there means a subordinate id.
    let owner = fs::metadata(prepared.rootfs().join("sgid"))?.uid();
    ensure!(owner != nix::unistd::getuid().as_raw(), "a file of guest user 33 is the developer's");
    Ok(())
}

fn odd_names_are_kept() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let long = vec![b'n'; 255];
    let names: [&[u8]; 6] = [b"not-utf8-\xff\xfe", b"new\nline", b" space ", b"-rf", "\u{202e}ä".as_bytes(), &long];
    let layer = names.iter().fold(Layer::base(), |layer, name| layer.named(name, name));
    let prepared = of_layers(&environment, [layer])?;
    for name in names {
        let content = fs::read(odd_path(&prepared.rootfs(), name))?;
        ensure!(content == name, "{name:?} has another one's content");
    }
    Ok(())
}

fn device_nodes_do_no_harm() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let layer = Layer::base().directory("dev", 0o755, 0).device("dev/null").file("after", b"after", 0o644, 0);
    let prepared = of_layers(&environment, [layer])?;
    prepared.expect("cat after; find . -type c -o -type b", "after")?;
    Ok(())
}

fn the_named_user_is_the_developer() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let layer = Layer::base().file("stranger", b"", 0o644, 4711);
    let image = Image::new([layer]).user("dev");
    let (reference, _) = image.write_layout(&environment.directory().join("layout"))?;
    let prepared = prepare(&environment, &reference, &[])?;
    let user = &prepared.manifest.user;
    ensure!((user.uid, user.gid, user.name.as_deref()) == (1000, 1000, Some("dev")), "{user:?}");
    ensure!(user.groups == [29] && user.home == "/home/dev", "{user:?}");
    let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
    ensure!(prepared.manifest.mapping.host_uid(1000) == Some(uid), "{:?}", prepared.manifest.mapping);
    let mine = fs::metadata(prepared.rootfs().join("home/dev/mine"))?;
    ensure!((mine.uid(), mine.gid()) == (uid, gid), "dev's file is {}:{}'s", mine.uid(), mine.gid());
    for (guest, file) in [(0, "etc/passwd"), (4711, "stranger")] {
        let owner = fs::metadata(prepared.rootfs().join(file))?.uid();
        let mapped = prepared.manifest.mapping.host_uid(guest).context("it is mapped")?;
        ensure!(owner == mapped && owner != uid, "{file} is {owner}'s, not {mapped}'s");
    }
    prepared.expect("stat -c %u home/dev/mine etc/passwd stranger", "1000\n0\n4711")?;
    // As root it is another tree, where root is the developer.
    let root = prepare(&environment, &reference, &["--user", "0:0"])?;
    ensure!(root.manifest.id != prepared.manifest.id, "one tree for two mappings");
    ensure!(fs::metadata(root.rootfs().join("etc/passwd"))?.uid() == uid, "root's file is not the developer's");
    Ok(())
}

fn the_user_is_found_where_the_last_layer_has_it() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let moved = Layer::new()
        .file("usr/share/passwd", b"agent:x:1234:1234::/srv:/bin/sh\n", 0o644, 0)
        .symlink("etc/passwd", "../usr/share/passwd");
    let image = Image::new([Layer::base(), moved]).user("agent");
    let (reference, _) = image.write_layout(&environment.directory().join("layout"))?;
    let prepared = prepare(&environment, &reference, &[])?;
    ensure!(prepared.manifest.user.uid == 1234 && prepared.manifest.user.home == "/srv", "{:?}", prepared.manifest);
    refused(&environment, &reference, &["--user", "dev"], "the image has no user 'dev'; it has agent")?;
    Ok(())
}

fn ids_out_of_reach_are_refused() -> CaseResult {
    let environment = Environment::with(Data::Private)?;
    let image = Image::new([Layer::base().file("far", b"", 0o644, 2_000_000)]);
    let (reference, _) = image.write_layout(&environment.directory().join("layout"))?;
    refused(&environment, &reference, &[], "the image has files of user id 2000000")?;
    refused(&environment, &reference, &["--user", "3000000000"], "out of reach")?;
    Ok(())
}
