//! What is told about something that failed.

/// Why something failed, in words for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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

    /// Gives the causes on one line.
    pub fn line(&self) -> String {
        self.causes.join(": ")
    }
}
