//! Arguments that several commands take.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::progress::Verbosity;
use crate::domain::ids::ProfileName;

/// Which project is meant.
///
/// The workspace is the top of the Git working tree that holds the current directory, or else the
/// current directory itself.
#[derive(Debug, Clone, Default, Args)]
pub struct ProjectArgs {
    /// Agent Profile to use [default: the configuration's default_profile]
    #[arg(short, long, value_name = "NAME")]
    pub profile: Option<ProfileName>,
    /// Act as if started in DIR
    #[arg(short = 'C', long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Directory to show as /workspace [default: the top of the Git working tree around the
    /// current directory, or else the current directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
}

/// Which Domain is meant.
#[derive(Debug, Clone, Default, Args)]
pub struct DomainArgs {
    /// The sandbox: its ID or the beginning of one, or a project directory [default: this project's]
    #[arg(value_name = "DOMAIN|DIR")]
    pub domain: Option<OsString>,
    /// The project, when no Domain is named.
    #[command(flatten)]
    pub project: ProjectArgs,
}

/// How a start behaves.
#[derive(Debug, Clone, Args)]
pub struct StartArgs {
    /// How long to wait for a start or teardown that another lazaret has under way
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub wait: Duration,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

impl StartArgs {
    /// Tells whether progress is shown.
    pub fn verbosity(&self) -> Verbosity {
        if self.quiet { Verbosity::Quiet } else { Verbosity::Normal }
    }
}

/// How a session's terminal behaves.
#[derive(Debug, Clone, Args)]
pub struct EscapeArgs {
    /// Character that, typed at the start of a line and followed by '.', ends the session; 'none'
    /// turns it off
    #[arg(long, value_name = "CHAR", default_value = "~", value_parser = escape_character)]
    pub escape_char: EscapeCharacter,
}

/// The character that begins an escape sequence at the start of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscapeCharacter {
    /// No escape sequences.
    None,
    /// This one.
    Byte(u8),
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "expected a number of seconds that is not negative".to_owned())
}

fn escape_character(text: &str) -> Result<EscapeCharacter, String> {
    match text.as_bytes() {
        b"none" => Ok(EscapeCharacter::None),
        [byte @ 0x21..=0x7e] => Ok(EscapeCharacter::Byte(*byte)),
        _ => Err("expected one printable ASCII character or 'none'".to_owned()),
    }
}
