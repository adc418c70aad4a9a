//! Judges facts: what holds, what is missing, and the command that mends it.
//!
//! Commands are for Debian and its relatives.

use std::path::{Path, PathBuf};

use super::elf::Linkage;
use super::facts::{Device, Facts, Guest, Helper, Origin, Runsc, TerminalFact, Trial};
use super::runsc::OLDEST;
use super::{Check, Status};
use crate::policy::mapping::NEEDED;

/// mount_setattr(2) came with it, after everything else that is used.
const OLDEST_KERNEL: (u32, u32) = (5, 12);

/// How long the path of all Domains' runtime directories may be, so that the longest socket path
/// below it, runsc's control socket, fits in 108 bytes (unix(7)).
const LONGEST_RUNTIME_BASE: usize = 48;

/// Gives every check, those that others rest on first.
pub fn checks(facts: &Facts) -> Vec<Check> {
    vec![
        kernel(facts),
        user_namespaces(facts),
        helper("newuidmap", &facts.newuidmap),
        helper("newgidmap", &facts.newgidmap),
        subordinate_ids(facts),
        identity_mapping(facts),
        runsc(facts),
        tool("slirp4netns", facts.slirp4netns.as_deref()),
        tool("umoci", facts.umoci.as_deref()),
        git(facts),
        guest(facts),
        tun(facts),
        fuse(facts),
        overlay(facts),
        ipv6(facts),
        ptrace(facts),
        runtime_directory(facts),
        terminal(facts),
    ]
}

fn ok(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, status: Status::Ok, detail: detail.into(), remedy: None }
}

fn missing(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { name, status: Status::Missing, detail: detail.into(), remedy: Some(remedy.into()) }
}

fn warn(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { name, status: Status::Warn, detail: detail.into(), remedy: Some(remedy.into()) }
}

/// For what no command mends.
fn without_remedy(check: Check) -> Check {
    Check { remedy: None, ..check }
}

fn install(package: &str) -> String {
    format!("sudo apt-get install {package}")
}

/// Sets a kernel parameter now and at every boot.
fn set_parameter(name: &str, value: &str) -> String {
    format!("echo '{name} = {value}' | sudo tee -a /etc/sysctl.d/60-lazaret.conf && sudo sysctl --system")
}

fn kernel(facts: &Facts) -> Check {
    let name = "kernel";
    let mut numbers = facts.kernel.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    let version = numbers.next().zip(numbers.next());
    let found = format!("Linux {} on {}", facts.kernel, facts.architecture);
    match (version, facts.architecture) {
        (_, other) if !matches!(other, "x86_64" | "aarch64") => {
            without_remedy(missing(name, format!("{found}: gVisor runs on x86_64 and aarch64"), ""))
        }
        (Some(version), _) if version < OLDEST_KERNEL => {
            let (major, minor) = OLDEST_KERNEL;
            let detail = format!("{found}: Linux {major}.{minor} or newer is needed");
            missing(name, detail, "sudo apt-get install linux-image-amd64 && sudo reboot")
        }
        (Some(_), _) => ok(name, found),
        (None, _) => without_remedy(warn(name, format!("{found}: an unknown release"), "")),
    }
}

fn user_namespaces(facts: &Facts) -> Check {
    let name = "user-namespaces";
    if facts.unprivileged_userns_clone == Some(0) {
        let detail = "unprivileged users may not create user namespaces (kernel.unprivileged_userns_clone is 0)";
        return missing(name, detail, set_parameter("kernel.unprivileged_userns_clone", "1"));
    }
    if matches!(facts.max_user_namespaces, None | Some(0)) {
        let detail = match facts.max_user_namespaces {
            Some(_) => "no user namespaces may be created (user.max_user_namespaces is 0)",
            None => "this kernel has no user namespaces",
        };
        return missing(name, detail, set_parameter("user.max_user_namespaces", "15000"));
    }
    match (&facts.namespaces, facts.apparmor_restriction) {
        (Trial::Fails(said), Some(1..)) => {
            let parameter = "kernel.apparmor_restrict_unprivileged_userns";
            let detail = format!("AppArmor restricts user namespaces of unprivileged users ({parameter}): {said}");
            missing(name, detail, set_parameter(parameter, "0"))
        }
        (Trial::Fails(said), _) => without_remedy(missing(name, format!("namespaces cannot be created: {said}"), "")),
        (Trial::Works, _) => ok(name, "a program ran in new user, pid and mount namespaces"),
        (Trial::Untried, _) => ok(name, "permitted"),
    }
}

