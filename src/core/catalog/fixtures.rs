//! Artifacts, preparations and leases for tests.

use super::*;
use crate::core::generation::fixtures::{BOOT, process};
use crate::domain::artifact::{GuestUser, IdMapping, IdRange, ImageRuntime, Platform};

pub(crate) fn source(name: &str) -> ImageSource {
    ImageSource::Registry(format!("registry.example/{name}:latest"))
}

pub(crate) fn mapping() -> IdMapping {
    let range = IdRange { inside: 0, outside: 100_000, count: 65_536 };
    IdMapping { uids: vec![range], gids: vec![range] }
}

pub(crate) fn manifest(name: &str, prepared_at: i64) -> ArtifactManifest {
    ArtifactManifest {
        version: 1,
        id: ArtifactId::of(format!("{name} {prepared_at}").as_bytes()),
        source: source(name),
        manifest_digest: format!("sha256:{}", "0".repeat(64)),
        platform: Platform { os: "linux".into(), architecture: "amd64".into(), variant: None },
        mapping: mapping(),
        user: GuestUser {
            uid: 1000,
            gid: 1000,
            groups: vec![],
            name: Some("dev".into()),
            home: "/home/dev".into(),
            shell: "/bin/bash".into(),
        },
        runtime: ImageRuntime::default(),
        size: 300 << 20,
        prepared_at,
    }
}

pub(crate) fn preparation_record(name: &str, pid: i32) -> PreparationRecord {
    let id: PreparationId = hex::encode([pid as u8; 16]).parse().unwrap();
    let directory = PathBuf::from(format!("/storage/prepared/.preparing-{id}"));
    debug_assert_eq!(process(pid).boot_id, BootId::new(BOOT));
    PreparationRecord {
        id,
        owner: process(pid),
        source: source(name),
        directory,
        identity: None,
        sealed: None,
        began_at: 1_700_000_000,
    }
}
