//! `lazaret status`: what runs in one Domain.

use std::process::ExitCode;

use crate::cli::args::DomainArgs;
use crate::cli::config::{self, ConfigDirs, Loaded};
use crate::cli::domains::{self, FindError};
use crate::cli::error::CliError;
use crate::cli::output::{self, Style, Table, Target, printable};
use crate::cli::places::Places;
use crate::cli::question::{self, DomainView, RunningView};
use crate::domain::network::PolicyRule;
use crate::domain::workspace::DomainRecord;
use crate::policy::derive;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    meant: DomainArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows it.
pub fn run(args: Args) -> Result<ExitCode, CliError> {
    let places = Places::from_environment()?;
    let record = domains::find(&places, &args.meant).map_err(FindError::into_cli)?;
    let standing = question::block_on(question::standing(&places, &record))??;
    let mut view = DomainView::new(&record, standing);
    if args.json {
        output::json(&view)?;
    } else {
        if let Some(running) = &mut view.running
            && let Some(rules) = rules_with_places(&record, &running.configuration)
        {
            running.network = rules;
        }
        output::text(&describe(&view, output::now(), output::style(Target::Output)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Gives the network's rules with the place where each is written, when the configuration is still the one that runs.
fn rules_with_places(record: &DomainRecord, running: &str) -> Option<Vec<String>> {
    let dirs = ConfigDirs::from_environment().ok()?;
    let Loaded { profile, origins, .. } = config::load_profile(&dirs, Some(&record.profile)).ok()?;
    let place = |rule: PolicyRule| PolicyRule { origin: dirs.because(&rule, &origins), ..rule }.to_string();
    let same = profile.fingerprint().to_string() == running;
    same.then(|| derive::network_policy(&profile.network).rules.into_iter().map(place).collect())
}

fn describe(view: &DomainView, now: i64, style: Style) -> String {
    let state = match view.state {
        "running" => style.green(view.state),
        "changing" => style.yellow(view.state),
        other => style.dim(other),
    };
    let phase = view.phase.as_ref().map(|phase| format!(": {}", printable(phase))).unwrap_or_default();
    let mut text = String::new();
    let mut field = |name: &str, value: &str| text.push_str(&format!("{name:<11}{value}\n"));
    field("sandbox", &format!("{}  {state}{phase}", style.bold(&view.domain)));
    field("profile", &view.profile);
    field("workspace", &output::escaped_word(&view.workspace));
    let Some(running) = &view.running else { return text };
    field("image", &printable(&running.image));
    field("generation", &format!("{}, up {}", running.generation, output::age(running.since, now)));
    let processes: Vec<_> = running.processes.iter().map(|p| format!("{} {}", printable(&p.role), p.pid)).collect();
    field("processes", &processes.join(", "));
    list(&mut text, "persistent", &running.persistent);
    list(&mut text, "network", &running.network);
    text.push_str(&sessions(running, now, style));
    text
}

fn list(text: &mut String, name: &str, values: &[String]) {
    for (index, value) in values.iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        text.push_str(&format!("{name:<11}{}\n", printable(value)));
    }
}

fn sessions(running: &RunningView, now: i64, style: Style) -> String {
    if running.sessions.is_empty() {
        return "no sessions\n".into();
    }
    let mut table = Table::new(&["SESSION", "AGE", "CLIENT", "TERMINAL", "COMMAND"]);
    for session in &running.sessions {
        let terminal = if session.interactive { &session.terminal } else { "-" };
        table.row(vec![
            session.id.chars().take(12).collect(),
            output::age(session.since, now),
            session.client_pid.to_string(),
            terminal.to_string(),
            session.command.iter().map(|word| output::escaped_word(word)).collect::<Vec<_>>().join(" "),
        ]);
    }
    format!("\n{}", table.render(style))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::document::DocumentView;
    use crate::cli::question::SessionView;

    fn running() -> DomainView {
        DomainView {
            state: "running",
            phase: None,
            domain: "d-0123456789abcdef0123".into(),
            profile: "claude".into(),
            workspace: "/home/dev/project".into(),
            running: Some(RunningView {
                generation: 7,
                image: "oci:/images/demo:latest".into(),
                since: 1000,
                coordinator: "c".repeat(32),
                sandbox: "5".repeat(32),
                configuration: "f".repeat(64),
                processes: vec![crate::cli::question::ProcessView { role: "coordinator".into(), pid: 42 }],
                sessions: vec![SessionView {
                    id: "00112233445566778899aabbccddeeff".into(),
                    client_pid: 40,
                    command: vec!["sh".into(), "-c".into(), "echo 100%25\u{1b}[2J".into()],
                    interactive: true,
                    terminal: "/dev/pts/3".into(),
                    since: 1060,
                }],
                network: vec!["deny 10.0.0.0/8".into(), "permit 10.0.2.2/32".into()],
                persistent: vec!["/home/dev".into()],
                document: Some(DocumentView::from(&crate::core::generation::fixtures::serving())),
            }),
        }
    }

    #[test]
    fn people_see_everything_and_no_control_characters() {
        let expected = "\
sandbox    d-0123456789abcdef0123  running
profile    claude
workspace  /home/dev/project
image      oci:/images/demo:latest
generation 7, up 2m
processes  coordinator 42
persistent /home/dev
network    deny 10.0.0.0/8
           permit 10.0.2.2/32

SESSION       AGE  CLIENT  TERMINAL    COMMAND
001122334455  60s  40      /dev/pts/3  sh -c $'echo 100%\\033[2J'
";
        assert_eq!(describe(&running(), 1120, Style::Plain), expected);
    }

    #[test]
    fn programs_see_the_documented_schema() {
        let json = serde_json::to_value(running()).unwrap();
        let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = [
            "state",
            "domain",
            "profile",
            "workspace",
            "generation",
            "image",
            "since",
            "coordinator",
            "sandbox",
            "configuration",
            "processes",
            "sessions",
            "network",
            "persistent",
            "document",
        ];
        expected.sort_unstable();
        let mut found = keys.clone();
        found.sort_unstable();
        assert_eq!(found, expected);
        assert_eq!(json["processes"][0]["role"], "coordinator");
        assert_eq!(json["sessions"][0]["terminal"], "/dev/pts/3");
        let stopped = DomainView { state: "stopped", running: None, ..running() };
        assert_eq!(serde_json::to_value(stopped).unwrap().as_object().unwrap().len(), 4);
    }
}
