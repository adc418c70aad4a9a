//! Makes files that are executed.
//!
//! Who writes a file and then executes it may be told "text file busy": while the file is open for
//! writing, another thread may fork, and that child holds the descriptor too until it executes its
//! own program (execve(2), ETXTBSY). Cases run in threads that start programs all the time. So install(1)
//! writes such a file: it has one thread, and has ended before anybody executes what it wrote.

use std::path::Path;

use anyhow::Result;

use super::command::Invocation;

/// Copies an executable.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    install(Invocation::new("install").arg("--mode=755").arg("--").arg(from).arg(to))
}

/// Writes a file that may be executed, or that has another mode.
pub fn write(path: &Path, content: impl Into<Vec<u8>>, mode: u32) -> Result<()> {
    let install = Invocation::new("install").arg(format!("--mode={mode:o}")).args(["--", "/dev/stdin"]);
    self::install(install.arg(path).input(content))
}

fn install(install: Invocation) -> Result<()> {
    install.run()?.ok().map(drop)
}
