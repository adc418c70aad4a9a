//! Nothing that the sandbox can write may hold configuration or Lazaret's own state (SR-2, SR-3).
//!
//! Paths are compared twice: by name after symbolic links are resolved, and by device and inode of
//! every directory above, so that a second mount of the same directory hides nothing. Each
//! symbolic link on the way counts as well: whoever can replace it decides what is read.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::domain::profile::Profile;
use crate::domain::workspace::Workspace;

/// Longest chain of symbolic links that is followed, as in the kernel (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Directories that are Lazaret's alone.
#[derive(Debug, Clone, Copy)]
pub struct HostPlaces<'a> {
    /// The configuration directory.
    pub config: &'a Path,
    /// The Storage Root.
    pub storage: &'a Path,
    /// The directory of all Domains' runtime directories.
    pub runtime: &'a Path,
}

/// What is mounted into the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mounted {
    /// The workspace.
    Workspace(PathBuf),
    /// A volume.
    Volume(PathBuf),
}

impl Mounted {
    fn path(&self) -> &Path {
        match self {
            Self::Workspace(path) | Self::Volume(path) => path,
        }
    }
}

impl std::fmt::Display for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self {
            Self::Workspace(_) => "workspace",
            Self::Volume(_) => "volume",
        };
        write!(f, "the {kind} {}", self.path().display())
    }
}

