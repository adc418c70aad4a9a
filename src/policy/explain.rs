//! For each grant, what it is and where it came from; and what differs between two profiles.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::domain::escalation::{EscalationRule, RuleEffect, TrailingArguments};
use crate::domain::profile::{Access, Profile};

/// Where a value of a profile comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Lazaret's own default.
    Default,
    /// A configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// Where each value of one profile comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins(BTreeMap<(String, String), Origin>);

impl Origins {
    /// Records where a value of a key comes from; the first record of a value stays.
    pub fn record(&mut self, key: &str, value: impl Into<String>, origin: Origin) {
        self.0.entry((key.to_owned(), value.into())).or_insert(origin);
    }

    /// Gives where a value of a key comes from.
    pub fn of(&self, key: &str, value: &str) -> Origin {
        self.0.get(&(key.to_owned(), value.to_owned())).cloned().unwrap_or(Origin::Default)
    }
}

/// One value of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// The configuration key.
    pub key: &'static str,
    /// The value, as people read it.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// Gives every value of a profile with where it comes from, in the order of the documentation.
pub fn grants(profile: &Profile, origins: &Origins) -> Vec<Grant> {
    let grant =
        |entry: Entry| Grant { origin: origins.of(entry.key, &entry.value), key: entry.key, value: entry.value };
    let mut grants: Vec<_> =
        entries(profile).into_iter().filter(|entry| entry.kind != Kind::Secret).map(grant).collect();
    if profile.network.dns.is_empty() {
        let value = "the host's, through the connectivity helper".to_owned();
        let place = grants.iter().position(|grant| grant.key == "network.ipv6").unwrap_or(grants.len());
        grants.insert(place, Grant { key: "network.dns", value, origin: Origin::Default });
    }
    grants
}

/// Says what differs between the profile that a Domain runs under and ours, one line each; empty
/// when their Configuration Fingerprints are the same. Values of variables are not shown.
pub fn difference(running: &Profile, ours: &Profile) -> Vec<String> {
    let (before, after) = (entries(running), entries(ours));
    let mut lines = Vec::new();
    for entry in &before {
        match entry.kind {
            Kind::Item if !after.contains(entry) => lines.push(format!("{}: - {}", entry.key, entry.value)),
            Kind::Item => {}
            Kind::Single | Kind::Secret => lines.extend(changed(entry, &after)),
        }
    }
    for entry in &after {
        if entry.kind == Kind::Item && !before.contains(entry) {
            lines.push(format!("{}: + {}", entry.key, entry.value));
        }
    }
    if lines.is_empty() && running != ours {
        lines.push("the order of values".to_owned());
    }
    lines
}

/// Says how a single value changed. A secret's name is an item besides, so that a secret which came
/// or went is told there.
fn changed(entry: &Entry, after: &[Entry]) -> Option<String> {
    let other = after.iter().find(|other| other.is_same_place(entry)).filter(|other| other.value != entry.value)?;
    Some(match entry.kind {
        Kind::Secret => format!("{}: {} has another value", entry.key, entry.label),
        Kind::Single | Kind::Item => format!("{}: {} -> {}", entry.key, entry.value, other.value),
    })
}

/// How the values of a key are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One value.
    Single,
    /// One member of a set.
    Item,
    /// One value, which is not shown, at `label`.
    Secret,
}

/// One value of a profile under its key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    key: &'static str,
    label: String,
    value: String,
    kind: Kind,
}

impl Entry {
    fn is_same_place(&self, other: &Self) -> bool {
        (self.key, &self.label, self.kind) == (other.key, &other.label, other.kind)
    }
}

/// Gives the text under which a volume's origin is recorded.
pub fn volume_text(host: &std::path::Path, guest: &str, access: Access) -> String {
    let access = match access {
        Access::ReadOnly => "ro",
        Access::ReadWrite => "rw",
    };
    format!("{} at {guest} ({access})", host.display())
}

