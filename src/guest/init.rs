//! `lazaret-guest init`: process 1 of the sandbox.
//!
//! First it probes the network (FR-20), because no session may run before that; then it mends what
//! sessions need in `/dev`; then the report's line tells the Runtime Supervisor that both are done.
//! From there on it only reaps, and sleeps in between; and when the Runtime Supervisor tells it to
//! ([`SWEEP`]), it kills what a session without its wrapper has left to it. gVisor gives its process 1 no immunity from
//! signals, so all that can be blocked are; a SIGKILL by root in the sandbox still ends it.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::prctl;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::probe;
use super::session::events::{Events, Wake, reap};
use super::session::{FAILED, say, tree};
use crate::domain::network::{ProbePlan, ProbeReport};
use crate::wire::lifeline::SWEEP;

/// How long a sweep looks out for what is left behind: the wrapper may be about to die when it begins.
const SWEEP_TIME: Duration = Duration::from_millis(500);

/// How often it looks.
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// What programs expect in `/dev` besides devices, and where it leads.
const STREAM_LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// The name of the controlling terminal.
const TERMINAL: &str = "/dev/tty";

/// A second name of the terminal, made before the first: ttyname(3) gives what it finds first, and tmux refuses
/// to work on a terminal called `/dev/tty`. Containers commonly have their terminal under this name.
const CONSOLE: &str = "/dev/console";

/// Where the new [`TERMINAL`] is made before it takes its place.
const NEW_TERMINAL: &str = "/dev/.lazaret-tty";

/// Where a session's terminal can always be found: what its standard error is. On this gVisor the
/// whole of an interactive session's standard streams is one terminal.
const OWN_TERMINAL: &str = "/proc/self/fd/2";

/// Probes, reports, and reaps until it is killed.
pub fn run(plan: &ProbePlan) -> u8 {
    let mut events = match Events::block(None) {
        Ok(events) => events,
        Err(error) => {
            say(&format!("cannot block signals: {error}"));
            return FAILED;
        }
    };
    let report = probe::run(plan);
    prepare_devices();
    let _ = prctl::set_name(c"lazaret-init");
    if let Err(error) = announce(&report) {
        say(&format!("cannot report the network probe: {error}"));
        return FAILED;
    }
    leave_streams();
    loop {
        match events.next(None) {
            Some(Wake::Child) => while let Ok(Some(_)) = reap() {},
            Some(Wake::Forward(signal)) if signal as i32 == SWEEP => sweep(&mut events),
            _ => {}
        }
    }
}

/// Kills every child and what descends from it. A session's wrapper is no child of this process, and while
/// it lives nothing of its session is.
fn sweep(events: &mut Events) {
    let deadline = Instant::now() + SWEEP_TIME;
    while Instant::now() < deadline {
        tree::end(events);
        events.next(Some(Instant::now() + SWEEP_PAUSE));
    }
}

/// Writes the report as one line.
fn announce(report: &ProbeReport) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    let mut output = std::io::stdout().lock();
    output.write_all(&line)?;
    output.flush()
}

/// Makes the links that an image's `/dev` may lack, and `/dev/tty` when the sandbox's own cannot be
/// opened. What fails here leaves a session less comfortable and not less safe, so it goes on.
fn prepare_devices() {
    for (target, link) in STREAM_LINKS {
        if let Err(error) = symlink(target, link)
            && error.kind() != ErrorKind::AlreadyExists
        {
            say(&format!("cannot make {link}: {error}"));
        }
    }
    // gVisor before October 2024 fails with EIO whoever opens it; a working one says ENXIO to a
    // process without a terminal, such as this one.
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(TERMINAL);
    let broken = match &opened {
        Err(error) => error.raw_os_error() == Some(libc::EIO) || error.kind() == ErrorKind::NotFound,
        Ok(_) => false,
    };
    if broken {
        // An image's own, or one made before, serves as well.
        let _ = symlink(OWN_TERMINAL, CONSOLE);
        let _ = std::fs::remove_file(NEW_TERMINAL);
        let replaced = symlink(OWN_TERMINAL, NEW_TERMINAL).and_then(|()| std::fs::rename(NEW_TERMINAL, TERMINAL));
        if let Err(error) = replaced {
            say(&format!("cannot replace {TERMINAL}: {error}"));
        }
    }
}

/// Points the standard streams at `/dev/null`, which closes the pipes to the Runtime Supervisor.
fn leave_streams() {
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}
