//! `lazaret logs`: what a Domain's processes wrote, for people or as it is.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::cli::args::DomainArgs;
use crate::cli::domains::{self, FindError};
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
    let record = domains::find(&places, &args.meant).map_err(FindError::into_cli)?;
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
    let (mut log, mut lines) = begin(path)?;
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
        log.follow(path, &mut lines)?;
        print(&lines, format)?;
    }
}

/// Opens a log and reads what is there, first what was rotated away last.
fn begin(path: &Path) -> io::Result<(LogFile, Vec<String>)> {
    loop {
        let mut log = LogFile::open(path)?;
        let mut lines = Vec::new();
        match LogFile::open(&observe::previous(path)) {
            // It was rotated away between the two, so that there is a newer one.
            Ok(older) if older.identity == log.identity => continue,
            Ok(mut older) => older.read_lines(&mut lines)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        log.read_lines(&mut lines)?;
        return Ok((log, lines));
    }
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

    /// Reads what is new, also in a file that took the place of this one.
    fn follow(&mut self, path: &Path, lines: &mut Vec<String>) -> io::Result<()> {
        let found = match std::fs::metadata(path) {
            Ok(found) => found,
            // It is being rotated away; the next look shows the new one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.read_lines(lines),
            Err(error) => return Err(error),
        };
        if identity(&found) != self.identity {
            // What was written to the old one before it was rotated away.
            self.read_lines(lines)?;
            *self = Self::open(path)?;
        } else if found.len() < self.reader.stream_position()? {
            // It could not be rotated away and was emptied.
            *self = Self::open(path)?;
        }
        self.read_lines(lines)
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
    // Which Domain it is the user has said, and what wrote the line its `actor` says.
    record.remove("domain");
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
            "target":"lazaret::x","spans":[{"session":"5e","name":"session"}],"domain":"d-1","generation":7}"#;
        let shown = readable(line, Style::Plain);
        assert_eq!(shown, "2026-11-30T10:00:00Z WARN  lost \\u{1b}[2J session=5e generation=7 pid=42");
        assert_eq!(readable("thread 'main' panicked\u{7}", Style::Plain), "thread 'main' panicked\\u{7}");
    }

    #[test]
    fn following_survives_rotation_and_half_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("coordinator.log");
        std::fs::write(&path, "one\ntw").unwrap();
        let (mut log, mut lines) = begin(&path).unwrap();
        assert_eq!(lines, ["one"]);
        let mut old = File::options().append(true).open(&path).unwrap();
        old.write_all(b"o\n").unwrap();
        std::fs::rename(&path, observe::previous(&path)).unwrap();
        log.follow(&path, &mut lines).unwrap();
        assert_eq!(lines, ["one", "two"], "no new file yet");
        old.write_all(b"three\n").unwrap();
        std::fs::write(&path, "four\n").unwrap();
        log.follow(&path, &mut lines).unwrap();
        assert_eq!(lines, ["one", "two", "three", "four"]);
        assert_eq!(begin(&path).unwrap().1, lines);
        std::fs::write(&path, "5\n").unwrap();
        log.follow(&path, &mut lines).unwrap();
        assert_eq!(lines.last().unwrap(), "5", "emptied in its place");
    }
}
