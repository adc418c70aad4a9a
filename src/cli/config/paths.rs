//! Persistent paths and volumes: where in the sandbox they may be, and how they may nest.

use std::path::{Path, PathBuf};

use toml::Spanned;

use super::notes::Notes;
use super::raw::{RawProfile, RawVolume};
use super::source::SourceFile;
use super::values::{self, Wrong};
use crate::domain::profile::{Access, GuestPath, Volume};
use crate::domain::runtime::GUEST_CONTROL;
use crate::domain::workspace::GUEST_WORKSPACE;
use crate::policy::explain::volume_text;

/// Trees in the sandbox that are not the profile's to fill, with what they hold.
const TAKEN: [(&str, &str); 5] = [
    (GUEST_WORKSPACE, "the workspace"),
    ("/proc", "gVisor's process information"),
    ("/sys", "gVisor's system information"),
    ("/dev", "gVisor's devices"),
    (GUEST_CONTROL, "Lazaret's control files"),
];

/// Files that Lazaret writes into the root for each generation; no other mount may hide them.
const WRITTEN: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];

/// Reads the persistent paths, each with its place, in order of path.
pub fn persistent<'a>(
    raw: &'a RawProfile,
    file: &SourceFile,
    notes: &mut Notes,
) -> Vec<(GuestPath, &'a Spanned<String>)> {
    let mut paths = notes.list("persistent", file, &raw.persistent, guest_path);
    paths.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (path, at) in &paths {
        if let Some(wrong) = taken(path).or_else(|| hides_written(path)) {
            notes.problem(file, at.span(), wrong);
        }
        if let Some((outer, _)) = paths.iter().find(|(outer, _)| outer != path && path.is_within(outer)) {
            let message = format!("'{path}' lies in '{outer}', which persists as a whole");
            notes.problem(file, at.span(), Wrong::new(message, "take one of them out"));
        }
        notes.record("persistent", path.to_string(), file, at);
    }
    paths
}

/// Reads the volumes, in order of sandbox path.
pub fn volumes(
    raw: &RawProfile,
    file: &SourceFile,
    persistent: &[(GuestPath, &Spanned<String>)],
    home: &Path,
    notes: &mut Notes,
) -> Vec<Volume> {
    let mut placed: Vec<(Volume, PathBuf, &RawVolume)> = Vec::new();
    for written in &raw.volumes {
        let path = values::host_path(written.host.get_ref(), home);
        let host = path.and_then(|path| Ok((existing(&path)?, path)));
        let host = notes.take(file, &written.host, host);
        let guest = guest_path(written.guest.get_ref());
        let guest = guest.and_then(|guest| taken(&guest).or_else(|| hides_written(&guest)).map_or(Ok(guest), Err));
        let guest = notes.take(file, &written.guest, guest);
        let access = access(written, file, notes);
        if let (Some((host, path)), Some(guest), Some(access)) = (host, guest, access) {
            placed.push((Volume { host, guest, access }, path, written));
        }
    }
    for (index, (volume, _, written)) in placed.iter().enumerate() {
        let at = &written.guest;
        if let Some((path, place)) = persistent.iter().find(|(path, _)| path.is_within(&volume.guest)) {
            let message = format!("this volume would hide the persistent path '{path}'");
            let help = format!("take one of them out; the path is in line {}", file.line(place.span().start));
            notes.problem(file, at.span(), Wrong::new(message, help));
        }
        for (outer, _, other) in &placed[..index] {
            if outer.guest == volume.guest {
                let message = format!("two volumes are at '{}'", volume.guest);
                let help = format!(
                    "give one of them another path; the first is in line {}",
                    file.line(other.guest.span().start)
                );
                notes.problem(file, at.span(), Wrong::new(message, help));
            }
        }
        let outer =
            placed.iter().filter(|(outer, ..)| outer.guest != volume.guest && volume.guest.is_within(&outer.guest));
        for (outer, ..) in outer {
            if let Some(missing) = missing_mount_point(outer, volume) {
                let message = format!(
                    "'{}' lies in the volume at '{}', where there is nothing to mount it over",
                    volume.guest, outer.guest
                );
                notes.problem(file, at.span(), Wrong::new(message, format!("run 'mkdir -p {}'", missing.display())));
            }
        }
        let text = volume_text(&volume.host, volume.guest.as_str(), volume.access);
        notes.record("volumes", text, file, &written.host);
    }
    placed.sort_by(|(one, ..), (other, ..)| one.guest.cmp(&other.guest));
    notes.volume_paths = placed.iter().map(|(_, path, _)| path.clone()).collect();
    placed.into_iter().map(|(volume, ..)| volume).collect()
}

