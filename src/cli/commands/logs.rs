//! `lazaret logs`: what a Domain's processes wrote, for people or as it is.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::cli::args::DomainArgs;
use crate::cli::domains;
use crate::cli::error::CliError;
use crate::cli::output::{self, Style, Target, printable};
use crate::cli::places::Places;
use crate::observe;

/// How often a followed file is looked at.
const POLL: Duration = Duration::from_millis(200);

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    meant: DomainArgs,
    /// Go on with what is written from now on
    #[arg(short, long)]
    follow: bool,
    /// Show the Runtime Supervisor's log instead of the Host Coordinator's
    #[arg(long)]
    supervisor: bool,
    /// Begin with the last LINES lines
    #[arg(short = 'n', long, value_name = "LINES")]
    lines: Option<usize>,
    /// Print the lines as they are, a JSON object each
    #[arg(long)]
    json: bool,
}

/// Shows it.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let places = Places::from_environment()?;
    let record = domains::find(&places, &args.meant)?;
    let root = places.storage.domain(&record.domain);
    let path = if args.supervisor { root.supervisor_log() } else { root.coordinator_log() };
    let format = match args.json {
        true => Format::Raw,
        false => Format::People(output::style(Target::Output)),
    };
    match show(&path, &args, format) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(CliError::message(format!("{} has no such log yet", record.domain)))
        }
        Err(error) => Err(error.into()),
    }
}

/// How lines are shown.
#[derive(Debug, Clone, Copy)]
enum Format {
    Raw,
    People(Style),
}

fn show(path: &Path, args: &Args, format: Format) -> io::Result<()> {
    let mut log = LogFile::open(path)?;
    let mut lines = earlier_lines(path)?;
    log.read_lines(&mut lines)?;
    if let Some(count) = args.lines {
        lines.drain(..lines.len().saturating_sub(count));
    }
    print(&lines, format)?;
    if !args.follow {
        return Ok(());
    }
    loop {
        std::thread::sleep(POLL);
        lines.clear();
        log.read_lines(&mut lines)?;
        log.follow_rotation(path, &mut lines)?;
        print(&lines, format)?;
    }
}

/// Gives the lines of the file that was rotated away last.
fn earlier_lines(path: &Path) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    match LogFile::open(&observe::previous(path)) {
        Ok(mut log) => log.read_lines(&mut lines)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(lines)
}

/// A log file that is being read.
struct LogFile {
    reader: BufReader<File>,
    identity: (u64, u64),
    /// A line whose end was not written yet.
    partial: Vec<u8>,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let identity = identity(&file.metadata()?);
        Ok(Self { reader: BufReader::new(file), identity, partial: Vec::new() })
    }

    /// Reads the complete lines that are there.
    fn read_lines(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        while self.reader.read_until(b'\n', &mut self.partial)? > 0 {
            if self.partial.pop_if(|last| *last == b'\n').is_some() {
                lines.push(String::from_utf8_lossy(&std::mem::take(&mut self.partial)).into_owned());
            }
        }
        Ok(())
    }

    /// Goes on with the new file when the old one was rotated away.
    fn follow_rotation(&mut self, path: &Path, lines: &mut Vec<String>) -> io::Result<()> {
        match std::fs::metadata(path) {
            Ok(found) if identity(&found) == self.identity => Ok(()),
            Ok(_) => {
                // What was written to the old file between reading and rotation.
                self.read_lines(lines)?;
                *self = Self::open(path)?;
                self.read_lines(lines)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn identity(metadata: &std::fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn print(lines: &[String], format: Format) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        match format {
            Format::Raw => writeln!(out, "{line}")?,
            Format::People(style) => writeln!(out, "{}", readable(line, style))?,
        }
    }
    out.flush()
}

/// Turns a log line into one for people: time, level, message, then fields. A line that is no log
/// record stays as it is.
fn readable(line: &str, style: Style) -> String {
    let Ok(Value::Object(mut record)) = serde_json::from_str(line) else { return printable(line) };
    let mut take = |key: &str| record.remove(key).map(|value| text(&value)).unwrap_or_default();
    let (time, level, message) = (take("timestamp"), take("level"), take("message"));
    let level = match level.as_str() {
        "ERROR" => style.red("ERROR"),
        "WARN" => style.yellow("WARN "),
        other => style.dim(&format!("{other:<5}")),
    };
    let mut parts = vec![style.dim(&printable(&time)), level, printable(&message)];
    record.remove("target");
    let spans = record.remove("spans");
    for span in spans.as_ref().and_then(Value::as_array).into_iter().flatten() {
        parts.extend(span.as_object().map(|span| fields(span, style)));
    }
    parts.push(fields(&record, style));
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

fn fields(record: &Map<String, Value>, style: Style) -> String {
    let named = record.iter().filter(|(name, _)| *name != "name");
    let shown = named.map(|(name, value)| format!("{}={}", style.dim(&printable(name)), printable(&text(value))));
    shown.collect::<Vec<_>>().join(" ")
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_readable_and_harmless() {
        let line = r#"{"timestamp":"2026-11-30T10:00:00Z","level":"WARN","message":"lost \u001b[2J","pid":42,
            "target":"lazaret::x","spans":[{"domain":"d-1","generation":7,"name":"generation"}]}"#;
        let shown = readable(line, Style::Plain);
        assert_eq!(shown, "2026-11-30T10:00:00Z WARN  lost \\u{1b}[2J domain=d-1 generation=7 pid=42");
        assert_eq!(readable("thread 'main' panicked\u{7}", Style::Plain), "thread 'main' panicked\\u{7}");
    }

    #[test]
    fn following_survives_rotation_and_half_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("coordinator.log");
        std::fs::write(&path, "one\ntw").unwrap();
        let mut log = LogFile::open(&path).unwrap();
        let mut lines = Vec::new();
        log.read_lines(&mut lines).unwrap();
        assert_eq!(lines, ["one"]);
        let mut old = File::options().append(true).open(&path).unwrap();
        old.write_all(b"o\n").unwrap();
        std::fs::rename(&path, observe::previous(&path)).unwrap();
        old.write_all(b"three\n").unwrap();
        log.follow_rotation(&path, &mut lines).unwrap();
        assert_eq!(lines, ["one"], "no new file yet");
        std::fs::write(&path, "four\n").unwrap();
        log.follow_rotation(&path, &mut lines).unwrap();
        assert_eq!(lines, ["one", "two", "three", "four"]);
        assert_eq!(earlier_lines(&path).unwrap(), ["one", "two", "three"]);
    }
}