fn helper(name: &'static str, helper: &Helper) -> Check {
    match helper {
        Helper::Absent => missing(name, format!("{name} is not installed"), install("uidmap")),
        Helper::Powerless(path) => {
            let detail = format!("{} has neither the set-user-ID bit nor a file capability", path.display());
            missing(name, detail, format!("sudo chown root:root {0} && sudo chmod u+s {0}", path.display()))
        }
        Helper::Privileged(path) => ok(name, path.display().to_string()),
    }
}

fn subordinate_ids(facts: &Facts) -> Check {
    let name = "subordinate-ids";
    let (uids, gids) = (facts.subordinate_uids, facts.subordinate_gids);
    let kinds = [("user", "--add-subuids", uids, facts.free_uid), ("group", "--add-subgids", gids, facts.free_gid)];
    let lacking: Vec<_> = kinds.into_iter().filter(|(_, _, granted, _)| *granted < NEEDED).collect();
    if lacking.is_empty() {
        return ok(name, format!("{uids} user ids and {gids} group ids"));
    }
    let found: Vec<_> =
        lacking.iter().map(|(kind, _, granted, _)| format!("{granted} subordinate {kind} ids")).collect();
    let options =
        lacking.iter().map(|(_, option, _, first)| format!("{option} {first}-{}", u64::from(*first) + NEEDED - 1));
    let options = options.collect::<Vec<_>>().join(" ");
    let detail = format!("{} has {}, and {NEEDED} are needed of each kind", facts.user, found.join(" and "));
    missing(name, detail, format!("sudo usermod {options} {}", facts.user))
}

fn identity_mapping(facts: &Facts) -> Check {
    let name = "identity-mapping";
    match &facts.mapping {
        Trial::Works => ok(name, "a program ran with all subordinate ids mapped"),
        Trial::Untried => ok(name, "not tried"),
        Trial::Fails(said) => without_remedy(missing(name, format!("subordinate ids cannot be mapped: {said}"), "")),
    }
}

fn runsc(facts: &Facts) -> Check {
    let name = "runsc";
    let remedy = "sudo apt-get install -t bookworm-backports runsc";
    match &facts.runsc {
        Runsc::Absent => {
            missing(name, "runsc (gVisor) is not installed; Debian 12 has it in bookworm-backports", remedy)
        }
        Runsc::Silent(path, said) => missing(name, format!("{} does not work: {said}", path.display()), remedy),
        Runsc::Present(path, version) => {
            let found = format!("{}, version {}", path.display(), version.text);
            match version.date {
                Some(date) if date < OLDEST => {
                    missing(name, format!("{found} is too old: a release of {OLDEST} or newer is needed"), remedy)
                }
                Some(_) => ok(name, found),
                None => warn(name, format!("{found}: its age is unknown, {OLDEST} or newer is needed"), remedy),
            }
        }
    }
}

fn tool(name: &'static str, path: Option<&Path>) -> Check {
    match path {
        Some(path) => ok(name, path.display().to_string()),
        None => missing(name, format!("{name} is not installed"), install(name)),
    }
}

fn git(facts: &Facts) -> Check {
    match &facts.git {
        Some(path) => ok("git", path.display().to_string()),
        None => warn("git", "git is not installed on the host", install("git")),
    }
}

fn guest(facts: &Facts) -> Check {
    let name = "lazaret-guest";
    let rebuild = "cargo build --release";
    match &facts.guest {
        Guest::Present(path, Linkage::Static) => ok(name, format!("{}, static", path.display())),
        Guest::Present(path, Linkage::Dynamic) => {
            let detail = format!("{} is not static, and would not run in every image", path.display());
            missing(name, detail, rebuild)
        }
        Guest::Present(path, Linkage::Foreign) => {
            missing(name, format!("{} is no executable of this machine", path.display()), rebuild)
        }
        Guest::Absent(places) => {
            let places: Vec<_> = places.iter().map(|path: &PathBuf| path.display().to_string()).collect();
            missing(name, format!("the sandbox-side executable is not in {}", places.join(" or ")), rebuild)
        }
    }
}

