//! `lazaret config`: validates configuration, and tells where each grant comes from.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::config::error::ProblemRecord;
use crate::cli::config::{Checked, ConfigDirs, ConfigError, check_all, load_profile};
use crate::cli::error::{CliError, ErrorKind};
use crate::cli::output::{self, Table, Target};
use crate::domain::ids::ProfileName;
use crate::domain::network::{NetworkPolicy, Verdict};
use crate::policy::derive;
use crate::policy::explain::{self, Grant, Origins};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Validate config.toml and every profile
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the documentation of every configuration key
    Reference,
    /// Show what a profile grants, and where each grant comes from
    Show {
        /// The profile [default: the configuration's default_profile]
        profile: Option<ProfileName>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The documentation, which an installed executable has nowhere else.
const REFERENCE: &str = include_str!("../../../docs/configuration.md");

/// How a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Json,
}

impl Format {
    fn chosen(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// One file in the output of `config check --json`.
#[derive(Debug, Serialize)]
struct CheckRecord {
    file: String,
    valid: bool,
    profile: Option<String>,
    fingerprint: Option<String>,
    problems: Vec<ProblemRecord>,
}

/// The output of `config show --json`.
#[derive(Debug, Serialize)]
struct ShowRecord {
    profile: String,
    fingerprint: String,
    files: Vec<PathBuf>,
    grants: Vec<Grant>,
    network: NetworkPolicy,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let dirs = || ConfigDirs::from_environment().map_err(ConfigError::into_cli);
    match args.command {
        ConfigCommand::Check { json } => check(&dirs()?, Format::chosen(json)),
        ConfigCommand::Show { profile, json } => show(&dirs()?, profile.as_ref(), Format::chosen(json)),
        ConfigCommand::Reference => {
            output::text(REFERENCE)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check(dirs: &ConfigDirs, format: Format) -> Result<ExitCode, CliError> {
    let checked = check_all(dirs).map_err(ConfigError::into_cli)?;
    let failed = checked.iter().filter(|file| file.result.is_err()).count();
    match format {
        Format::Json => output::json(&checked.iter().map(record).collect::<Vec<_>>())?,
        Format::Text => print_checked(checked)?,
    }
    let status = if failed == 0 { 0 } else { ErrorKind::Own.status() };
    Ok(ExitCode::from(status))
}

fn record(checked: &Checked) -> CheckRecord {
    let loaded = checked.result.as_ref().ok().and_then(Option::as_ref);
    CheckRecord {
        file: checked.path.display().to_string(),
        valid: checked.result.is_ok(),
        profile: loaded.map(|loaded| loaded.profile.name.to_string()),
        fingerprint: loaded.map(|loaded| loaded.profile.fingerprint().to_string()),
        problems: checked.result.as_ref().err().map(ConfigError::records).unwrap_or_default(),
    }
}

/// Prints a line for each valid file, and for each other one what is wrong with it.
fn print_checked(checked: Vec<Checked>) -> Result<(), CliError> {
    let style = output::style(Target::Output);
    for Checked { path, result } in checked {
        let path = output::printable(&path.display().to_string());
        match result {
            Ok(_) => output::text(&format!("{} {path}\n", style.green("valid  ")))?,
            Err(error) => {
                output::text(&format!("{} {path}\n", style.red("invalid")))?;
                // The exit status is one for all files, given at the end.
                let _ = error.into_cli().report();
            }
        }
    }
    Ok(())
}

fn show(dirs: &ConfigDirs, name: Option<&ProfileName>, format: Format) -> Result<ExitCode, CliError> {
    let loaded = load_profile(dirs, name).map_err(ConfigError::into_cli)?;
    let profile = &loaded.profile;
    let grants = explain::grants(profile, &loaded.origins);
    let network = derive::network_policy(&profile.network);
    if format == Format::Json {
        output::json(&ShowRecord {
            profile: profile.name.to_string(),
            fingerprint: profile.fingerprint().to_string(),
            files: loaded.files,
            grants,
            network,
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let style = output::style(Target::Output);
    let mut table = Table::new(&["KEY", "VALUE", "FROM"]);
    for grant in grants {
        table.row(vec![grant.key.to_owned(), grant.value, dirs.place(&grant.origin)]);
    }
    let mut text = format!("Profile {}, Configuration Fingerprint {}\n\n", profile.name, profile.fingerprint().short());
    text.push_str(&table.render(style));
    text.push('\n');
    text.push_str(&network_table(&network, &loaded.origins, dirs).render(style));
    output::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows what is decided about each prefix, the most specific one that holds an address counting.
fn network_table(policy: &NetworkPolicy, origins: &Origins, dirs: &ConfigDirs) -> Table {
    let mut table = Table::new(&["DESTINATION", "VERDICT", "BECAUSE OF"]);
    for rule in &policy.rules {
        let verdict = match rule.verdict {
            Verdict::Permit => "permitted",
            Verdict::Deny => "denied",
        };
        table.row(vec![rule.prefix.to_string(), verdict.to_owned(), dirs.because(rule, origins)]);
    }
    table.row(vec!["any other IPv4".into(), "permitted".into(), "default".into()]);
    let ipv6 = if policy.ipv6.is_on() { "permitted" } else { "off" };
    table.row(vec![
        "any other IPv6".into(),
        ipv6.to_owned(),
        dirs.place(&origins.of("network.ipv6", &policy.ipv6.is_on().to_string())),
    ]);
    table
}
