//! Nothing is ever written.

use std::ffi::OsString;
use std::fmt::Display;

/// An event that nobody asks for.
#[derive(Debug)]
#[must_use = "an event is to be written"]
pub struct Event;

/// Begins an event.
pub fn event(_action: &str) -> Event {
    Event
}

impl Event {
    /// Gives the event.
    pub fn with(self, _field: &str, _value: &dyn Display) -> Self {
        self
    }

    /// Gives the event.
    pub fn of_generation(self, _generation: u64) -> Self {
        self
    }

    /// Gives the event.
    pub fn with_all(self, _field: &str, _values: impl IntoIterator<Item = impl Display>) -> Self {
        self
    }

    /// Does nothing.
    pub fn write(self) {}
}

/// Does nothing.
pub fn write(_events: impl IntoIterator<Item = Event>) {}

/// Nothing is.
pub fn is_on() -> bool {
    false
}

/// Does nothing.
pub fn serves(_domain: &dyn Display) {}

/// Nothing to hand on.
pub fn handed_on() -> Option<(OsString, OsString)> {
    None
}
