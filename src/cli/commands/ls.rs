//! `lazaret ls`: the Domains of this user.

use std::process::ExitCode;

use futures_util::future::join_all;

use crate::cli::domains;
use crate::cli::error::CliError;
use crate::cli::output::{self, Style, Table, Target};
use crate::cli::places::Places;
use crate::cli::question::{self, DomainView, Standing};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show also those that don't run
    #[arg(short, long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Lists them.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let places = Places::from_environment()?;
    let records = domains::known(&places)?;
    let ask = async |record| match question::standing(&places, record).await {
        Ok(standing) => standing,
        // One that can't be asked must not hide the others.
        Err(error) => Standing::Changing(error.chain().join(": ")),
    };
    let standings = question::block_on(join_all(records.iter().map(ask)))?;
    let views = records.iter().zip(standings).map(|(record, standing)| DomainView::new(record, standing));
    let views: Vec<_> = views.filter(|view| args.all || view.state != "stopped").collect();
    if args.json {
        output::json(&views)?;
    } else if views.is_empty() {
        output::note(if args.all { "no sandboxes" } else { "no sandbox runs; list the others with --all" });
    } else {
        output::text(&table(&views, output::now(), output::style(Target::Output)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(views: &[DomainView], now: i64, style: Style) -> String {
    let mut table = Table::new(&["SANDBOX", "PROFILE", "STATE", "SESSIONS", "AGE", "WORKSPACE"]);
    for view in views {
        let running = view.running.as_ref();
        table.row(vec![
            view.domain.clone(),
            view.profile.clone(),
            view.phase.clone().map_or_else(|| view.state.into(), |phase| format!("{} ({phase})", view.state)),
            running.map_or_else(|| "-".into(), |running| running.sessions.len().to_string()),
            running.map_or_else(|| "-".into(), |running| output::age(running.since, now)),
            output::escaped_word(&view.workspace),
        ]);
    }
    table.render(style)
}
