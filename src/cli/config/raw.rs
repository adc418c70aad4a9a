//! Configuration files as written: their shape, with the place of every value.
//!
//! Only the shape is checked here (unknown keys, wrong types); what values mean is
//! [`super::validate`]'s concern.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Problem, Problems};
use super::keys::{self, KEYS, Place};
use super::source::SourceFile;

/// Texts in a list.
pub type Words = Vec<Spanned<String>>;

/// `profiles/NAME.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawProfile {
    /// The base image.
    pub image: Option<Spanned<String>>,
    /// The user of sessions.
    pub user: Option<Spanned<String>>,
    /// The command of a session that names none.
    pub command: Option<Spanned<Words>>,
    /// How long a Domain outlives its last session.
    pub linger: Option<Spanned<String>>,
    /// Persistent sandbox paths.
    #[serde(default)]
    pub persistent: Words,
    /// Environment.
    #[serde(default)]
    pub env: RawEnv,
    /// Host paths.
    #[serde(default)]
    pub volumes: Vec<RawVolume>,
    /// Network.
    #[serde(default)]
    pub network: RawNetwork,
    /// Workspace.
    #[serde(default)]
    pub workspace: RawWorkspace,
    /// Escalation rules.
    #[serde(default)]
    pub escalation: RawEscalation,
    /// Limits.
    #[serde(default)]
    pub limits: RawLimits,
}

/// `[env]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEnv {
    /// Fixed values.
    #[serde(default)]
    pub set: BTreeMap<Spanned<String>, Spanned<String>>,
    /// Names passed through.
    #[serde(default)]
    pub pass: Words,
}

/// `[[volumes]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawVolume {
    /// Host path.
    pub host: Spanned<String>,
    /// Sandbox path.
    pub guest: Spanned<String>,
    /// `ro` or `rw`.
    pub access: Option<Spanned<String>>,
}

/// `[network]` of a profile.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawNetwork {
    /// Permitted prefixes.
    #[serde(default)]
    pub allow: Words,
    /// Denied prefixes.
    #[serde(default)]
    pub deny: Words,
    /// Resolvers.
    #[serde(default)]
    pub dns: Words,
    /// Whether IPv6 is on.
    pub ipv6: Option<Spanned<bool>>,
    /// What the probe tries.
    #[serde(default)]
    pub probe: RawProbe,
}

/// `[network.probe]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawProbe {
    /// Names that must resolve.
    #[serde(default)]
    pub resolve: Words,
    /// Endpoints that must accept.
    #[serde(default)]
    pub connect: Words,
    /// Addresses that must be unreachable.
    #[serde(default)]
    pub denied: Words,
}

/// `[workspace]` of a profile.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawWorkspace {
    /// Whether ignored paths are isolated.
    pub isolate_ignored: Option<Spanned<bool>>,
    /// Directories to hide.
    #[serde(default)]
    pub hide: Words,
}

/// `[[escalation.allow]]` and `[[escalation.deny]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEscalation {
    /// Approved without asking.
    #[serde(default)]
    pub allow: Vec<RawAllowRule>,
    /// Refused without asking.
    #[serde(default)]
    pub deny: Vec<RawDenyRule>,
}

/// One `[[escalation.allow]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawAllowRule {
    /// Executable and arguments.
    pub command: Spanned<Words>,
    /// `none` or `any`.
    pub args: Option<Spanned<String>>,
    /// Working directory.
    pub directory: Option<Spanned<String>>,
    /// Time limit.
    pub timeout: Option<Spanned<String>>,
}

/// One `[[escalation.deny]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDenyRule {
    /// Executable and arguments.
    pub command: Spanned<Words>,
    /// `none` or `any`.
    pub args: Option<Spanned<String>>,
}

/// `[limits]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    /// Open files of a process.
    pub open_files: Option<Spanned<i64>>,
    /// Processes of a user.
    pub processes: Option<Spanned<i64>>,
    /// Address space of a process.
    pub memory: Option<Spanned<String>>,
    /// Largest file.
    pub file_size: Option<Spanned<String>>,
    /// Size of `/tmp` and of `/dev/shm`.
    pub tmp: Option<Spanned<String>>,
}

/// `config.toml`: what applies to all profiles. Nothing in it can widen what a profile grants.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawCommon {
    /// The profile that is used when none is named.
    pub default_profile: Option<Spanned<String>>,
    /// Used where a profile has none.
    pub linger: Option<Spanned<String>>,
    /// Network.
    #[serde(default)]
    pub network: RawCommonNetwork,
    /// Workspace.
    #[serde(default)]
    pub workspace: RawCommonWorkspace,
    /// Escalation rules.
    #[serde(default)]
    pub escalation: RawCommonEscalation,
}

