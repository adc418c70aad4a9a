//! The harness keeps its promises: what the cases rest on is itself tested.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::harness::network::{DENIED, DENIED_TOO, PERMITTED, PERMITTED_V6, PORT};
use crate::harness::{
    Case, CaseResult, Environment, Invocation, Need, Terminal, Tmux, case, leftovers, root, wait_until,
};

pub fn cases() -> Vec<Case> {
    vec![
        case("cases_do_not_run_as_root", &[Need::Root], cases_do_not_run_as_root),
        case("hosts_answer_and_are_counted", &[Need::TestNetwork, Need::Root], hosts_answer_and_are_counted),
        case("nothing_leads_out", &[Need::TestNetwork], nothing_leads_out),
        case("names_resolve", &[Need::TestNetwork], names_resolve),
        case("a_hanging_program_is_killed", &[], a_hanging_program_is_killed),
        case("a_terminal_is_a_controlling_terminal", &[], a_terminal_is_a_controlling_terminal),
        case("a_terminal_that_is_left_raw_is_noticed", &[], a_terminal_that_is_left_raw_is_noticed),
        case("tmux_shows_a_program", &[Need::Program("tmux")], tmux_shows_a_program),
        case("a_left_over_process_is_found", &[], a_left_over_process_is_found),
        case("a_machine_can_lack_things", &[Need::Root], a_machine_can_lack_things),
    ]
}

fn cases_do_not_run_as_root() -> CaseResult {
    let status = fs_err::read_to_string("/proc/self/status")?;
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    ensure!(!line("Uid:").contains("\t0"), "runs as root: {}", line("Uid:"));
    for set in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
        ensure!(line(set).ends_with("0000000000000000"), "has capabilities: {}", line(set));
    }
    ensure!(line("Groups:").trim() == "Groups:", "is in groups: {}", line("Groups:"));
    Ok(())
}

fn hosts_answer_and_are_counted() -> CaseResult {
    for host in [PERMITTED, DENIED, DENIED_TOO, PERMITTED_V6] {
        let counted = || Ok::<_, anyhow::Error>(root::contacts()?.get(&format!("tcp {host}")).copied().unwrap_or(0));
        let before = counted()?;
        let address = (host, PORT).to_socket_addrs()?.next().unwrap();
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.ends_with(&format!("hello from {host}\n")), "{host} answered {answer:?}");
        ensure!(counted()? > before, "the contact with {host} was not counted");
    }
    Ok(())
}

fn nothing_leads_out() -> CaseResult {
    let route = Invocation::new("ip").args(["route", "get", "203.0.113.1"]).run()?;
    ensure!(route.code() != 0, "a route leads out of the test network: {}", route.stdout());
    Ok(())
}

fn names_resolve() -> CaseResult {
    let looked_up = |name: &str| -> Result<Vec<String>> {
        let output = Invocation::new("getent").args(["ahostsv4", name]).run()?;
        let text = output.stdout();
        Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
    };
    ensure!(looked_up("permitted.test")?.contains(&PERMITTED.to_owned()));
    ensure!(looked_up("denied.test")?.contains(&DENIED.to_owned()));
    ensure!(looked_up("resolver.test")?.contains(&"198.51.100.53".to_owned()));
    ensure!(looked_up("unknown.test")?.is_empty());
    Ok(())
}

fn a_hanging_program_is_killed() -> CaseResult {
    let hanging = Invocation::new("sh").args(["-c", "echo began; sleep 1000"]).deadline(Duration::from_millis(200));
    let error = hanging.run().unwrap_err().to_string();
    ensure!(error.contains("killed after") && error.contains("began"), "{error}");
    Ok(())
}

fn a_terminal_is_a_controlling_terminal() -> CaseResult {
    let environment = Environment::new()?;
    let shell = environment.invocation("bash").args(["--norc", "--noprofile"]).env("PS1", "ready> ");
    let mut terminal = Terminal::start(&shell, 30, 100)?;
    terminal.wait_for("ready>")?;
    terminal.send_line("stty size; tty")?;
    terminal.wait_for("30 100")?;
    terminal.wait_for("/dev/pts/")?;
    terminal.resize(41, 77)?;
    // Readline would swallow what is typed before the job is in the foreground.
    terminal.send_line("sh -c 'echo job $((6 * 7)); exec sleep 1000'")?;
    terminal.wait_for("job 42")?;
    terminal.send("\x1a")?;
    terminal.wait_for("Stopped")?;
    terminal.send_line("kill %1; stty size; exit 7")?;
    terminal.wait_for("41 77")?;
    ensure!(terminal.wait_exit(Duration::from_secs(5))? == 7);
    terminal.expect_sane()
}

fn a_terminal_that_is_left_raw_is_noticed() -> CaseResult {
    let environment = Environment::new()?;
    let mut terminal = Terminal::start(&environment.invocation("stty").arg("raw"), 24, 80)?;
    ensure!(terminal.wait_exit(Duration::from_secs(5))? == 0);
    ensure!(terminal.expect_sane().is_err());
    Ok(())
}

fn tmux_shows_a_program() -> CaseResult {
    let environment = Environment::new()?;
    let tmux = Tmux::start(&environment, "bash --norc --noprofile", 24, 80)?;
    tmux.send("echo $((6 * 7))x")?;
    tmux.press("Enter")?;
    tmux.wait_for("42x", Duration::from_secs(5))
}

fn a_left_over_process_is_found() -> CaseResult {
    let environment = Environment::new()?;
    // It leaves the session and its parent; only its environment tells where it comes from.
    let daemon = environment.invocation("sh").args(["-c", "setsid sleep 1000 >/dev/null 2>&1 </dev/null &"]);
    daemon.run()?.ok()?;
    let found = || environment.leftovers().iter().any(|left| left.contains("sleep 1000"));
    wait_until("the daemon is found", Duration::from_secs(5), found)?;
    environment.processes().iter().for_each(leftovers::Process::kill);
    environment.expect_nothing_left(Duration::from_secs(5))
}

fn a_machine_can_lack_things() -> CaseResult {
    use root::{Deprived, Lack, Who};
    let environment = Environment::new()?;
    let script = "test -e /usr/bin/newuidmap && echo newuidmap; cat /etc/subuid; id -u; echo done > /dev/fuse";
    let output = root::run(Deprived {
        who: Who::Nobody,
        lacks: vec![
            Lack::Missing("/usr/bin/newuidmap".into()),
            Lack::Replaced("/etc/subuid".into(), "nobody of importance\n".into(), 0o644),
            Lack::Replaced("/dev/fuse".into(), String::new(), 0),
        ],
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        environment: environment.variables().into_iter().collect(),
        directory: "/".into(),
    })?;
    ensure!(output.stdout == "nobody of importance\n65534\n", "{output:?}");
    ensure!(output.stderr.contains("ermission denied"), "{output:?}");
    ensure!(std::path::Path::new("/usr/bin/newuidmap").exists(), "only that program's machine lacks it");
    Ok(())
}
