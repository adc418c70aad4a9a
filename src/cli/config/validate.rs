//! From files as written to a validated profile: every value read, conflicts refused, and a note
//! taken of where each came from.
//!
//! All mistakes are collected, so that they can be mended in one go. `config.toml` is merged here,
//! by a rule that keeps it from ever widening a grant: its denials, hidden directories and
//! escalation refusals join the profile's; its `linger` is used where the profile has none;
//! permissions come from the profile alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;

use super::notes::{Notes, Shaped};
use super::raw::{RawCommon, RawLimits, RawProfile};
use super::source::SourceFile;
use super::values::{self, Wrong};
use super::{escalation, network, paths};
use crate::domain::artifact::{ImageSource, UserSpec};
use crate::domain::ids::ProfileName;
use crate::domain::profile::{Environment, Limits, Profile, WorkspaceGrant};
use crate::oci::reference;
use crate::policy::explain::{command_text, duration_text, size_text};

/// How long a Domain may linger.
const LONGEST_LINGER: Duration = Duration::from_secs(7 * 24 * 3600);
/// Size of `/tmp` and of `/dev/shm` when the profile says nothing.
pub const DEFAULT_TMP: u64 = 512 << 20;
/// How long a Domain lingers when nothing says so.
pub const DEFAULT_LINGER: Duration = Duration::ZERO;

/// Validates a profile. With problems in the notes the result is `None` or not to be used.
pub fn profile(
    name: &ProfileName,
    own: &Shaped<RawProfile>,
    common: Option<&Shaped<RawCommon>>,
    home: &Path,
    notes: &mut Notes,
) -> Option<Profile> {
    let Shaped { file, raw } = own;
    let image = image(raw, file, home, notes);
    let user = raw.user.as_ref().and_then(|user| {
        let help = "write \"NAME\", \"UID\", \"NAME:GROUP\" or \"UID:GID\"";
        let read = UserSpec::try_from(user.get_ref().clone()).map_err(|error| Wrong::new(error.to_string(), help));
        let spec = notes.take(file, user, read)?;
        notes.record("user", spec.to_string(), file, user);
        Some(spec)
    });
    let command = command(raw, file, notes);
    let environment = environment(raw, file, notes);
    let persistent = paths::persistent(raw, file, notes);
    let volumes = paths::volumes(raw, file, &persistent, home, notes);
    let network = network::grant(&raw.network, file, common, notes);
    let workspace = workspace(raw, file, common, notes);
    let escalation = escalation::rules(&raw.escalation, file, common, home, notes);
    let limits = limits(&raw.limits, file, notes);
    let linger = linger(raw, file, common, notes);
    Some(Profile {
        name: name.clone(),
        image: image?,
        user,
        command,
        environment,
        persistent: persistent.into_iter().map(|(path, _)| path).collect(),
        volumes,
        network,
        workspace,
        escalation,
        limits,
        linger,
    })
}

fn image(raw: &RawProfile, file: &SourceFile, home: &Path, notes: &mut Notes) -> Option<ImageSource> {
    let Some(image) = &raw.image else {
        let help =
            "write image = \"…\": a registry reference, \"oci:DIR\", \"oci-archive:FILE\" or \"docker-archive:FILE\"";
        notes.problem(file, 0..0, Wrong::new("'image' is missing", help));
        return None;
    };
    let base = file.path().parent().unwrap_or(Path::new("/"));
    // A home directory may be named after the transport, as everywhere else in the file.
    let text = match image.get_ref().split_once(":~/") {
        Some((transport, rest)) => format!("{transport}:{}/{rest}", home.display()),
        None => image.get_ref().clone(),
    };
    let read = reference::parse(&text, base).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(" ({cause})")).unwrap_or_default();
        let help = format!("'image' is {}{cause}", super::keys::find("image").map_or("a reference", |key| key.form));
        Wrong::new(error.to_string(), help)
    });
    let mut image_source = notes.take(file, image, read)?;
    if let ImageSource::OciLayout { path, .. }
    | ImageSource::OciArchive { path, .. }
    | ImageSource::DockerArchive { path, .. } = &mut image_source
    {
        // "./layout" and "layout" are the same grant and have the same fingerprint.
        *path = path.components().collect();
        if path.to_str().is_none() {
            let message = "the image's path is not UTF-8, since this file's own path is not";
            notes.problem(file, image.span(), Wrong::new(message, "write an absolute path"));
            return None;
        }
    }
    notes.record("image", image_source.to_string(), file, image);
    Some(image_source)
}

fn command(raw: &RawProfile, file: &SourceFile, notes: &mut Notes) -> Vec<String> {
    let Some(command) = &raw.command else { return Vec::new() };
    let words = notes.words(file, command);
    notes.record("command", command_text(&words), file, command);
    words
}

