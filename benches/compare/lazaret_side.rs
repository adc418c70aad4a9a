//! Lazaret as a subject, and what only it is measured for.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::harness::leftovers::Process;
use crate::harness::{Environment, Running, image, wait_until};
use crate::measure::{self, ECHO_SCRIPT, Sample, Turn, milliseconds};
use crate::peers::TEXT;
use crate::report::{Bound, Report, Row};
use crate::subject::Subject;

/// How long idle processes are watched.
const IDLE: Duration = Duration::from_secs(10);

/// Lazaret with the test profile in the sample project.
pub struct Lazaret<'a> {
    environment: &'a Environment,
    /// A session that keeps the Domain running.
    keeper: Option<Running>,
    prepared: bool,
}

impl<'a> Lazaret<'a> {
    /// Does nothing yet.
    pub fn new(environment: &'a Environment) -> Self {
        Self { environment, keeper: None, prepared: false }
    }

    fn prepare(&mut self) -> Result<()> {
        if !self.prepared {
            let reference = self.environment.image_reference();
            let prepare = self.environment.lazaret(["image", "prepare", &reference]);
            image::prepare_once(|| prepare.deadline(Duration::from_secs(180)).run()?.ok().map(drop))?;
            self.prepared = true;
        }
        Ok(())
    }

    /// Makes sure that a Domain runs, with one session in it.
    fn up(&mut self) -> Result<()> {
        self.prepare()?;
        if self.keeper.is_none() {
            let keeper =
                self.environment.lazaret(["run", "--", "sh", "-c", "echo up > /tmp/up; sleep 100000"]).spawn()?;
            self.keeper = Some(keeper);
            let up = || self.environment.in_sandbox("test -e /tmp/up").run().is_ok_and(|output| output.code() == 0);
            wait_until("the Domain runs", Duration::from_secs(30), up)?;
        }
        Ok(())
    }

    /// Ends the session that keeps the Domain running, and waits until nothing runs.
    fn down(&mut self) -> Result<()> {
        self.keeper = None;
        wait_until("nothing runs", Duration::from_secs(30), || self.environment.processes().is_empty())
    }

    /// Gives coordinator and supervisor.
    fn pair(&self) -> Result<Vec<Process>> {
        let pair: Vec<_> = self
            .environment
            .processes()
            .into_iter()
            .filter(|process| process.command.starts_with("lazaret: "))
            .collect();
        ensure!(pair.len() == 2, "expected a coordinator and a supervisor: {pair:?}");
        Ok(pair)
    }

    /// Measures memory and wake-ups of an idle Domain with one session.
    pub fn resources(&mut self, report: &mut Report) {
        let mut memory = Row::new("memory of coordinator + supervisor, one idle session, MB resident");
        let mut peak = Row::new("… at most, after the terminal output above, MB resident");
        let mut wakes = Row::new("wake-ups a second of coordinator + supervisor, one idle session");
        let measured = self.up().and_then(|()| {
            let pair = self.pair()?;
            let sum = |field: &str| pair.iter().map(|process| status(process.pid, field)).sum::<Result<f64>>();
            // What the start and the last measurement set in motion comes to rest first; a pool keeps an
            // idle thread for ten seconds.
            std::thread::sleep(Duration::from_secs(12));
            let before = switches(&pair)?;
            std::thread::sleep(IDLE);
            let woken: f64 = switches(&pair)?
                .into_iter()
                .map(|(task, count)| count - before.get(&task).copied().unwrap_or_default())
                .sum();
            Ok((sum("VmRSS:")? / 1024.0, sum("VmHWM:")? / 1024.0, woken / IDLE.as_secs_f64()))
        });
        let part = |select: fn(&(f64, f64, f64)) -> f64| match &measured {
            Ok(values) => Ok(vec![select(values)]),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        memory.take("lazaret", &part(|values| values.0));
        memory.demand_value("lazaret", Bound::Most(40.0));
        peak.take("lazaret", &part(|values| values.1));
        wakes.take("lazaret", &part(|values| values.2));
        wakes.demand_value("lazaret", Bound::Most(0.0));
        for row in [memory, peak, wakes] {
            report.add(row);
        }
    }

    /// Measures from the start of `lazaret down` to the end of the Domain's last process.
    pub fn teardown(&mut self) -> Result<Sample> {
        self.up()?;
        let keeper = self.keeper.as_ref().map(Running::pid);
        let running: Vec<_> =
            self.environment.processes().into_iter().filter(|process| Some(process.pid) != keeper).collect();
        let handles = running
            .iter()
            .filter_map(|process| pidfd_open(rustix::process::Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok());
        let handles: Vec<_> = handles.collect();
        let begin = Instant::now();
        let mut down = self.environment.lazaret(["down", "--yes"]).command();
        let status = down.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "lazaret down: {status}");
        let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
        for (process, handle) in running.iter().zip(&handles) {
            let ended = poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout))?;
            ensure!(ended == 1, "still there after 20 s: {process}");
        }
        let elapsed = begin.elapsed();
        self.down()?;
        Ok(milliseconds(elapsed))
    }

    /// Kills coordinator and supervisor, and measures to the first byte of the next session.
    pub fn recovery(&mut self) -> Result<Sample> {
        self.up()?;
        for process in self.pair()? {
            kill(Pid::from_raw(process.pid), Signal::SIGKILL)?;
        }
        let begin = Instant::now();
        let mut next = self.environment.lazaret(["run", "--", "echo", "x"]).command();
        let mut child = next.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut byte = [0];
        child.stdout.as_mut().context("stdout is piped")?.read_exact(&mut byte)?;
        let elapsed = begin.elapsed();
        ensure!(child.wait()?.success(), "the session after the kill failed");
        self.down()?;
        Ok(milliseconds(elapsed))
    }
}

impl Subject for Lazaret<'_> {
    fn name(&self) -> String {
        "lazaret".into()
    }

    fn start(&mut self) -> Turn {
        self.prepare()?;
        self.down()?;
        Ok(vec![measure::wall(self.environment.lazaret(["run", "--", "true"]).command())?])
    }

    fn join(&mut self) -> Turn {
        self.up()?;
        Ok(vec![measure::wall(self.environment.lazaret(["run", "--", "true"]).command())?])
    }

    fn echo(&mut self, keys: usize) -> Turn {
        self.up()?;
        measure::echo(&self.environment.lazaret(["up", "--", "sh", "-c", ECHO_SCRIPT]).command(), keys)
    }

    fn output(&mut self) -> Turn {
        self.up()?;
        let least = fs::metadata(self.environment.project().join(TEXT))?.len();
        let show = ["up".to_owned(), "--".to_owned(), "cat".to_owned(), format!("/workspace/{TEXT}")];
        measure::output(&self.environment.lazaret(show).command(), least)
    }
}

/// Reads a number from `/proc/PID/status`.
fn status(pid: i32, field: &str) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).with_context(|| format!("no {field}"))?;
    Ok(line.split_whitespace().next().context("an empty field")?.parse()?)
}

/// Gives the voluntary context switches of every thread of the processes: each is a wake-up to come.
fn switches(processes: &[Process]) -> Result<BTreeMap<String, f64>> {
    let mut switches = BTreeMap::new();
    for process in processes {
        for task in fs::read_dir(format!("/proc/{}/task", process.pid))? {
            let path = task?.path();
            let text = fs::read_to_string(path.join("status"))?;
            let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let count = count.context("no switches")?.trim().parse()?;
            switches.insert(path.display().to_string(), count);
        }
    }
    Ok(switches)
}
