//! What is done, one JSON object a line, in the file that `LAZARET_TRACE` names.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{LazyLock, OnceLock};

use serde_json::{Map, Value};

/// The variable.
const VARIABLE: &str = "LAZARET_TRACE";

/// The trace, when one is asked for.
static TRACE: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = std::env::var_os(VARIABLE)?;
    let opened = OpenOptions::new().create(true).append(true).open(&path);
    Some(opened.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
});

/// The Domain that this process serves.
static DOMAIN: OnceLock<String> = OnceLock::new();

/// One action with its parameters.
#[derive(Debug)]
#[must_use = "an event is to be written"]
pub struct Event(Map<String, Value>);

/// Begins an event of an action.
pub fn event(action: &str) -> Event {
    Event(Map::new()).with("action", &action)
}

impl Event {
    /// Adds a parameter.
    pub fn with(mut self, field: &str, value: &dyn Display) -> Self {
        self.0.insert(field.to_owned(), value.to_string().into());
        self
    }

    /// Adds the generation.
    pub fn of_generation(mut self, generation: u64) -> Self {
        self.0.insert("generation".to_owned(), generation.into());
        self
    }

    /// Adds a parameter that is a list.
    pub fn with_all(mut self, field: &str, values: impl IntoIterator<Item = impl Display>) -> Self {
        let values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
        self.0.insert(field.to_owned(), values.into());
        self
    }

    /// Appends it.
    pub fn write(self) {
        write([self]);
    }

    fn line(mut self) -> String {
        if let Some(domain) = DOMAIN.get() {
            self.0.entry("domain").or_insert_with(|| domain.as_str().into());
        }
        self.0.insert("process".to_owned(), std::process::id().into());
        format!("{}\n", Value::Object(self.0))
    }
}

/// Appends events, all by one write(2).
pub fn write(events: impl IntoIterator<Item = Event>) {
    let Some(mut trace) = TRACE.as_ref() else { return };
    let lines: String = events.into_iter().map(Event::line).collect();
    if let Err(error) = trace.write_all(lines.as_bytes()) {
        panic!("the trace can't be written: {error}");
    }
}

/// Tells whether a trace is asked for.
pub fn is_on() -> bool {
    TRACE.is_some()
}

/// Says which Domain the events of this process are of.
pub fn serves(domain: &dyn Display) {
    DOMAIN.get_or_init(|| domain.to_string());
}

/// Gives the variable for a process that gets an environment of its own.
pub fn handed_on() -> Option<(OsString, OsString)> {
    std::env::var_os(VARIABLE).map(|value| (VARIABLE.into(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_of_what_the_model_knows() {
        let line = event("Refuse").of_generation(3).with_all("participants", ["Scratch"]).with("client", &"c").line();
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            read,
            serde_json::json!({
                "action": "Refuse", "generation": 3, "participants": ["Scratch"], "client": "c",
                "process": std::process::id(),
            })
        );
        assert!(line.ends_with('\n') && line.lines().count() == 1);
    }
}
