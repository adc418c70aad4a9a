//! What is told about something that failed.

use serde::{Deserialize, Serialize};

/// Why something failed, in words for people.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Causes, outermost first.
    pub causes: Vec<String>,
    /// What the developer can do.
    pub hints: Vec<String>,
}

impl Failure {
    /// Describes an error by its chain of causes, without hints.
    pub fn of(error: &dyn std::error::Error) -> Self {
        let chain = std::iter::successors(Some(error), |cause| cause.source());
        Self { causes: chain.map(ToString::to_string).collect(), hints: vec![] }
    }

    /// Makes one of a sentence, without hints.
    pub fn message(text: impl Into<String>) -> Self {
        Self { causes: vec![text.into()], hints: vec![] }
    }

    /// Gives it these hints.
    pub fn with_hints(self, hints: Vec<String>) -> Self {
        Self { hints, ..self }
    }

    /// Adds a failure that came after it.
    pub fn append(&mut self, later: Self) {
        self.causes.extend(later.causes);
        self.hints.extend(later.hints);
    }

    /// Gives the causes on one line.
    pub fn line(&self) -> String {
        self.causes.join(": ")
    }
}
