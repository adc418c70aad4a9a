//! The stages of a run: whoever starts it, root, the unprivileged user.
//!
//! - Started as **root**: makes what only root can (devices that everybody may open, the test user, the
//!   test network), starts itself again as that user, serves it, and at the end checks that nothing is
//!   left and removes the run's directory. Its namespaces vanish with it.
//! - Started as a **user with sudo**: starts itself again as root.
//! - Started as a **user without**: runs the cases as that user; those that need the test network
//!   or root are ignored with the reason.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use fs_err as fs;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, Uid, chown};

use super::world::{VARIABLE, World, copy_binaries};
use super::{command, executable, image, leftovers, network, replay, root, user};

/// Variables that reach the unprivileged stage besides the world.
const PASSED: [&str; 8] = [
    "LAZARET_REQUIRE",
    "LAZARET_TEST_KEEP",
    "LAZARET_TEST_REPEAT",
    "LAZARET_LOG",
    "PATH",
    "RUST_BACKTRACE",
    "TERM",
    "LANG",
];

/// What the name of a run's directory begins with; its process id follows.
const PREFIX: &str = "lzt-";

/// Goes through the stages. Gives the exit code when another process ran the cases, and nothing when
/// this one is to run them.
pub fn enter() -> Option<ExitCode> {
    let outcome = match World::from_environment() {
        Ok(Some(world)) => {
            // The root stage blocks them, and programs that cases start would inherit that.
            interruptions().thread_unblock().expect("the set is valid");
            world.install();
            return None;
        }
        Ok(None) if Uid::effective().is_root() => as_root(),
        Ok(None) if may_sudo() => Err(through_sudo()),
        Ok(None) => match as_plain_user() {
            Ok(()) => return None,
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    Some(outcome.unwrap_or_else(|error| {
        eprintln!("the test run could not be set up: {error:?}");
        ExitCode::FAILURE
    }))
}

fn may_sudo() -> bool {
    let mut sudo = Command::new("sudo");
    sudo.args(["-n", "true"]).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    sudo.status().is_ok_and(|status| status.success())
}

/// Replaces this process by itself as root; gives the error when that fails.
fn through_sudo() -> anyhow::Error {
    let passed = PASSED.into_iter().filter_map(|name| Some(format!("{name}={}", std::env::var(name).ok()?)));
    let cache = format!("{}={}", image::CACHE_VARIABLE, image::cache().display());
    let mut sudo = Command::new("sudo");
    sudo.args(["-n", "--", "env"]).args(passed).arg(cache).args(std::env::args_os());
    anyhow::Error::from(sudo.exec()).context("cannot run sudo")
}

fn as_plain_user() -> Result<()> {
    let base = make_base()?;
    World {
        binaries: copy_binaries(&base)?,
        image: image::ensure_below(&base).map_err(|error| format!("{error:?}")),
        model: replay::ensure_below(&base).map_err(|error| format!("{error:?}")),
        base,
        root: None,
        resolv_conf: None,
        no_network: Some("the run was not started by root or with sudo".to_owned()),
    }
    .install();
    Ok(())
}

/// Makes this run's directory, and removes those of runs that were killed.
fn make_base() -> Result<PathBuf> {
    for entry in fs::read_dir("/var/tmp")?.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let mark = format!("{}/", entry.path().display());
            leftovers::processes(&[mark.as_bytes()]).iter().for_each(leftovers::Process::kill);
            // It may be another user's; then it stays.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
    let path = &Path::new("/var/tmp").join(format!("{PREFIX}{}", std::process::id()));
    fs::create_dir(path)?;
    fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path.to_owned())
}

/// The signals that end a run early.
fn interruptions() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
}

fn as_root() -> Result<ExitCode> {
    // Blocked in all threads to come, so that the one that waits for them gets them.
    interruptions().thread_block()?;
    let base = make_base()?;
    let outcome = run_as_root(&base);
    let left = leftovers::processes(&[format!("{}/", base.display()).as_bytes()]);
    for process in &left {
        eprintln!("left over after the whole run, now killed: {process}");
        process.kill();
    }
    if std::env::var_os("LAZARET_TEST_KEEP").is_some() {
        eprintln!("kept, as LAZARET_TEST_KEEP says: {}", base.display());
    } else {
        fs::remove_dir_all(&base)?;
    }
    outcome.map(|code| if left.is_empty() { code } else { ExitCode::FAILURE })
}

fn run_as_root(base: &Path) -> Result<ExitCode> {
    for device in ["/dev/fuse", "/dev/net/tun"] {
        // A missing device makes cases report their need as unmet.
        drop(fs::set_permissions(device, std::fs::Permissions::from_mode(0o666)));
    }
    let user = user::ensure().context("cannot make the test user")?;
    let binaries = copy_binaries(base)?;
    // Both may need the machine's network, so they come before the namespace without one.
    let image = image::ensure_below(base).map_err(|error| format!("{error:?}"));
    let model = replay::ensure_below(base).map_err(|error| format!("{error:?}"));
    let network = network::enter(base).and_then(|resolv_conf| network::serve().map(|()| resolv_conf));
    let (resolv_conf, no_network) = match network {
        Ok(resolv_conf) => (Some(resolv_conf), None),
        Err(error) => (None, Some(format!("{error:?}"))),
    };
    let root = Some(root::serve(base, user)?);
    for directory in [base, &base.join("c"), &base.join("data")] {
        fs::create_dir_all(directory)?;
        chown(directory, Some(user.uid), Some(user.gid))?;
    }
    let world = World { base: base.to_owned(), binaries, image, model, root, resolv_conf, no_network };
    let mut cases = Command::new("setpriv");
    cases.arg(format!("--reuid={}", user.uid)).arg(format!("--regid={}", user.gid));
    cases.args(["--clear-groups", "--pdeathsig=KILL", "--"]);
    cases.arg(own_executable(base)?).args(std::env::args_os().skip(1));
    cases.env_clear().env(VARIABLE, serde_json::to_string(&world)?).current_dir("/");
    cases.envs(PASSED.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let mut cases = cases.spawn().context("cannot start the unprivileged stage")?;
    let pid = Pid::from_raw(i32::try_from(cases.id())?);
    std::thread::spawn(move || {
        // Whoever interrupts the run wants it to end, and the machine to be as before.
        if let Ok(signal) = interruptions().wait() {
            eprintln!("{signal}: the run is abandoned");
            let _ = kill(pid, Signal::SIGKILL);
        }
    });
    let status = cases.wait()?;
    Ok(ExitCode::from(u8::try_from(command::code(status)).unwrap_or(1)))
}

/// Copies this executable to where the unprivileged user may run it.
fn own_executable(base: &Path) -> Result<PathBuf> {
    let copy = base.join("bin/integration");
    executable::copy(&std::env::current_exe()?, &copy)?;
    Ok(copy)
}