fn access(written: &RawVolume, file: &SourceFile, notes: &mut Notes) -> Option<Access> {
    let Some(access) = &written.access else { return Some(Access::ReadOnly) };
    let read = match access.get_ref().as_str() {
        "ro" => Ok(Access::ReadOnly),
        "rw" => Ok(Access::ReadWrite),
        other => Err(Wrong::new(
            format!("'{other}' is not a kind of access"),
            "write \"ro\" to read only, \"rw\" to write as well",
        )),
    };
    notes.take(file, access, read)
}

fn guest_path(text: &str) -> Result<GuestPath, Wrong> {
    values::without_nul(text)?;
    GuestPath::try_from(text.to_owned()).map_err(|error| {
        let help = match text {
            "/" => "the root is new for each generation; name the directories that matter, such as \"/usr/local\"",
            text if text.starts_with('~') => "write the path in full: the sandbox's user may have another home",
            _ => "write a path such as \"/home/agent\"",
        };
        Wrong::new(error.to_string(), help)
    })
}

fn taken(path: &GuestPath) -> Option<Wrong> {
    let (root, what) = TAKEN.iter().find(|(root, _)| Path::new(path.as_str()).starts_with(root))?;
    Some(Wrong::new(format!("'{path}' is not the profile's to fill: '{root}' holds {what}"), "choose another path"))
}

/// Refuses what would hide a file that Lazaret writes, or the control mounts.
fn hides_written(path: &GuestPath) -> Option<Wrong> {
    let fixed = WRITTEN.iter().chain([&GUEST_CONTROL]);
    let hidden = fixed.into_iter().find(|fixed| Path::new(fixed).starts_with(path.as_str()))?;
    if *hidden == path.as_str() {
        let message = format!("'{path}' is a file that Lazaret writes for each generation");
        return Some(Wrong::new(message, "take it out"));
    }
    let message = format!("'{path}' as a whole would hide '{hidden}', which Lazaret writes for each generation");
    Some(Wrong::new(message, format!("name a part of it, such as \"{path}/NAME\"")))
}

/// Gives the canonical path of a host file or directory that can be a volume.
fn existing(path: &Path) -> Result<PathBuf, Wrong> {
    let shown = path.display();
    let canonical = path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Wrong::new(format!("'{shown}' does not exist"), format!("run 'mkdir -p {shown}', or correct the path"))
        }
        _ => Wrong::new(format!("'{shown}' cannot be used: {error}"), "correct the path, or what it leads through"),
    })?;
    if canonical.to_str().is_none() {
        let message = format!("'{shown}' leads to a path that is not UTF-8");
        return Err(Wrong::new(message, "name a directory with a UTF-8 path"));
    }
    match canonical.metadata() {
        Ok(metadata) if metadata.is_dir() || metadata.is_file() => Ok(canonical),
        Ok(_) => Err(Wrong::new(
            format!("'{shown}' is neither a directory nor a file"),
            "sockets, devices and pipes of the host cannot be used from the sandbox",
        )),
        Err(error) => Err(Wrong::new(format!("'{shown}' cannot be used: {error}"), "correct the path")),
    }
}

/// Gives the host path that a volume in a volume would be mounted over, when it is not there: the
/// runtime would make it, and nothing may be made in a host directory.
fn missing_mount_point(outer: &Volume, inner: &Volume) -> Option<PathBuf> {
    let rest = Path::new(inner.guest.as_str()).strip_prefix(outer.guest.as_str()).ok()?;
    let target = outer.host.join(rest);
    (!target.exists()).then_some(target)
}
