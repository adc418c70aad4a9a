//! Every judgement, from facts that no machine need have.

use super::*;
use crate::cli::prerequisites::facts::RuntimeBase;
use crate::cli::prerequisites::runsc::Version;

fn good() -> Facts {
    let path = |name: &str| Some(PathBuf::from("/usr/bin").join(name));
    Facts {
        user: "dev".into(),
        uid: 1000,
        kernel: "6.18.44-cloud-amd64".into(),
        architecture: "x86_64",
        unprivileged_userns_clone: Some(1),
        max_user_namespaces: Some(15_000),
        apparmor_restriction: None,
        namespaces: Trial::Works,
        subordinate_uids: 65_536,
        subordinate_gids: 65_536,
        free_uid: 165_536,
        free_gid: 231_072,
        newuidmap: Helper::Privileged("/usr/bin/newuidmap".into()),
        newgidmap: Helper::Privileged("/usr/bin/newgidmap".into()),
        mapping: Trial::Works,
        runsc: Runsc::Present("/usr/bin/runsc".into(), Version { text: "x".into(), date: Some(OLDEST) }),
        slirp4netns: path("slirp4netns"),
        umoci: path("umoci"),
        git: path("git"),
        tun: Device::Opens,
        fuse: Device::Opens,
        storage: "/home/dev/.local/share/lazaret".into(),
        overlay: Trial::Works,
        ipv6: Trial::Works,
        ptrace_scope: Some(1),
        guest: Guest::Present("/usr/bin/lazaret-guest".into(), Linkage::Static),
        runtime: RuntimeBase { path: "/run/user/1000/lazaret".into(), origin: Origin::Environment, obstacle: None },
        terminal: TerminalFact::Present(Some("xterm".into())),
    }
}

/// Spoils good facts and gives the checks that are no longer ok.
fn spoiled(spoil: impl FnOnce(&mut Facts)) -> Vec<Check> {
    let mut facts = good();
    spoil(&mut facts);
    checks(&facts).into_iter().filter(|check| check.status != Status::Ok).collect()
}

