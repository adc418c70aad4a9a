//! Waiting for conditions, always with a deadline.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until the condition holds; past the deadline it is an error that names what was awaited.
pub fn wait_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    eventually(what, deadline, || condition().then_some(()))
}

/// Waits until the function gives a value; past the deadline it is an error that names what was awaited.
pub fn eventually<T>(what: &str, deadline: Duration, mut attempt: impl FnMut() -> Option<T>) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return Ok(value);
        }
        if begin.elapsed() > deadline {
            bail!("not within {deadline:?}: {what}");
        }
        std::thread::sleep(INTERVAL);
    }
}