/// Gives the text under which an escalation rule's origin is recorded.
pub fn rule_text(rule: &EscalationRule) -> String {
    let words: Vec<_> = rule.command.iter().map(|word| format!("{word:?}")).collect();
    let mut text = words.join(" ");
    if rule.args == TrailingArguments::Any {
        text.push_str(" …");
    }
    if let Some(directory) = &rule.directory {
        text.push_str(&format!(" in {}", directory.display()));
    }
    if let Some(timeout) = rule.timeout {
        text.push_str(&format!(" within {timeout}s"));
    }
    text
}

/// Gives the text of a command.
pub fn command_text(command: &[String]) -> String {
    match command {
        [] => "the user's login shell".to_owned(),
        words => words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" "),
    }
}

fn entries(profile: &Profile) -> Vec<Entry> {
    let mut all = Vec::new();
    let mut add = |key, label: &str, value: String, kind| all.push(Entry { key, label: label.to_owned(), value, kind });
    add("image", "", profile.image.to_string(), Kind::Single);
    let user = profile.user.as_ref().map_or("the image's user".to_owned(), ToString::to_string);
    add("user", "", user, Kind::Single);
    add("command", "", command_text(&profile.command), Kind::Single);
    for (name, value) in &profile.environment.set {
        add("env.set", name, name.clone(), Kind::Item);
        add("env.set", name, value.clone(), Kind::Secret);
    }
    for name in &profile.environment.pass {
        add("env.pass", "", name.clone(), Kind::Item);
    }
    for path in &profile.persistent {
        add("persistent", "", path.to_string(), Kind::Item);
    }
    for volume in &profile.volumes {
        add("volumes", "", volume_text(&volume.host, volume.guest.as_str(), volume.access), Kind::Item);
    }
    let network = &profile.network;
    for prefix in &network.allow {
        add("network.allow", "", prefix.to_string(), Kind::Item);
    }
    for prefix in &network.deny {
        add("network.deny", "", prefix.to_string(), Kind::Item);
    }
    for address in &network.dns {
        add("network.dns", "", address.to_string(), Kind::Item);
    }
    add("network.ipv6", "", network.ipv6.is_on().to_string(), Kind::Single);
    for name in &network.probe.resolve {
        add("network.probe.resolve", "", name.clone(), Kind::Item);
    }
    for endpoint in &network.probe.connect {
        add("network.probe.connect", "", endpoint.to_string(), Kind::Item);
    }
    for address in &network.probe.denied {
        add("network.probe.denied", "", address.to_string(), Kind::Item);
    }
    add("workspace.isolate_ignored", "", profile.workspace.isolate_ignored.to_string(), Kind::Single);
    for name in &profile.workspace.hide {
        add("workspace.hide", "", name.clone(), Kind::Item);
    }
    for rule in &profile.escalation {
        let key = match rule.effect {
            RuleEffect::Allow => "escalation.allow",
            RuleEffect::Deny => "escalation.deny",
        };
        add(key, "", rule_text(rule), Kind::Item);
    }
    let limits = &profile.limits;
    let number = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
    let size = |limit: Option<u64>| limit.map_or("none".to_owned(), size_text);
    add("limits.open_files", "", number(limits.open_files), Kind::Single);
    add("limits.processes", "", number(limits.processes), Kind::Single);
    add("limits.memory", "", size(limits.memory), Kind::Single);
    add("limits.file_size", "", size(limits.file_size), Kind::Single);
    add("limits.tmp", "", size_text(limits.tmp), Kind::Single);
    add("linger", "", duration_text(profile.linger), Kind::Single);
    all
}

/// Gives a time in seconds, with a fraction where there is one.
pub fn duration_text(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

/// Gives a size in the largest unit that keeps it exact.
pub fn size_text(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fitting = units.iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    fitting.map_or_else(|| format!("{bytes} bytes"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

#[cfg(test)]
mod tests;
