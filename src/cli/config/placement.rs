//! Nothing that the sandbox can write may hold configuration or Lazaret's own state (SR-2, SR-3).
//!
//! Paths are compared twice: by name after symbolic links are resolved, and by device and inode of
//! every directory above, so that a second mount of the same directory hides nothing. Each
//! symbolic link on the way counts as well: whoever can replace it decides what is read.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::Loaded;
use crate::domain::profile::Access;
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
    #[error("{volume} contains the workspace, which the sandbox would reach there without its protections")]
    Unprotected {
        /// The volume.
        volume: Mounted,
    },
    /// A volume's path leads through what the sandbox can write: a link put there would mount
    /// anything at the next start.
    #[error("{volume} is named by a path through {writable}, where the sandbox could put a link to anything")]
    Replaceable {
        /// The volume.
        volume: Mounted,
        /// What the path leads through.
        writable: Mounted,
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
            Self::Replaceable { writable: Mounted::Workspace(_), .. } => {
                "name a directory outside of the workspace; what is in the workspace is below /workspace already".into()
            }
            Self::Replaceable { .. } => "make the outer volume \"ro\", or name a directory outside of it".into(),
            Self::Resolve { path, .. } => format!("make {} accessible, or name another path", path.display()),
        }
    }
}

/// Checks that configuration, storage and runtime directories are out of the sandbox's reach, and
/// that nothing in its reach decides what is mounted next time.
///
/// Places that do not exist yet are compared by the directories above them that do.
pub fn check_placement(loaded: &Loaded, workspace: &Workspace, places: HostPlaces<'_>) -> Result<(), PlacementError> {
    let project = Mounted::Workspace(workspace.path().to_owned());
    out_of_reach(&project, loaded, places)?;
    let mut writable = vec![(project, Tree::of(workspace.path())?)];
    for volume in &loaded.profile.volumes {
        let mounted = Mounted::Volume(volume.host.clone());
        out_of_reach(&mounted, loaded, places)?;
        let tree = Tree::of(&volume.host)?;
        if tree.holds(workspace.path()) {
            return Err(PlacementError::Unprotected { volume: mounted });
        }
        if volume.access == Access::ReadWrite {
            writable.push((mounted, tree));
        }
    }
    for (volume, path) in loaded.profile.volumes.iter().zip(&loaded.volume_paths) {
        for step in trail(path)? {
            let through = writable.iter().find(|(_, tree)| tree.holds(&step) && !tree.is(&step));
            if let Some((writable, _)) = through {
                let volume = Mounted::Volume(volume.host.clone());
                return Err(PlacementError::Replaceable { volume, writable: writable.clone() });
            }
        }
    }
    Ok(())
}

/// Checks one mounted path against the configuration files and Lazaret's own directories.
fn out_of_reach(mounted: &Mounted, loaded: &Loaded, places: HostPlaces<'_>) -> Result<(), PlacementError> {
    let shown = Tree::of(mounted.path())?;
    for file in &loaded.files {
        if let Some(step) = trail(file)?.into_iter().find(|step| shown.holds(step)) {
            return Err(PlacementError::Configuration { mounted: mounted.clone(), file: step });
        }
    }
    let places = [
        (places.config, "Lazaret's configuration directory"),
        (places.storage, "Lazaret's Storage Root"),
        (places.runtime, "Lazaret's runtime directory"),
    ];
    for (place, what) in places {
        if trail(place)?.iter().any(|step| shown.holds(step)) {
            return Err(PlacementError::Contains { mounted: mounted.clone(), what, place: place.to_owned() });
        }
        if Tree::of(place)?.holds(mounted.path()) {
            return Err(PlacementError::LiesWithin { mounted: mounted.clone(), what, place: place.to_owned() });
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
        path.ancestors().any(|above| self.is(above))
    }

    /// Tells whether a path without symbolic links is this directory.
    fn is(&self, path: &Path) -> bool {
        let identity = || std::fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        path == self.path || (self.identity.is_some() && identity() == self.identity)
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
