//! From files as written to a validated profile: every value read, conflicts refused, and a note
//! taken of where each came from.
//!
//! All mistakes are collected, so that they can be mended in one go. `config.toml` is merged here,
//! by a rule that keeps it from ever widening a grant: its denials, hidden directories and
//! escalation refusals join the profile's; its `linger` is used where the profile has none;
//! permissions come from the profile alone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;

use super::error::Problem;
use super::raw::{RawCommon, RawLimits, RawProfile, Words};
use super::source::SourceFile;
use super::values::{self, Wrong};
use super::{escalation, network, paths};
use crate::domain::artifact::{ImageSource, UserSpec};
use crate::domain::ids::ProfileName;
use crate::domain::profile::{Environment, Limits, Profile, WorkspaceGrant};
use crate::oci::reference;
use crate::policy::explain::{Origins, command_text, duration_text, size_text};

/// How long a Domain may linger.
const LONGEST_LINGER: Duration = Duration::from_secs(7 * 24 * 3600);
/// Size of `/tmp` and of `/dev/shm` when the profile says nothing.
pub const DEFAULT_TMP: u64 = 512 << 20;
/// How long a Domain lingers when nothing says so.
pub const DEFAULT_LINGER: Duration = Duration::ZERO;

/// Takes down what is wrong and where values come from, while files are read.
#[derive(Debug, Default)]
pub struct Notes {
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// Where values come from.
    pub origins: Origins,
    /// The volumes' host paths as written, in the order of the volumes.
    pub volume_paths: Vec<PathBuf>,
}

impl Notes {
    /// Takes down a problem.
    pub fn problem(&mut self, file: &SourceFile, span: Range<usize>, wrong: Wrong) {
        self.problems.push(file.problem(span, wrong.message, wrong.help));
    }

    /// Takes a value that was read, or takes down why it was not.
    pub fn take<T, U>(&mut self, file: &SourceFile, at: &Spanned<U>, read: Result<T, Wrong>) -> Option<T> {
        read.map_err(|wrong| self.problem(file, at.span(), wrong)).ok()
    }

    /// Records where a value of a key comes from.
    pub fn record<U>(&mut self, key: &str, value: impl Into<String>, file: &SourceFile, at: &Spanned<U>) {
        self.origins.record(key, value, file.origin(&at.span()));
    }

    /// Reads a list whose members must differ. Gives each with its place.
    pub fn list<'a, T: PartialEq>(
        &mut self,
        key: &str,
        file: &SourceFile,
        words: &'a [Spanned<String>],
        read: impl Fn(&str) -> Result<T, Wrong>,
    ) -> Vec<(T, &'a Spanned<String>)> {
        let mut members: Vec<(T, &Spanned<String>)> = Vec::new();
        for word in words {
            let Some(value) = self.take(file, word, read(word.get_ref())) else { continue };
            match members.iter().find(|(known, _)| *known == value) {
                Some((_, first)) => {
                    let message = format!("'{}' is in '{key}' twice", word.get_ref());
                    let help = format!("take one of them out; the first is in line {}", file.line(first.span().start));
                    self.problem(file, word.span(), Wrong::new(message, help));
                }
                None => members.push((value, word)),
            }
        }
        members
    }
}

/// A file's text and its shape.
#[derive(Debug)]
pub struct Shaped<T> {
    /// The text.
    pub file: SourceFile,
    /// The shape.
    pub raw: T,
}

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
    let words = words(command, file, notes);
    notes.record("command", command_text(&words), file, command);
    words
}

/// Reads an argument vector: no NUL anywhere, and a program's name in front.
pub fn words(command: &Spanned<Words>, file: &SourceFile, notes: &mut Notes) -> Vec<String> {
    let words = command.get_ref();
    if words.is_empty() {
        let help = "write the program and its arguments as separate words, or leave the key out";
        notes.problem(file, command.span(), Wrong::new("the command has no words", help));
    }
    for (index, word) in words.iter().enumerate() {
        let read = match word.get_ref() {
            text if index == 0 && text.trim().is_empty() => {
                Err(Wrong::new("the program's name is empty", "write the program's name or path"))
            }
            text if index == 0 && words.len() == 1 && text.contains(' ') && !text.starts_with('/') => Err(Wrong::new(
                format!("'{text}' would be looked for as one program with spaces in its name"),
                "write each word on its own: [\"claude\", \"--continue\"]; there is no shell in between",
            )),
            text => values::without_nul(text),
        };
        notes.take(file, word, read);
    }
    words.iter().map(|word| word.get_ref().clone()).collect()
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

/// Expands `~` and `~/` and refuses a path that is not absolute.
pub fn host_path(text: &str, home: &Path) -> Result<PathBuf, Wrong> {
    values::without_nul(text)?;
    let path = match text.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        Some(_) => {
            return Err(Wrong::new(
                format!("'{text}' names another user's home"),
                "write that directory's absolute path",
            ));
        }
        None => PathBuf::from(text),
    };
    if path.is_absolute() {
        return Ok(path);
    }
    let help = match text.starts_with('$') {
        true => "variables are not expanded: write ~/ for your home directory, or an absolute path",
        false => "write an absolute path, or one that begins with ~/",
    };
    Err(Wrong::new(format!("'{text}' is not an absolute path"), help))
}
