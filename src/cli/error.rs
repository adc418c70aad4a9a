//! What a failed command says and the status it ends with.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use super::output;
use crate::domain::failure::Failure;

/// What kind of failure it is; decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command line asks for something that makes no sense: 2.
    Usage,
    /// Lazaret itself failed or refused: 125.
    Own,
    /// The session's program can't be executed: 126.
    NotExecutable,
    /// The session's program was not found: 127.
    NotFound,
    /// The user ended it with a signal: 128 and the signal's number.
    Signal(u8),
}

impl ErrorKind {
    /// Gives the exit status.
    pub fn status(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::Own => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// A failure on its way to the user.
///
/// It does not implement [`Error`], so that `?` turns any error into one.
#[derive(Debug)]
pub struct CliError {
    /// Decides the exit status.
    pub kind: ErrorKind,
    /// What happened, with its causes.
    pub source: Source,
    /// Particulars that are no causes, one line each.
    pub details: Vec<String>,
    /// What the user can do, one line each.
    pub hints: Vec<String>,
}

/// What happened.
#[derive(Debug)]
pub enum Source {
    /// An error with its chain of sources.
    Error(Box<dyn Error + Send + Sync>),
    /// What happened, and errors with a place in a file each.
    Diagnostics(String, Vec<miette::Report>),
    /// Causes that another process reported, outermost first.
    Causes(Vec<String>),
}

impl CliError {
    /// Makes a failure of Lazaret's own from a sentence.
    pub fn message(text: impl Into<String>) -> Self {
        Self::causes(vec![text.into()])
    }

    /// Makes a failure of Lazaret's own from causes, outermost first.
    pub fn causes(causes: Vec<String>) -> Self {
        Self { kind: ErrorKind::Own, source: Source::Causes(causes), details: Vec::new(), hints: Vec::new() }
    }

    /// Makes a failure of errors that show a place in a file each, under one sentence.
    pub fn diagnostics(text: String, reports: impl IntoIterator<Item = impl Into<miette::Report>>) -> Self {
        let source = Source::Diagnostics(text, reports.into_iter().map(Into::into).collect());
        Self { kind: ErrorKind::Own, source, details: Vec::new(), hints: Vec::new() }
    }

    /// Gives it another kind.
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Adds a particular, such as one of several differences.
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.details.push(detail.into());
        self
    }

    /// Tells whether it only says that nobody reads the output any more.
    pub fn is_broken_pipe(&self) -> bool {
        let Source::Error(error) = &self.source else { return false };
        error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// Adds something that the user can do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Prints the failure to standard error and gives the exit status.
    pub fn report(&self) -> ExitCode {
        let text = self.render(output::style(output::Target::Error));
        // With standard error gone there is nobody left to tell.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
        ExitCode::from(self.kind.status())
    }

    /// Gives the lines that are printed.
    pub fn render(&self, style: output::Style) -> String {
        let mut causes = self.chain().into_iter();
        let mut text = String::new();
        match causes.next() {
            Some(first) => text.push_str(&format!("lazaret: {} {first}\n", style.red("error:"))),
            None => text.push_str(&format!("lazaret: {}\n", style.red("error"))),
        }
        for cause in causes {
            text.push_str(&format!("  {} {cause}\n", style.dim("caused by:")));
        }
        for detail in &self.details {
            text.push_str(&format!("  {detail}\n"));
        }
        if let Source::Diagnostics(_, reports) = &self.source {
            text.extend(reports.iter().map(|report| format!("{report:?}\n")));
        }
        for hint in &self.hints {
            text.push_str(&format!("{} {hint}\n", style.cyan("hint:")));
        }
        text
    }

    /// Gives what happened and its causes, outermost first.
    pub fn chain(&self) -> Vec<String> {
        match &self.source {
            Source::Causes(causes) => causes.clone(),
            Source::Error(error) => Failure::of(error.as_ref()).causes,
            // Each report shows its own causes.
            Source::Diagnostics(text, _) => vec![text.clone()],
        }
    }
}

impl From<Failure> for CliError {
    fn from(Failure { causes, hints }: Failure) -> Self {
        Self { hints, ..Self::causes(causes) }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for CliError {
    fn from(error: E) -> Self {
        Self { kind: ErrorKind::Own, source: Source::Error(Box::new(error)), details: Vec::new(), hints: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::Style;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Step {
        text: &'static str,
        #[source]
        source: Option<Box<Step>>,
    }

    #[test]
    fn causes_and_hints_have_a_line_each() {
        let inner = Step { text: "permission denied", source: None };
        let outer = Step { text: "the lock can't be opened", source: Some(Box::new(inner)) };
        let error = CliError::from(outer).detail("mode 0755").hint("check the directory's owner");
        let expected = "\
lazaret: error: the lock can't be opened
  caused by: permission denied
  mode 0755
hint: check the directory's owner
";
        assert_eq!(error.render(Style::Plain), expected);
        assert!(error.render(Style::Coloured).contains("\u{1b}["));
    }

    #[test]
    fn kinds_have_their_status() {
        let statuses = [ErrorKind::Usage, ErrorKind::Own, ErrorKind::NotExecutable, ErrorKind::NotFound];
        assert_eq!(statuses.map(ErrorKind::status), [2, 125, 126, 127]);
        assert_eq!(ErrorKind::Signal(2).status(), 130);
    }
}