fn tun(facts: &Facts) -> Check {
    let name = "/dev/net/tun";
    match &facts.tun {
        Device::Opens => ok(name, "opens"),
        Device::Absent => missing(name, format!("{name} does not exist"), "sudo modprobe tun"),
        Device::Refuses(said) => {
            missing(name, format!("{name} cannot be opened: {said}"), "sudo chmod 0666 /dev/net/tun")
        }
    }
}

fn fuse(facts: &Facts) -> Check {
    let name = "/dev/fuse";
    let use_of_it = "isolation of Git-ignored paths will need it";
    match &facts.fuse {
        Device::Opens => ok(name, "opens"),
        Device::Absent => warn(name, format!("{name} does not exist; {use_of_it}"), "sudo modprobe fuse"),
        Device::Refuses(said) => {
            warn(name, format!("{name} cannot be opened: {said}; {use_of_it}"), "sudo chmod 0666 /dev/fuse")
        }
    }
}

fn overlay(facts: &Facts) -> Check {
    let name = "overlay";
    let storage = facts.storage.display();
    match &facts.overlay {
        Trial::Works => ok(name, format!("works where {storage} is")),
        Trial::Untried => ok(name, "not tried"),
        Trial::Fails(said) => {
            let detail = format!(
                "no overlay can be mounted where {storage} is, which needs a file system with user extended \
                 attributes such as ext4, xfs or btrfs: {said}"
            );
            missing(name, detail, "export XDG_DATA_HOME=DIRECTORY_ON_SUCH_A_FILE_SYSTEM || sudo modprobe overlay")
        }
    }
}

fn ipv6(facts: &Facts) -> Check {
    let name = "ipv6";
    match &facts.ipv6 {
        Trial::Works | Trial::Untried => ok(name, "in the kernel; in the sandbox only when a profile turns it on"),
        Trial::Fails(said) => {
            let detail =
                format!("the kernel makes no IPv6 sockets ({said}), without which some releases of runsc fail");
            warn(name, detail, "remove 'ipv6.disable=1' from the kernel's command line and reboot")
        }
    }
}

fn ptrace(facts: &Facts) -> Check {
    let name = "ptrace";
    match facts.ptrace_scope {
        Some(scope @ 3..) => {
            let detail =
                format!("no process may trace another (kernel.yama.ptrace_scope is {scope}), which gVisor must");
            let lower = set_parameter("kernel.yama.ptrace_scope", "1");
            missing(name, detail, format!("{lower}; it takes effect after a reboot"))
        }
        Some(scope) => ok(name, format!("kernel.yama.ptrace_scope is {scope}")),
        None => ok(name, "unrestricted"),
    }
}

fn runtime_directory(facts: &Facts) -> Check {
    let name = "runtime-directory";
    let runtime = &facts.runtime;
    let path = runtime.path.display();
    let own = format!("export XDG_RUNTIME_DIR=/run/user/{}", facts.uid);
    if let Some(obstacle) = &runtime.obstacle {
        let remedy = match runtime.origin {
            Origin::Environment => "unset XDG_RUNTIME_DIR".to_owned(),
            Origin::Fallback => own,
        };
        return missing(name, format!("{path} cannot be used: {obstacle}"), remedy);
    }
    if runtime.path.as_os_str().len() > LONGEST_RUNTIME_BASE {
        let detail = format!("{path} is longer than {LONGEST_RUNTIME_BASE} bytes, too long for the sockets below it");
        return missing(name, detail, own);
    }
    match runtime.origin {
        Origin::Environment => ok(name, path.to_string()),
        Origin::Fallback => ok(name, format!("{path}, since XDG_RUNTIME_DIR is not set")),
    }
}

fn terminal(facts: &Facts) -> Check {
    let name = "terminal";
    match &facts.terminal {
        TerminalFact::Present(Some(term)) => ok(name, format!("TERM is {term}")),
        TerminalFact::Present(None) => warn(name, "TERM is not set", "export TERM=xterm-256color"),
        TerminalFact::Absent => ok(name, "none here: 'lazaret run' needs none"),
    }
}

#[cfg(test)]
mod tests;