/// What is mounted and what is Lazaret's lie in each other.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// The sandbox could rewrite what decides about it.
    #[error("{mounted} holds the configuration file {}, which the sandbox could then change", file.display())]
    Configuration {
        /// What is mounted.
        mounted: Mounted,
        /// The configuration file, or a symbolic link on the way to it.
        file: PathBuf,
    },
    /// The sandbox would reach Lazaret's own files.
    #[error("{mounted} contains {what}, {}", place.display())]
    Contains {
        /// What is mounted.
        mounted: Mounted,
        /// What the place is for.
        what: &'static str,
        /// The place.
        place: PathBuf,
    },
    /// What is mounted is part of Lazaret's own files.
    #[error("{mounted} lies in {what}, {}", place.display())]
    LiesWithin {
        /// What is mounted.
        mounted: Mounted,
        /// What the place is for.
        what: &'static str,
        /// The place.
        place: PathBuf,
    },
    /// A volume would show the workspace without its protections.
    #[error("{volume} contains {part} of the workspace, which the sandbox would reach there without its protections")]
    Unprotected {
        /// The volume.
        volume: Mounted,
        /// What it contains.
        part: &'static str,
    },
    /// A path cannot be looked at.
    #[error("cannot resolve {}", path.display())]
    Resolve {
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl PlacementError {
    /// Gives the way out.
    pub fn hint(&self) -> String {
        let move_on = |mounted: &Mounted| match mounted {
            Mounted::Workspace(path) => {
                format!("run lazaret in a project directory below {}, or name one with --workspace", path.display())
            }
            Mounted::Volume(_) => {
                "give the volume a directory further down, which holds only what the sandbox needs".into()
            }
        };
        match self {
            Self::Configuration { mounted, file } => format!(
                "{}; or keep {} where no project is, such as in ~/.config/lazaret",
                move_on(mounted),
                file.display()
            ),
            Self::Contains { mounted, .. } => move_on(mounted),
            Self::LiesWithin { mounted: Mounted::Workspace(_), .. } => {
                "run lazaret in a project directory elsewhere".into()
            }
            Self::LiesWithin { mounted: Mounted::Volume(_), .. } => "take the volume out of the profile".into(),
            Self::Unprotected { .. } => {
                "take the volume out, or name a directory beside the workspace; the workspace itself is at /workspace"
                    .into()
            }
            Self::Resolve { path, .. } => format!("make {} accessible, or name another path", path.display()),
        }
    }
}

/// Checks that configuration, storage and runtime directories are out of the sandbox's reach.
///
/// `files` are the configuration files that were read. Places that do not exist yet are compared
/// by the directories above them that do.
pub fn check_placement(
    profile: &Profile,
    workspace: &Workspace,
    files: &[PathBuf],
    places: HostPlaces<'_>,
) -> Result<(), PlacementError> {
    let mut mounted = vec![Mounted::Workspace(workspace.path().to_owned())];
    mounted.extend(profile.volumes.iter().map(|volume| Mounted::Volume(volume.host.clone())));
    let places = [
        (places.config, "Lazaret's configuration directory"),
        (places.storage, "Lazaret's Storage Root"),
        (places.runtime, "Lazaret's runtime directory"),
    ];
    for mounted in &mounted {
        let shown = Tree::of(mounted.path())?;
        for file in files {
            if let Some(step) = trail(file)?.into_iter().find(|step| shown.holds(step)) {
                return Err(PlacementError::Configuration { mounted: mounted.clone(), file: step });
            }
        }
        for (place, what) in places {
            if trail(place)?.iter().any(|step| shown.holds(step)) {
                return Err(PlacementError::Contains { mounted: mounted.clone(), what, place: place.to_owned() });
            }
            let own = Tree::of(place)?;
            if own.holds(mounted.path()) {
                return Err(PlacementError::LiesWithin { mounted: mounted.clone(), what, place: place.to_owned() });
            }
        }
        if let Mounted::Volume(path) = mounted {
            let volume = || mounted.clone();
            if shown.holds(workspace.path()) {
                return Err(PlacementError::Unprotected { volume: volume(), part: "all" });
            }
            if Tree::of(&workspace.path().join(".git"))?.holds(path) {
                return Err(PlacementError::Unprotected { volume: volume(), part: "the repository" });
            }
        }
    }
    Ok(())
}

/// A directory, by name and by identity, to tell what lies in it.
struct Tree {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl Tree {
    fn of(path: &Path) -> Result<Self, PlacementError> {
        let last = trail(path)?.pop().unwrap_or_else(|| path.to_owned());
        let identity = std::fs::metadata(&last).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        Ok(Self { path: last, identity })
    }

    /// Tells whether a path without symbolic links is this directory or lies in it.
    fn holds(&self, path: &Path) -> bool {
        let same = |above: &Path| {
            let identity = || std::fs::symlink_metadata(above).ok().map(|metadata| (metadata.dev(), metadata.ino()));
            self.identity.is_some() && identity() == self.identity
        };
        path.starts_with(&self.path) || path.ancestors().any(same)
    }
}

/// Follows a path as the kernel does. Gives every symbolic link that was followed and at last the
/// target, each by a path without links. What does not exist is taken as it is written.
fn trail(path: &Path) -> Result<Vec<PathBuf>, PlacementError> {
    let fail = |source| PlacementError::Resolve { path: path.to_owned(), source };
    let mut steps = Vec::new();
    let mut rest: Vec<PathBuf> = parts(path);
    let mut at = PathBuf::from("/");
    while let Some(part) = rest.pop() {
        if part == Path::new("..") {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        let target = match std::fs::read_link(&next) {
            Ok(target) => target,
            // Not a link (EINVAL), nothing there, or a file in a directory's place.
            Err(error) if is_no_link(&error) => {
                at = next;
                continue;
            }
            Err(error) => return Err(fail(error)),
        };
        if steps.len() >= MOST_LINKS {
            return Err(fail(io::Error::from_raw_os_error(nix::libc::ELOOP)));
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        steps.push(next);
        rest.extend(parts(&target));
    }
    steps.push(at);
    Ok(steps)
}

fn is_no_link(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(nix::libc::EINVAL | nix::libc::ENOENT | nix::libc::ENOTDIR))
}

/// Gives a path's components, last first, without the root and without `.`.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    let mut parts: Vec<PathBuf> = named.map(|part| PathBuf::from(part.as_os_str())).collect();
    parts.reverse();
    parts
}

#[cfg(test)]
mod tests;
