//! What can be wrong with configuration, and how it is shown.

use std::path::PathBuf;

use miette::{Diagnostic, SourceSpan};
use serde::Serialize;

use super::excerpt::NamedText;
use crate::cli::error::CliError;
use crate::domain::ids::ProfileName;

/// One mistake at one place in a file.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
    /// The file.
    pub path: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1 and in characters.
    pub column: usize,
    /// The exact value.
    pub span: SourceSpan,
    /// The file's text, to show the place.
    pub source_code: NamedText,
}

impl Diagnostic for Problem {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        Some(Box::new(&self.help))
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        Some(&self.source_code)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = miette::LabeledSpan> + '_>> {
        Some(Box::new(std::iter::once(miette::LabeledSpan::new_with_span(Some("here".to_owned()), self.span))))
    }
}

/// A [`Problem`] as `config check --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProblemRecord {
    /// The file, when the problem has one.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<usize>,
    /// Column, from 1.
    pub column: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

/// Every mistake that was found in the files that make up one configuration.
#[derive(Debug)]
pub struct Problems {
    first: Box<Problem>,
    others: Vec<Problem>,
}

impl Problems {
    /// Takes a single problem.
    pub fn one(problem: Problem) -> Self {
        Self { first: Box::new(problem), others: Vec::new() }
    }

    /// Gives the problems as one, in the order of the text, when there are any.
    pub fn collect(mut problems: Vec<Problem>) -> Option<Self> {
        problems.sort_by(|one, other| (&one.path, one.span.offset()).cmp(&(&other.path, other.span.offset())));
        let mut problems = problems.into_iter();
        Some(Self { first: Box::new(problems.next()?), others: problems.collect() })
    }

    /// Gives each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        std::iter::once(&*self.first).chain(&self.others)
    }
}

impl std::fmt::Display for Problems {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.others.len() {
            0 => f.write_str("the configuration has a mistake"),
            more => write!(f, "the configuration has {} mistakes", more + 1),
        }
    }
}

impl std::error::Error for Problems {}

/// Configuration that cannot be used. Turn it into a [`CliError`] with [`ConfigError::into_cli`],
/// which keeps the place and the hints; a plain `?` would lose them.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Neither `XDG_CONFIG_HOME` nor `HOME` says where configuration is.
    #[error("no home directory: neither XDG_CONFIG_HOME nor HOME is an absolute path")]
    NoHome,
    /// The file exists but cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Something else is in the file's place.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// No configuration file is that long.
    #[error("{} is larger than {} KiB, which no configuration file needs", path.display(), limit >> 10)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Most bytes that are read.
        limit: u64,
    },
    /// TOML is UTF-8.
    #[error("{} is not UTF-8 text, as line {line} shows", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line with the first wrong byte.
        line: usize,
    },
    /// There is no configuration at all.
    #[error("there is no configuration in {} yet", directory.display())]
    Nothing {
        /// The configuration directory.
        directory: PathBuf,
    },
    /// No profile was named and none is the default.
    #[error("no profile is chosen: the configuration has no default_profile")]
    NoneChosen {
        /// Profiles that exist.
        known: Vec<ProfileName>,
    },
    /// The profile's file does not exist.
    #[error("there is no profile '{name}': {} does not exist", path.display())]
    NoSuchProfile {
        /// The profile.
        name: ProfileName,
        /// Where its file would be.
        path: PathBuf,
        /// Profiles that exist.
        known: Vec<ProfileName>,
    },
    /// A file's name cannot be used with `--profile`.
    #[error("{} has a name that no profile can have", path.display())]
    NotAProfile {
        /// The file.
        path: PathBuf,
    },
    /// A file has mistakes.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

impl ConfigError {
    /// Gives what the developer can do, unless the place in the file says it.
    pub fn hints(&self) -> Vec<String> {
        match self {
            Self::NoHome => vec!["set HOME to your home directory".into()],
            Self::Read { path, .. } => vec![format!("make {} readable for you, or remove it", path.display())],
            Self::NotAFile { path } => vec![format!("move {} away; a text file belongs there", path.display())],
            Self::TooLarge { path, .. } => vec![format!("move {} away and run 'lazaret init'", path.display())],
            Self::NotUtf8 { path, .. } => vec![format!("save {} as UTF-8 in your editor", path.display())],
            Self::Nothing { .. } => vec!["run 'lazaret init', which writes a commented starter".into()],
            Self::NoneChosen { known } => vec![
                format!("name one with --profile: {}", names(known)),
                "or write default_profile = \"NAME\" in config.toml".into(),
            ],
            Self::NoSuchProfile { name, known, .. } => {
                let known_names: Vec<_> = known.iter().map(ProfileName::as_str).collect();
                let nearest = super::keys::nearest(name.as_str(), &known_names);
                let nearest = nearest.map(|near| format!("did you mean '{near}'?"));
                let all = match known.is_empty() {
                    true => "run 'lazaret init', which writes some profiles".into(),
                    false => format!("profiles that exist: {}", names(known)),
                };
                nearest.into_iter().chain([all]).collect()
            }
            Self::NotAProfile { .. } => {
                vec!["name it with a-z, 0-9, '-', '_', '.' and .toml, beginning with a letter or digit".into()]
            }
            Self::Invalid(_) => Vec::new(),
        }
    }

    /// Turns it into what the Client CLI reports, with the place in the file and the hints.
    pub fn into_cli(self) -> CliError {
        let hints = self.hints();
        let error = match self {
            Self::Invalid(problems) => {
                let text = problems.to_string();
                CliError::diagnostics(text, std::iter::once(*problems.first).chain(problems.others))
            }
            other => CliError::from(other),
        };
        hints.into_iter().fold(error, CliError::hint)
    }

    /// Gives the same for programs.
    pub fn records(&self) -> Vec<ProblemRecord> {
        let Self::Invalid(problems) = self else {
            let cause = std::error::Error::source(self).map(|cause| format!(": {cause}")).unwrap_or_default();
            let help = Some(self.hints().join("; ")).filter(|help| !help.is_empty());
            let file = match self {
                Self::Read { path, .. } | Self::NotAFile { path } | Self::TooLarge { path, .. } => Some(path),
                Self::NotUtf8 { path, .. } | Self::NoSuchProfile { path, .. } | Self::NotAProfile { path } => {
                    Some(path)
                }
                Self::NoHome | Self::Nothing { .. } | Self::NoneChosen { .. } | Self::Invalid(_) => None,
            };
            let file = file.map(|path| path.display().to_string());
            return vec![ProblemRecord { file, line: None, column: None, message: format!("{self}{cause}"), help }];
        };
        let record = |problem: &Problem| ProblemRecord {
            file: Some(problem.path.display().to_string()),
            line: Some(problem.line),
            column: Some(problem.column),
            message: problem.message.clone(),
            help: Some(problem.help.clone()),
        };
        problems.iter().map(record).collect()
    }
}

fn names(known: &[ProfileName]) -> String {
    known.iter().map(ProfileName::as_str).collect::<Vec<_>>().join(", ")
}
