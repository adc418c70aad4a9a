//! Control sockets, the environment, the control mounts.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use fs_err as fs;

use super::{Prison, USERS};
use crate::harness::{Case, CaseResult, Invocation, Need, case, leftovers};

pub fn cases() -> Vec<Case> {
    vec![
        case("escape_control_sockets", &[Need::Sandbox], escape_control_sockets),
        case("escape_environment", &[Need::Sandbox], escape_environment),
    ]
}

fn escape_control_sockets() -> CaseResult {
    for user in USERS {
        let prison = Prison::new(user, "")?;
        let environment = &prison.environment;
        prison.shell("true")?;
        let workspace = environment.project();
        let shared = UnixListener::bind(workspace.join("host.sock"))?;
        shared.set_nonblocking(true)?;
        Invocation::new("mkfifo").arg(workspace.join("pipe")).run()?.ok()?;
        let name = format!("lazaret-test-{}-{user}", std::process::id());
        let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        hidden.set_nonblocking(true)?;

        let runtime = environment.runtime().join("lazaret");
        let own: Vec<PathBuf> = leftovers::files(&runtime).into_iter().map(PathBuf::from).collect();
        let sockets: Vec<_> = own.iter().filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
        ensure!(sockets.iter().any(|path| path.ends_with("hc.sock")), "no coordinator's socket: {own:?}");
        // With another user than root, runsc's directory belongs to a subordinate id.
        let runsc = sockets.iter().any(|path| path.to_string_lossy().contains("runsc-"));
        ensure!(runsc || user != "root", "no runsc socket: {own:?}");
        let mut arguments: Vec<String> = sockets.iter().map(|path| path.display().to_string()).collect();
        arguments.extend(["/workspace/host.sock", "/run/user/1000/bus", "/var/run/docker.sock"].map(str::to_owned));
        arguments.extend(["--".to_owned(), name]);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let outcomes = prison.attack(include_str!("../hostile/control.py"), &arguments)?;

        outcomes.expect_refused(|name| name.starts_with("connect "))?;
        outcomes.expect_refused(|name| name.starts_with("open "))?;
        ensure!(shared.accept().is_err(), "{user}: a host socket in the workspace was reached");
        ensure!(hidden.accept().is_err(), "{user}: an abstract socket of the host was reached");
        ensure!(
            UnixStream::connect(workspace.join("inside.sock")).is_err(),
            "{user}: a socket of the sandbox is the host's"
        );
        for name in ["unix", "inherited"] {
            ensure!(outcomes.fact(name)? == &serde_json::json!([]), "{user}: {name}: {}", outcomes.fact(name)?);
        }
        let visible = outcomes.fact("control")?.as_array().context("a list")?;
        let expected =
            ["bin", "bin/lazaret-escalate", "bin/lazaret-guest", "mailbox", "mailbox/requests", "mailbox/results"];
        let unexpected =
            |path: &str| !expected.iter().any(|known| Path::new("/run/lazaret").join(known) == Path::new(path));
        let surplus: Vec<_> = visible.iter().filter_map(|path| path.as_str()).filter(|path| unexpected(path)).collect();
        ensure!(surplus.iter().all(|path| path.ends_with("/x.sock")), "{user}: also visible: {surplus:?}");
        fs::remove_file(workspace.join("host.sock"))?;
    }
    Ok(())
}

/// Variables of the developer's shell stay there, but for those that describe the terminal or are named.
fn escape_environment() -> CaseResult {
    let prison = Prison::new("dev", "[env]\npass = [\"WANTED\"]\nset = { FIXED = \"yes\" }")?;
    let run = prison.environment.lazaret(["run", "--", "env", "-0"]);
    let run = run.env("SECRET_TOKEN", "leak").env("WANTED", "wanted").env("LD_PRELOAD_X", "leak").env("FIXED", "no");
    let run = run.env("SSH_AUTH_SOCK", "/leak").env("LAZARET_DOMAIN", "leak").env("BASH_ENV", "/leak");
    let output = run.run()?.ok()?.stdout();
    let names: Vec<_> =
        output.split('\0').filter_map(|variable| variable.split('=').next()).filter(|n| !n.is_empty()).collect();
    const KNOWN: [&str; 13] = [
        "HOME",
        "LANG",
        "LAZARET_DOMAIN",
        "LAZARET_SESSION",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
        "WANTED",
        "FIXED",
        "PWD",
        "LC_ALL",
    ];
    ensure!(names.iter().all(|name| KNOWN.contains(name)), "{names:?}");
    ensure!(!output.contains("leak") && output.contains("WANTED=wanted") && output.contains("FIXED=yes"), "{output}");
    let base = prison.environment.directory().display().to_string();
    ensure!(!output.contains(&base), "a path of the host leaks: {output}");
    // Neither init nor the session's wrapper holds more.
    let all = prison.shell("cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")?;
    ensure!(!all.contains(&base) && !all.contains("XDG_"), "{all}");
    Ok(())
}
