use std::path::Path;

use super::*;
use crate::domain::runtime::OverlayPlan;

fn overlay(name: &str) -> OverlayPlan {
    let at = |part: &str| PathBuf::from(format!("/s/{name}/{part}"));
    OverlayPlan { upper: at("upper"), work: at("work"), merged: at("merged") }
}

/// A specification with everything in it.
fn full() -> Value {
    let guest = |path: &str| GuestPath::try_from(path.to_owned()).unwrap();
    let volume = |host: &str, path: &str, access| VolumePlan {
        source: host.into(),
        guest: guest(path),
        access,
        staged: format!("/s/volumes{path}").into(),
    };
    let range = |inside, outside, count| IdRange { inside, outside, count };
    let ranges = vec![range(0, 100_000, 1000), range(1000, 1001, 1), range(1001, 101_000, 64535)];
    specification(&SandboxInput {
        root: Path::new("/s/root/merged"),
        hostname: "my-project",
        workspace: Path::new("/s/workspace"),
        anchors: &[AnchorPlan { path: guest("/home/agent"), overlay: overlay("anchor") }],
        volumes: &[
            volume("/srv/data", "/srv/data", Access::ReadOnly),
            volume("/home/dev/cache", "/home/agent/.cache", Access::ReadWrite),
        ],
        control: &[
            volume("/h/bin", "/run/lazaret/bin", Access::ReadOnly),
            volume("/h/requests", "/run/lazaret/mailbox/requests", Access::ReadWrite),
            volume("/h/results", "/run/lazaret/mailbox/results", Access::ReadOnly),
        ],
        limits: &Limits {
            open_files: Some(4096),
            processes: None,
            memory: Some(1 << 33),
            file_size: None,
            tmp: 1 << 29,
        },
        mapping: &IdMapping { uids: ranges.clone(), gids: ranges },
        init: &["/run/lazaret/bin/lazaret-guest", "init", "{}"].map(str::to_owned),
    })
    .unwrap()
}

#[test]
fn the_whole_specification_is_as_recorded() {
    insta::assert_snapshot!("specification", serde_json::to_string_pretty(&full()).unwrap());
}

#[test]
fn it_is_a_valid_oci_runtime_specification() {
    let spec: oci_spec::runtime::Spec = serde_json::from_value(full()).unwrap();
    let namespaces = spec.linux().as_ref().unwrap().namespaces().clone().unwrap();
    assert!(namespaces.iter().all(|namespace| namespace.path().is_none()));
    assert_eq!(spec.process().as_ref().unwrap().terminal(), Some(false));
}

#[test]
fn the_agent_never_has_network_or_system_administration() {
    let spec = full();
    let capabilities = spec["process"]["capabilities"].to_string() + &wrapper_capability_sets().to_string();
    for forbidden in ["NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE", "SYS_MODULE"] {
        assert!(!capabilities.contains(forbidden), "{forbidden}");
    }
    assert!(wrapper_capability_sets().to_string().contains("CAP_SETPCAP"));
}

#[test]
fn mounts_come_parents_first_and_control_mounts_last() {
    let spec = full();
    let order: Vec<_> =
        spec["mounts"].as_array().unwrap().iter().map(|m| m["destination"].as_str().unwrap().to_owned()).collect();
    for (index, path) in order.iter().enumerate() {
        let parents = order[index + 1..].iter().filter(|later| Path::new(path).starts_with(later));
        assert_eq!(parents.count(), 0, "{path} is mounted before its parent");
    }
    assert_eq!(order.last().unwrap(), "/run/lazaret/mailbox/results");
}

#[test]
fn host_names_are_made_from_directory_names() {
    for (path, name) in [
        ("/home/dev/My Project", "my-project"),
        ("/", "sandbox"),
        ("/x/___", "sandbox"),
        ("/x/naïve", "na-ve"),
        ("/x/.dotfiles", "dotfiles"),
    ] {
        assert_eq!(hostname(Path::new(path)), name);
    }
    assert_eq!(hostname(Path::new(&format!("/x/{}", "a".repeat(200)))).len(), 63);
}

#[test]
fn a_path_that_json_cannot_carry_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let odd = Path::new(std::ffi::OsStr::from_bytes(b"/s/\xff"));
    assert!(matches!(bind("/x", odd, Access::ReadOnly), Err(SpecificationError::NotUnicode(_))));
}
