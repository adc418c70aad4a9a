//! This program again, as root of a user namespace of its own: measures bare runsc there.
//!
//! Bare `runsc` is measured the way Lazaret runs it, without the cost of entering a namespace
//! for each measurement. Requests and replies are JSON lines on standard input and output.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use crate::measure::{self, Turn};

/// First argument that makes the program an agent.
pub const ARGUMENT: &str = "--agent";

/// What is measured, with the program and its arguments.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Wall time.
    Wall(Vec<String>),
    /// Echo of so many keys.
    Echo(Vec<String>, usize),
    /// Output of at least so many bytes.
    Output(Vec<String>, u64),
    /// Starts the program, and leaves it running until the agent ends.
    Keep(Vec<String>),
}

/// Answers requests until standard input ends; then kills what was kept.
pub fn serve() -> ExitCode {
    let mut kept = Vec::new();
    for line in stdin().lock().lines().map_while(Result::ok) {
        let answer = answer(&line, &mut kept).map_err(|error| format!("{error:#}"));
        let text = serde_json::to_string(&answer).unwrap_or_else(|error| format!("{{\"Err\":\"{error}\"}}"));
        if writeln!(stdout(), "{text}").is_err() {
            break;
        }
    }
    for mut child in kept {
        drop(child.kill());
        drop(child.wait());
    }
    ExitCode::SUCCESS
}

fn answer(line: &str, kept: &mut Vec<Child>) -> Turn {
    match serde_json::from_str(line)? {
        Request::Wall(words) => Ok(vec![measure::wall(command(&words)?)?]),
        Request::Echo(words, keys) => measure::echo(&command(&words)?, keys),
        Request::Output(words, least) => measure::output(&command(&words)?, least),
        Request::Keep(words) => {
            let mut command = command(&words)?;
            kept.push(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
            Ok(vec![])
        }
    }
}

fn command(words: &[String]) -> Result<Command> {
    let (program, arguments) = words.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

/// A running agent, ended when dropped.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    requests: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Agent {
    /// Starts an agent in user, mount and pid namespaces of its own.
    pub fn start(directory: &Path) -> Result<Self> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
        unshare.arg(std::env::current_exe()?).arg(ARGUMENT).current_dir(directory);
        let mut child = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let replies = BufReader::new(child.stdout.take().context("stdout is piped")?);
        Ok(Self { requests: child.stdin.take(), child, replies })
    }

    /// Has something measured.
    pub fn ask(&mut self, request: &Request) -> Turn {
        let requests = self.requests.as_mut().context("the agent is at work")?;
        writeln!(requests, "{}", serde_json::to_string(request)?)?;
        let mut line = String::new();
        self.replies.read_line(&mut line)?;
        let reply: Result<Vec<f64>, String> = serde_json::from_str(&line).context("the agent has ended")?;
        reply.map_err(|reason| anyhow!(reason))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.requests = None;
        drop(self.child.wait());
    }
}