/// `[network]` of `config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawCommonNetwork {
    /// Prefixes denied in every profile.
    #[serde(default)]
    pub deny: Words,
}

/// `[workspace]` of `config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawCommonWorkspace {
    /// Directories hidden in every profile.
    #[serde(default)]
    pub hide: Words,
}

/// `[[escalation.deny]]` of `config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawCommonEscalation {
    /// Refused in every profile.
    #[serde(default)]
    pub deny: Vec<RawDenyRule>,
}

/// Reads a file's shape.
pub fn read<T: DeserializeOwned>(file: &SourceFile, place: Place) -> Result<T, Problems> {
    toml::from_str(file.text()).map_err(|error| Problems::one(explained(file, place, &error)))
}

/// Makes the parser's error one that says what to write instead.
fn explained(file: &SourceFile, place: Place, error: &toml::de::Error) -> Problem {
    let end = file.text().len();
    let span = error.span().unwrap_or(0..0);
    // An error at the end of the file points past its last byte, where there is nothing to show.
    let span = if span.start >= end { end.saturating_sub(1)..end } else { span };
    let message = error.message().lines().next().unwrap_or("not valid TOML").to_owned();
    let Ok(table) = DeTable::parse(file.text()) else {
        return file.problem(span, message, "correct the TOML syntax here; 'lazaret config reference' has examples");
    };
    let (path, wanted_key) = path_at(table.get_ref(), &span, "");
    if message.starts_with("unknown field") {
        return unknown_key(file, place, span, &path);
    }
    if let Some(missing) = message.strip_prefix("missing field ") {
        let missing = missing.trim_matches('`');
        let form = keys::find(&format!("{path}.{missing}")).map_or("a value", |key| key.form);
        return file.problem(span, format!("'{missing}' is missing in '{path}'"), format!("add {missing} = {form}"));
    }
    let found = message.strip_prefix("invalid type: ").and_then(|rest| rest.split(", expected").next());
    let message = match found {
        Some(found) if wanted_key => format!("'{path}' cannot be {}", found.replace('`', "'")),
        _ => message,
    };
    let form = keys::find(&path).map(|key| format!("'{path}' is {}", key.form));
    file.problem(span, message, form.unwrap_or_else(|| "'lazaret config reference' has every key and its form".into()))
}

fn unknown_key(file: &SourceFile, place: Place, span: Range<usize>, path: &str) -> Problem {
    let belongs = |key: &&keys::Key| key.place == place || key.place == Place::Both;
    let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
    let message = match table {
        "" => format!("unknown key '{name}'"),
        table => format!("unknown key '{name}' in '{table}'"),
    };
    if let Some(key) = keys::find(path) {
        let elsewhere = match key.place {
            Place::Common => "it belongs in config.toml".to_owned(),
            _ if place == Place::Common => {
                "it belongs in a profile: config.toml can only narrow what profiles grant".to_owned()
            }
            _ => "escalation.deny rules have only 'command' and 'args'".to_owned(),
        };
        return file.problem(span, message, elsewhere);
    }
    let canonical = table.replace("escalation.deny", "escalation.allow");
    let sibling = |key: &keys::Key| match key.path.rsplit_once('.') {
        Some((parent, name)) => (parent == canonical).then_some(name),
        None => canonical.is_empty().then_some(key.path),
    };
    let siblings: Vec<_> = KEYS.iter().filter(belongs).filter_map(sibling).collect();
    let help = match keys::nearest(name, &siblings) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("keys that may stand here: {}", siblings.join(", ")),
    };
    file.problem(span, message, help)
}

/// Gives the path of the innermost key whose name or value holds the span's start, and whether it
/// is the value.
fn path_at(table: &DeTable<'_>, span: &Range<usize>, prefix: &str) -> (String, bool) {
    let at = |range: Range<usize>| range.contains(&span.start);
    let mut best = (prefix.to_owned(), false);
    for (key, value) in table {
        let path = if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        if at(key.span()) && !at(value.span()) {
            return (path, false);
        }
        let found = in_value(value, span, &path);
        if found.0.len() > best.0.len() && (found.1 || found.0 != path || at(value.span())) {
            best = found;
        }
    }
    best
}

fn in_value(value: &Spanned<DeValue<'_>>, span: &Range<usize>, path: &str) -> (String, bool) {
    let here = value.span().contains(&span.start);
    match value.get_ref() {
        DeValue::Table(table) => match path_at(table, span, path) {
            (found, is_value) if found != path => (found, is_value),
            _ => (path.to_owned(), here),
        },
        DeValue::Array(items) => {
            let inside = items.iter().map(|item| in_value(item, span, path)).find(|found| found.0 != path);
            inside.unwrap_or_else(|| (path.to_owned(), here))
        }
        _ => (path.to_owned(), here),
    }
}