#[test]
fn good_facts_are_ok_and_so_are_untried_ones() {
    assert_eq!(spoiled(|_| ()), []);
    let untried = spoiled(|facts| {
        facts.namespaces = Trial::Untried;
        facts.mapping = Trial::Untried;
        facts.overlay = Trial::Untried;
        facts.unprivileged_userns_clone = None;
        facts.ptrace_scope = None;
        facts.terminal = TerminalFact::Absent;
    });
    assert_eq!(untried, []);
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = checks(&good()).iter().map(|check| check.name).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

type Spoil = fn(&mut Facts);

#[test]
fn each_spoiled_fact_is_one_finding_with_its_remedy() {
    use Status::{Missing, Warn};
    let cases: Vec<(Spoil, &str, Status, &str)> = vec![
        (|f| f.kernel = "5.10.0-30-amd64".into(), "kernel", Missing, "linux-image"),
        (|f| f.kernel = "odd".into(), "kernel", Warn, ""),
        (|f| f.architecture = "riscv64", "kernel", Missing, ""),
        (|f| f.unprivileged_userns_clone = Some(0), "user-namespaces", Missing, "unprivileged_userns_clone = 1"),
        (|f| f.max_user_namespaces = Some(0), "user-namespaces", Missing, "max_user_namespaces = 15000"),
        (|f| f.max_user_namespaces = None, "user-namespaces", Missing, "max_user_namespaces"),
        (|f| f.namespaces = Trial::Fails("no".into()), "user-namespaces", Missing, ""),
        (
            |f| (f.namespaces, f.apparmor_restriction) = (Trial::Fails("no".into()), Some(1)),
            "user-namespaces",
            Missing,
            "apparmor_restrict_unprivileged_userns = 0",
        ),
        (|f| f.newuidmap = Helper::Absent, "newuidmap", Missing, "install uidmap"),
        (|f| f.newgidmap = Helper::Powerless("/x/newgidmap".into()), "newgidmap", Missing, "chmod u+s /x/newgidmap"),
        (|f| f.subordinate_uids = 1000, "subordinate-ids", Missing, "sudo usermod --add-subuids 165536-231071 dev"),
        (
            |f| (f.subordinate_uids, f.subordinate_gids) = (0, 0),
            "subordinate-ids",
            Missing,
            "sudo usermod --add-subuids 165536-231071 --add-subgids 231072-296607 dev",
        ),
        (|f| f.mapping = Trial::Fails("no".into()), "identity-mapping", Missing, ""),
        (|f| f.runsc = Runsc::Absent, "runsc", Missing, "bookworm-backports runsc"),
        (|f| f.runsc = Runsc::Silent("/r".into(), "no".into()), "runsc", Missing, "runsc"),
        (
            |f| f.runsc = Runsc::Present("/r".into(), Version { text: "y".into(), date: Some(OLDEST - 1) }),
            "runsc",
            Missing,
            "runsc",
        ),
        (|f| f.runsc = Runsc::Present("/r".into(), Version { text: "y".into(), date: None }), "runsc", Warn, "runsc"),
        (|f| f.slirp4netns = None, "slirp4netns", Missing, "install slirp4netns"),
        (|f| f.umoci = None, "umoci", Missing, "install umoci"),
        (|f| f.git = None, "git", Warn, "install git"),
        (|f| f.tun = Device::Absent, "/dev/net/tun", Missing, "modprobe tun"),
        (|f| f.tun = Device::Refuses("no".into()), "/dev/net/tun", Missing, "chmod 0666 /dev/net/tun"),
        (|f| f.fuse = Device::Absent, "/dev/fuse", Warn, "modprobe fuse"),
        (|f| f.fuse = Device::Refuses("no".into()), "/dev/fuse", Warn, "chmod 0666 /dev/fuse"),
        (|f| f.overlay = Trial::Fails("no".into()), "overlay", Missing, "XDG_DATA_HOME"),
        (|f| f.ipv6 = Trial::Fails("no".into()), "ipv6", Warn, "ipv6.disable"),
        (|f| f.ptrace_scope = Some(3), "ptrace", Missing, "ptrace_scope = 1"),
        (|f| f.guest = Guest::Absent(vec!["/a".into(), "/b".into()]), "lazaret-guest", Missing, "cargo build"),
        (|f| f.guest = Guest::Present("/a".into(), Linkage::Dynamic), "lazaret-guest", Missing, "cargo build"),
        (|f| f.guest = Guest::Present("/a".into(), Linkage::Foreign), "lazaret-guest", Missing, "cargo build"),
        (|f| f.runtime.obstacle = Some("no".into()), "runtime-directory", Missing, "unset XDG_RUNTIME_DIR"),
        (
            |f| (f.runtime.obstacle, f.runtime.origin) = (Some("no".into()), Origin::Fallback),
            "runtime-directory",
            Missing,
            "/run/user/1000",
        ),
        (|f| f.runtime.path = PathBuf::from("/").join("x".repeat(60)), "runtime-directory", Missing, "/run/user/1000"),
        (|f| f.terminal = TerminalFact::Present(None), "terminal", Warn, "TERM"),
    ];
    for (spoil, name, status, remedy) in cases {
        let found = spoiled(spoil);
        let [check] = &found[..] else { panic!("{name}: {found:?}") };
        assert_eq!((check.name, check.status), (name, status), "{check:?}");
        match &check.remedy {
            Some(given) => assert!(!remedy.is_empty() && given.contains(remedy), "{check:?}"),
            None => assert_eq!(remedy, "", "{check:?}"),
        }
    }
}

#[test]
fn details_say_what_was_found() {
    let detail = |spoil: Spoil| spoiled(spoil)[0].detail.clone();
    assert_eq!(
        detail(|f| (f.subordinate_uids, f.subordinate_gids) = (0, 1000)),
        "dev has 0 subordinate user ids and 1000 subordinate group ids, and 65536 are needed of each kind"
    );
    assert_eq!(
        detail(|f| f.runsc = Runsc::Present("/r".into(), Version { text: "old".into(), date: Some(20_230_101) })),
        "/r, version old is too old: a release of 20240729 or newer is needed"
    );
}
