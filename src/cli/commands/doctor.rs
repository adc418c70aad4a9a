//! `lazaret doctor`: what this machine has of what is needed.

use std::process::ExitCode;

use serde::Serialize;

use crate::cli::error::{CliError, ErrorKind};
use crate::cli::output::{self, Style, Target};
use crate::cli::places::Places;
use crate::cli::prerequisites::{Check, Status, check_all};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// Whether nothing is missing.
    ready: bool,
    /// Every check.
    checks: &'a [Check],
}

/// Checks everything and says what it found; fails with 125 when something is missing.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let places = Places::from_environment()?;
    // On this thread, which outlives the trial programs: they die with the thread that starts them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let checks = runtime.block_on(check_all(&places));
    let ready = checks.iter().all(|check| check.status != Status::Missing);
    if args.json {
        output::json(&Report { ready, checks: &checks })?;
    } else {
        output::text(&render(&checks, output::style(Target::Output)))?;
    }
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::from(ErrorKind::Own.status()) })
}

fn render(checks: &[Check], style: Style) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let status = match check.status {
            Status::Ok => style.green("ok     "),
            Status::Missing => style.red("missing"),
            Status::Warn => style.yellow("warning"),
        };
        let detail = output::printable(&check.detail);
        text.push_str(&format!("{status}  {:width$}  {detail}\n", check.name));
        if let Some(remedy) = &check.remedy {
            text.push_str(&format!("{:9}{:width$}  {} {}\n", "", "", style.cyan("→"), output::printable(remedy)));
        }
    }
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    text.push_str(&match (count(Status::Missing), count(Status::Warn)) {
        (0, 0) => "Everything that is needed is there.\n".to_owned(),
        (0, warnings) => format!("Everything that is needed is there; warnings: {warnings}.\n"),
        (missing, _) => format!("Missing: {missing}. Nothing can start before that is mended.\n"),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &'static str, status: Status, remedy: Option<&str>) -> Check {
        Check { name, status, detail: "as found".into(), remedy: remedy.map(Into::into) }
    }

    #[test]
    fn remedies_stand_below_what_they_mend() {
        let checks = [check("runsc", Status::Ok, None), check("slirp4netns", Status::Missing, Some("sudo x"))];
        let expected = "\
ok       runsc        as found
missing  slirp4netns  as found
                      → sudo x
Missing: 1. Nothing can start before that is mended.
";
        assert_eq!(render(&checks, Style::Plain), expected);
        assert!(render(&checks[..1], Style::Plain).ends_with("is there.\n"));
    }

    #[test]
    fn the_json_has_a_stable_shape() {
        let checks = [check("umoci", Status::Warn, None)];
        let json = serde_json::to_value(Report { ready: true, checks: &checks }).unwrap();
        let expected = serde_json::json!({
            "ready": true,
            "checks": [{ "name": "umoci", "status": "warn", "detail": "as found", "remedy": null }],
        });
        assert_eq!(json, expected);
    }
}
