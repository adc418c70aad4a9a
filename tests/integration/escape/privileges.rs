//! Capabilities, mounts, namespaces, other processes.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use lazaret::domain::capabilities::AGENT;
use serde_json::Value;

use super::{Outcomes, Prison, USERS};
use crate::harness::{Case, CaseResult, Need, case, project};

pub fn cases() -> Vec<Case> {
    vec![
        case("escape_capabilities", &[Need::Sandbox], escape_capabilities),
        case("escape_user_namespaces", &[Need::Sandbox], escape_user_namespaces),
    ]
}

/// Makes a prison with a read-only volume and runs the script in it; checks on the host that nothing
/// read-only was written.
fn attacked(user: &str) -> Result<Outcomes> {
    let prison = Prison::new(user, "[[volumes]]\nhost = \"~/reference\"\nguest = \"/reference\"\naccess = \"ro\"")?;
    let environment = &prison.environment;
    let volume = environment.home().join("reference");
    fs::create_dir(&volume)?;
    fs::write(volume.join("facts"), "the developer's\n")?;
    let guest = environment.storage().path().join("guest");
    let git = environment.project().join(".git");
    let protected = || -> Result<Vec<String>> {
        let config = fs::read_to_string(git.join("config"))?;
        let lists = [project::inventory(&volume)?, project::inventory(&git.join("hooks"))?, vec![config]];
        Ok(lists.concat())
    };
    // The first session makes the copy of the guest executable.
    prison.shell("true")?;
    let (before, executables) = (protected()?, project::inventory(&guest)?);
    let outcomes = prison.attack(include_str!("../hostile/privileges.py"), &["/reference/facts"])?;
    ensure!(protected()? == before, "what is read-only was changed");
    ensure!(project::inventory(&guest)? == executables, "the guest executable was changed");
    Ok(outcomes)
}

/// Gives a capability set of the script's process.
fn set(status: &BTreeMap<String, Vec<String>>, name: &str) -> Result<u64> {
    let text = status.get(name).and_then(|fields| fields.first()).with_context(|| format!("no {name}"))?;
    Ok(u64::from_str_radix(text, 16)?)
}

/// Exactly the documented list is held, and what it does not have is refused.
fn escape_capabilities() -> CaseResult {
    let documented = AGENT.iter().fold(0, |bits, capability| bits | 1 << capability.number);
    for user in USERS {
        let outcomes = attacked(user)?;
        let Value::String(status) = outcomes.fact("status")? else { anyhow::bail!("no status") };
        let status: BTreeMap<String, Vec<String>> = serde_json::from_str(status)?;
        let held = if user == "root" { documented } else { 0 };
        for (name, expected) in [("CapPrm", held), ("CapEff", held), ("CapInh", 0), ("CapBnd", documented)] {
            let found = set(&status, name)?;
            ensure!(found == expected, "{user}: {name} is {found:x}, not {expected:x}");
        }
        // This gVisor shows no ambient set; a later one must show an empty one.
        ensure!(!status.contains_key("CapAmb") || set(&status, "CapAmb")? == 0);
        ensure!(
            user == "root" || status.get("Groups").is_some_and(|groups| groups.iter().all(|group| group == "1000"))
        );
        let plain = |name: &str| !name.starts_with("in a user namespace");
        for part in
            ["unmount ", "remount ", "bind ", "rbind ", "move ", "mount ", "write ", "make a file", "pivot", "fsopen"]
        {
            outcomes.expect_refused(|name| plain(name) && name.contains(part) && !name.starts_with("mounted"))?;
        }
        outcomes.expect_refused(|name| plain(name) && name.starts_with("new ") && name.ends_with("namespace"))?;
        outcomes.expect_refused(|name| plain(name) && is_kernel_matter(name))?;
    }
    Ok(())
}

/// A user namespace of one's own gives every capability in it, and still lifts nothing.
fn escape_user_namespaces() -> CaseResult {
    for user in USERS {
        let outcomes = attacked(user)?;
        let inside = |name: &str| name.starts_with("in a user namespace: ");
        for part in
            [": unmount ", ": forced unmount ", ": lazy unmount ", ": own unmount ", ": move ", "write ", "make a file"]
        {
            outcomes.expect_refused(|name| inside(name) && name.contains(part))?;
        }
        outcomes.expect_refused(|name| inside(name) && is_kernel_matter(name))?;
        // What can be mounted shows nothing of the host.
        for kind in ["9p", "ext4", "hostfs", "debugfs", "bpf", "securityfs"] {
            outcomes.expect_refused(|name| name == format!("in a user namespace: mount {kind}"))?;
        }
        let hooks = outcomes.select(|name| inside(name) && name.ends_with(", hooks"))?;
        let shown: Vec<_> = hooks.iter().filter(|(_, seen)| seen.contains("sample")).collect();
        ensure!(shown.is_empty(), "the host's hooks are seen: {shown:?}");
    }
    Ok(())
}

/// Tells whether an attempt concerns init, the kernel or its devices.
fn is_kernel_matter(name: &str) -> bool {
    let name = name.trim_start_matches("in a user namespace: ");
    const MATTERS: [&str; 25] = [
        "trace init",
        "seize init",
        "read memory of init",
        "open memory of init",
        "descriptors of init",
        "clock",
        "reboot",
        "swapon",
        "init_module",
        "bpf",
        "perf_event_open",
        "iopl",
        "ioperm",
        "kexec_load",
        "io_uring_setup",
        "userfaultfd",
        "acct",
        "quotactl",
        "open by handle",
        "open node disk",
        "open node memory",
        "open node kvm",
        "enter mnt of init",
        "enter net of init",
        "enter user of init",
    ];
    MATTERS.contains(&name)
}
