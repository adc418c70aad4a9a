//! Escalation rules: exact argument vectors that are approved or refused without asking (SR-8).

use std::path::Path;
use std::time::Duration;

use toml::Spanned;

use super::notes::{Notes, Shaped};
use super::raw::{RawCommon, RawEscalation, Words};
use super::source::SourceFile;
use super::values::{self, Wrong};
use crate::domain::escalation::{EscalationRule, RuleEffect, TrailingArguments};
use crate::policy::explain::rule_text;

const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// A rule with the place of its command.
type Placed<'a> = (EscalationRule, &'a SourceFile, &'a Spanned<Words>);

/// Reads all rules: the profile's, and the refusals that apply to all profiles.
pub fn rules(
    raw: &RawEscalation,
    file: &SourceFile,
    common: Option<&Shaped<RawCommon>>,
    home: &Path,
    notes: &mut Notes,
) -> Vec<EscalationRule> {
    let mut placed: Vec<Placed<'_>> = Vec::new();
    for written in &raw.allow {
        let directory = written.directory.as_ref().and_then(|at| {
            let path = values::host_path(at.get_ref(), home);
            notes.take(file, at, path)
        });
        let timeout = written.timeout.as_ref().and_then(|at| {
            let read = values::duration(at.get_ref(), LONGEST_TIMEOUT).and_then(|timeout| match timeout.as_secs() {
                0 => Err(Wrong::new("a command needs at least a second", "write a longer time, such as \"60s\"")),
                seconds => Ok(seconds),
            });
            notes.take(file, at, read)
        });
        let args = trailing(written.args.as_ref(), TrailingArguments::None, file, notes);
        let command = vector(&written.command, file, notes);
        let rule = EscalationRule { effect: RuleEffect::Allow, command, args, directory, timeout };
        placed.push((rule, file, &written.command));
    }
    let shared = common.map(|common| (&common.file, &common.raw.escalation.deny));
    for (file, denials) in std::iter::once((file, &raw.deny)).chain(shared) {
        for written in denials {
            let args = trailing(written.args.as_ref(), TrailingArguments::Any, file, notes);
            let command = vector(&written.command, file, notes);
            let denial = EscalationRule { effect: RuleEffect::Deny, command, args, directory: None, timeout: None };
            placed.push((denial, file, &written.command));
        }
    }
    refuse_conflicts(&placed, notes);
    let mut rules = Vec::new();
    for (rule, file, at) in placed {
        let key = if rule.effect == RuleEffect::Allow { "escalation.allow" } else { "escalation.deny" };
        notes.record(key, rule_text(&rule), file, at);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

fn vector(command: &Spanned<Words>, file: &SourceFile, notes: &mut Notes) -> Vec<String> {
    let vector = notes.words(file, command);
    if let Some(executable) = command.get_ref().first().filter(|word| !word.get_ref().trim().is_empty()) {
        let path = Path::new(executable.get_ref());
        let plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
        if !path.is_absolute() || !plain || executable.get_ref().ends_with('/') {
            let message = format!("'{}' is not the absolute path of an executable", executable.get_ref());
            let help = "write the host's path in full, such as \"/usr/bin/gh\": a rule never searches PATH";
            notes.problem(file, executable.span(), Wrong::new(message, help));
        }
    }
    vector
}

fn trailing(
    args: Option<&Spanned<String>>,
    default: TrailingArguments,
    file: &SourceFile,
    notes: &mut Notes,
) -> TrailingArguments {
    let Some(args) = args else { return default };
    let read = match args.get_ref().as_str() {
        "none" => Ok(TrailingArguments::None),
        "any" => Ok(TrailingArguments::Any),
        other => Err(Wrong::new(
            format!("'{other}' says nothing about trailing arguments"),
            "write \"none\" for exactly this command, \"any\" for any arguments after it",
        )),
    };
    notes.take(file, args, read).unwrap_or(default)
}

/// Refuses an approval that a refusal takes back altogether: one of the two is a mistake.
fn refuse_conflicts(placed: &[Placed<'_>], notes: &mut Notes) {
    let of = |effect| placed.iter().filter(move |(rule, ..)| rule.effect == effect);
    for (allowed, file, at) in of(RuleEffect::Allow) {
        for (denied, denied_file, denied_at) in of(RuleEffect::Deny) {
            let covers = match denied.args {
                TrailingArguments::Any => allowed.command.starts_with(&denied.command),
                TrailingArguments::None => denied.command == allowed.command && allowed.args == TrailingArguments::None,
            };
            if covers && !denied.command.is_empty() {
                let message = "this command is allowed and denied; the denial would win, and the rule do nothing";
                let place = denied_file.origin(&denied_at.span());
                notes.problem(
                    file,
                    at.span(),
                    Wrong::new(message, format!("take one of them out; it is denied at {place}")),
                );
            }
        }
        let twice = of(RuleEffect::Allow).filter(|(other, ..)| other == allowed).count() > 1;
        let first = of(RuleEffect::Allow).find(|(other, ..)| other == allowed);
        if let (true, Some((_, _, first))) = (twice, first)
            && first.span() != at.span()
        {
            let help = format!("take one of them out; the first is in line {}", file.line(first.span().start));
            notes.problem(file, at.span(), Wrong::new("this rule is there twice", help));
        }
    }
}
