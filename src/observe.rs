//! The process's log: the only place that builds a tracing subscriber.
//!
//! Each process of a Domain writes one file in the Domain's `logs` directory, one JSON object a line.
//! Every line says whose it is: `domain`, `generation` once there is one, and `actor` when an actor's
//! file wrote it. They are added where a line is formatted, and not taken from a span, because a line may
//! come from any thread and task. A file that reaches [`SIZE_LIMIT`] becomes `NAME.1`, in the place of the one
//! before; the process does this itself, since nobody else is there for as long as it. `LAZARET_LOG`
//! takes filter directives such as `lazaret=debug`; without it, `info` and above are written.

mod rotation;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, JsonFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use self::rotation::RotatingFile;
pub use self::rotation::{directory, previous};
use crate::domain::ids::{DomainId, Generation};

/// Size at which a log file is rotated, in bytes.
pub const SIZE_LIMIT: u64 = 4 << 20;

/// The environment variable with filter directives.
pub const FILTER_VARIABLE: &str = "LAZARET_LOG";

/// What is written without directives. Of the actors' runtime, only what is wrong.
const DEFAULT_FILTER: &str = "info,ractor=warn";

/// The generation that this process serves; 0 while there is none.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// A log that can't be opened or installed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The file can't be opened.
    #[error("the log file {name} can't be opened")]
    Open {
        /// Its name in the directory.
        name: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A subscriber is installed already.
    #[error("the log is set up already")]
    Installed,
}

/// Whose log it is.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The Domain.
    pub domain: DomainId,
    /// The module below which the process's actors are, one a module.
    pub tree: &'static str,
    /// Those modules' names.
    pub actors: &'static [&'static str],
}

/// Writes this process's log to a file of this directory from now on.
pub fn to_file(directory: OwnedFd, name: &'static str, subject: Subject) -> Result<(), ObserveError> {
    let log = RotatingFile::open(directory, name, SIZE_LIMIT).map_err(|source| ObserveError::Open { name, source })?;
    // A line is one write behind the lock, so lines never mix.
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter())
        .with_writer(Mutex::new(log))
        .fmt_fields(JsonFields::new())
        .event_format(Line(subject))
        .finish();
    tracing::subscriber::set_global_default(subscriber).map_err(|_| ObserveError::Installed)?;
    log_panics();
    Ok(())
}

/// Says which generation every later line of this process is of.
pub fn serves(generation: Generation) {
    GENERATION.store(generation.0, Ordering::Relaxed);
}

/// Writes panics to the log as well: the standard error of a Domain's processes leads nowhere.
fn log_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!(%panic, "a thread panicked");
        before(panic);
    }));
}

fn filter() -> EnvFilter {
    let directives = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    let directives = if directives.is_empty() { DEFAULT_FILTER } else { &directives };
    EnvFilter::builder().with_default_directive(tracing::Level::INFO.into()).parse_lossy(directives)
}

/// Formats a line: a JSON object with the event's own fields, its spans, and the process's.
struct Line(Subject);

impl Line {
    /// Gives the actor that wrote a line with this target, which is a module's path.
    fn actor(&self, target: &str) -> Option<&'static str> {
        let below = target.strip_prefix(self.0.tree)?.strip_prefix("::")?;
        let module = below.split("::").next()?;
        self.0.actors.iter().copied().find(|actor| *actor == module)
    }
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let json = tracing_subscriber::fmt::format().json().flatten_event(true).with_current_span(false);
        let mut line = String::new();
        json.format_event(context, Writer::new(&mut line), event)?;
        out.write_str(line.trim_end().strip_suffix('}').ok_or(fmt::Error)?)?;
        write!(out, ",\"domain\":\"{}\"", self.0.domain)?;
        match GENERATION.load(Ordering::Relaxed) {
            0 => {}
            generation => write!(out, ",\"generation\":{generation}")?,
        }
        if let Some(actor) = self.actor(event.metadata().target()) {
            write!(out, ",\"actor\":\"{actor}\"")?;
        }
        out.write_str("}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn every_line_says_whose_it_is_from_any_thread() {
        let place = tempfile::tempdir().unwrap();
        let log = RotatingFile::open(directory(place.path()).unwrap(), "x.log", 1 << 20).unwrap();
        let domain: DomainId = "d-0123456789abcdef0123".parse().unwrap();
        let subject = Subject { domain, tree: "lazaret::actors::host", actors: &["registry"] };
        let subscriber = tracing_subscriber::fmt()
            .with_writer(Mutex::new(log))
            .fmt_fields(JsonFields::new())
            .event_format(Line(subject))
            .finish();
        let dispatch = tracing::Dispatch::new(subscriber);
        tracing::dispatcher::with_default(&dispatch, || {
            tracing::info!(target: "lazaret::actors::host::plan", "first");
        });
        serves(Generation(7));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tracing::dispatcher::with_default(&dispatch, || {
                    let _session = tracing::error_span!("session", session = "s").entered();
                    tracing::info!(target: "lazaret::actors::host::registry::sub", pid = 3, "quoted \"}}\n");
                });
            });
        });
        let text = std::fs::read_to_string(place.path().join("x.log")).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines.iter().all(|line| line["domain"] == "d-0123456789abcdef0123"), "{text}");
        assert!(lines[0]["generation"].is_null() && lines[0]["actor"].is_null() && lines[0]["message"] == "first");
        assert!(lines[1]["generation"] == 7 && lines[1]["actor"] == "registry" && lines[1]["pid"] == 3, "{text}");
        assert!(lines[1]["message"] == "quoted \"}\n" && lines[1]["spans"][0]["session"] == "s", "{text}");
    }
}