fn environment(raw: &RawProfile, file: &SourceFile, notes: &mut Notes) -> Environment {
    let mut set = BTreeMap::new();
    for (name, value) in &raw.env.set {
        let readable = values::without_nul(value.get_ref());
        let (Some(name_text), Some(())) =
            (notes.take(file, name, values::variable(name.get_ref())), notes.take(file, value, readable))
        else {
            continue;
        };
        notes.record("env.set", &name_text, file, name);
        set.insert(name_text, value.get_ref().clone());
    }
    let mut pass = Vec::new();
    for (name, at) in notes.list("env.pass", file, &raw.env.pass, values::variable) {
        if let Some((fixed, _)) = raw.env.set.get_key_value(at.get_ref().as_str()) {
            let message = format!("'{name}' is passed through and has a fixed value as well");
            let help = format!("keep one of them; the value is set in line {}", file.line(fixed.span().start));
            notes.problem(file, at.span(), Wrong::new(message, help));
        }
        notes.record("env.pass", &name, file, at);
        pass.push(name);
    }
    pass.sort();
    Environment { set, pass }
}

fn workspace(
    raw: &RawProfile,
    file: &SourceFile,
    common: Option<&Shaped<RawCommon>>,
    notes: &mut Notes,
) -> WorkspaceGrant {
    let isolate_ignored = raw.workspace.isolate_ignored.as_ref().is_none_or(|isolate| {
        notes.record("workspace.isolate_ignored", isolate.get_ref().to_string(), file, isolate);
        *isolate.get_ref()
    });
    let mut hide = Vec::new();
    let common = common.map(|common| (&common.file, &common.raw.workspace.hide));
    for (file, names) in std::iter::once((file, &raw.workspace.hide)).chain(common) {
        for (name, at) in notes.list("workspace.hide", file, names, top_directory) {
            notes.record("workspace.hide", &name, file, at);
            hide.push(name);
        }
    }
    hide.sort();
    hide.dedup();
    WorkspaceGrant { isolate_ignored, hide }
}

fn top_directory(text: &str) -> Result<String, Wrong> {
    let help = "write the name of a directory at the workspace's top, such as \".vscode\"";
    match text.strip_suffix('/').unwrap_or(text) {
        ".git" => Err(Wrong::new("'.git' cannot be hidden as a whole", "it is protected in any case; take it out")),
        "" | "." | ".." => Err(Wrong::new(format!("'{text}' is not a directory's name"), help)),
        name if name.contains(['/', '\0']) => Err(Wrong::new(format!("'{text}' is not a directory's name"), help)),
        name => Ok(name.to_owned()),
    }
}

fn limits(raw: &RawLimits, file: &SourceFile, notes: &mut Notes) -> Limits {
    const MIB: u64 = 1 << 20;
    const TIB: u64 = 1 << 40;
    let mut number = |key: &str, value: &Option<Spanned<i64>>, least, most| {
        let value = value.as_ref()?;
        let number = notes.take(file, value, values::number(*value.get_ref(), least, most))?;
        notes.record(key, number.to_string(), file, value);
        Some(number)
    };
    let open_files = number("limits.open_files", &raw.open_files, 64, 1 << 20);
    let processes = number("limits.processes", &raw.processes, 16, 1 << 20);
    let mut size = |key: &str, value: &Option<Spanned<String>>, least, most| {
        let value = value.as_ref()?;
        let size = notes.take(file, value, values::size(value.get_ref(), least, most))?;
        notes.record(key, size_text(size), file, value);
        Some(size)
    };
    let memory = size("limits.memory", &raw.memory, 64 * MIB, 64 * TIB);
    let file_size = size("limits.file_size", &raw.file_size, MIB, 64 * TIB);
    let tmp = size("limits.tmp", &raw.tmp, MIB, TIB).unwrap_or(DEFAULT_TMP);
    Limits { open_files, processes, memory, file_size, tmp }
}

fn linger(raw: &RawProfile, file: &SourceFile, common: Option<&Shaped<RawCommon>>, notes: &mut Notes) -> Duration {
    let shared = common.and_then(|common| Some((&common.file, common.raw.linger.as_ref()?)));
    let Some((file, value)) = raw.linger.as_ref().map(|linger| (file, linger)).or(shared) else {
        return DEFAULT_LINGER;
    };
    let linger = notes.take(file, value, values::duration(value.get_ref(), LONGEST_LINGER)).unwrap_or(DEFAULT_LINGER);
    notes.record("linger", duration_text(linger), file, value);
    linger
}
