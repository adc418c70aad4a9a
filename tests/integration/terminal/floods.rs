//! Much input, much output, and terminals that are not read.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use sha2::{Digest, Sha256};

use super::NEEDS;
use super::shell::{DEADLINE, Shell};
use crate::harness::terminal::INTERRUPT;
use crate::harness::{Case, CaseResult, Environment, Need, case};

/// How much more memory a flood may take.
const GROWTH: u64 = 40 << 20;

pub fn cases() -> Vec<Case> {
    vec![
        case("a_paste_of_a_megabyte_arrives_whole", NEEDS, a_paste_of_a_megabyte),
        case("a_flood_of_output_takes_little_memory", &[Need::Sandbox, Need::Alone], a_flood_of_output),
        case("a_stalled_terminal_blocks_nobody_else", NEEDS, a_stalled_terminal),
    ]
}

fn a_paste_of_a_megabyte() -> CaseResult {
    let environment = Environment::lingering()?;
    let paste: Vec<u8> =
        (0..1_000_000u32).map(|n| b"abc~.\n\r\x03\x04\x1a\x11\x13 %\xff\x00"[(n * 7 % 16) as usize]).collect();
    let mut shell = Shell::start(&environment)?;
    shell.begin("stty raw -echo; echo re''ady; head -c 1000000 > pasted; stty sane; echo do''ne")?;
    shell.wait_for("ready")?;
    shell.send_bytes(&paste)?;
    shell.wait_for("done")?;
    let pasted = fs::read(environment.project().join("pasted"))?;
    ensure!(Sha256::digest(&pasted) == Sha256::digest(&paste), "{} bytes arrived, or other ones", pasted.len());
    shell.prompt()?;
    shell.finish(0)
}

fn resident(pid: i32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("it has memory")?;
    Ok(line.trim_end_matches("kB").trim().parse::<u64>()? << 10)
}

fn coordinator(environment: &Environment) -> Result<i32> {
    let all = environment.processes();
    let found = all.iter().find(|process| process.command.starts_with("lazaret: coordinator"));
    Ok(found.context("a coordinator runs")?.pid)
}

fn a_flood_of_output() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut shell = Shell::start(&environment)?;
    let pids = [shell.pid(), coordinator(&environment)?];
    let before = [resident(pids[0])?, resident(pids[1])?];
    let (mut most, bytes) = (before, shell.bytes());
    // The screen's emulation is what takes the time; the length of a line does not matter otherwise.
    shell.begin("head -c 100000000 /dev/zero | tr '\\0' x; echo; echo fl''ooded")?;
    crate::harness::wait_until("the flood is over", Duration::from_secs(120), || {
        for (most, pid) in most.iter_mut().zip(pids) {
            *most = (*most).max(resident(pid).unwrap_or(u64::MAX));
        }
        shell.bytes() - bytes > 100_000_000
    })?;
    shell.wait_for("flooded")?;
    for (name, most, before) in [("client", most[0], before[0]), ("coordinator", most[1], before[1])] {
        ensure!(most - before < GROWTH, "the {name} grew from {before} to {most} bytes");
    }
    shell.prompt()?;
    shell.finish(0)
}

fn a_stalled_terminal() -> CaseResult {
    let environment = Environment::lingering()?;
    let mut stalled = Shell::start(&environment)?;
    let mut other = Shell::start(&environment)?;
    let coordinator = coordinator(&environment)?;
    stalled.begin("yes $(seq 1 10)")?;
    stalled.wait_for("1 2 3 4 5 6 7 8 9 10\n1 2 3")?;
    stalled.look_away();
    let (before, bytes) = (resident(coordinator)?, stalled.bytes());
    for number in 0..10 {
        ensure!(other.run(&format!("echo $(({number}+100))"))?.contains(&format!("\n{}", number + 100)), "its own");
    }
    environment.in_sandbox("seq 1 100000").run()?.ok()?;
    let after = resident(coordinator)?;
    ensure!(after < before + GROWTH, "what nobody reads is kept: {before} to {after} bytes");
    ensure!(stalled.bytes() == bytes, "the terminal was read");
    stalled.look()?;
    stalled.send(INTERRUPT)?;
    stalled.prompt()?;
    stalled.finish(0)?;
    // One that is never read again does not keep its session from being ended.
    let mut stalled = Shell::start(&environment)?;
    stalled.begin("yes")?;
    stalled.wait_for("y\ny\ny")?;
    stalled.look_away();
    environment.lazaret(["down", "--yes"]).deadline(DEADLINE).run()?.ok()?;
    let code = other.wait_exit(DEADLINE)?;
    ensure!(code == 125, "status {code}\n{}", other.contents());
    Ok(())
}
