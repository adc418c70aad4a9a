//! Which project a command means: the workspace, and where in it the user stands.

use std::io;
use std::path::{Path, PathBuf};

use super::args::ProjectArgs;
use super::error::CliError;
use super::output;
use crate::domain::workspace::Workspace;

/// A project directory on the host and a place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// The canonical workspace.
    pub workspace: Workspace,
    /// The current directory below the workspace, relative; empty at its top or outside of it.
    pub directory: PathBuf,
}

/// A directory that was named, or the current one, can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// There is none.
    #[error("{} does not exist", place(given.as_ref()))]
    Missing {
        /// As it was given; nothing for the current directory.
        given: Option<PathBuf>,
    },
    /// Something else is there.
    #[error("{} is not a directory", output::word(given))]
    NotADirectory {
        /// As it was given.
        given: PathBuf,
    },
    /// It can't be reached.
    #[error("{} can't be used", place(given.as_ref()))]
    Unreachable {
        /// As it was given; nothing for the current directory.
        given: Option<PathBuf>,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ProjectError {
    /// Turns it into what the Client CLI reports, with what to do.
    pub fn into_cli(self) -> CliError {
        let hint = match &self {
            Self::Missing { given: None } | Self::Unreachable { given: None, .. } => {
                "change to your project's directory"
            }
            Self::Unreachable { .. } => "name a directory that you may enter",
            Self::Missing { .. } | Self::NotADirectory { .. } => "name a directory that exists",
        };
        CliError::from(self).hint(hint)
    }
}

fn place(given: Option<&PathBuf>) -> String {
    given.map_or_else(|| "the current directory".to_owned(), |path| format!("the directory {}", output::word(path)))
}

impl Project {
    /// Finds the project that the arguments mean.
    pub fn locate(args: &ProjectArgs) -> Result<Self, ProjectError> {
        let current = canonical(Path::new("."), args.directory.as_deref())?;
        let workspace = match &args.workspace {
            Some(workspace) => canonical(&current, Some(workspace))?,
            None => git_top(&current).unwrap_or(&current).to_owned(),
        };
        let directory = current.strip_prefix(&workspace).map(Path::to_owned).unwrap_or_default();
        Ok(Self { workspace: Workspace::from_canonical(workspace), directory })
    }
}

/// Resolves a directory as it was given, starting from another one.
fn canonical(from: &Path, given: Option<&Path>) -> Result<PathBuf, ProjectError> {
    let owned = || given.map(Path::to_owned);
    match from.join(given.unwrap_or(Path::new(""))).canonicalize() {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(path) => Err(ProjectError::NotADirectory { given: owned().unwrap_or(path) }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ProjectError::Missing { given: owned() }),
        Err(source) => Err(ProjectError::Unreachable { given: owned(), source }),
    }
}

/// Gives the closest directory around `directory` that is the top of a Git working tree: it has a
/// `.git` that is a repository, or a file that points to one. Nothing in it is obeyed.
fn git_top(directory: &Path) -> Option<&Path> {
    directory.ancestors().find(|candidate| {
        let git = candidate.join(".git");
        git.is_file() || git.join("HEAD").symlink_metadata().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locate(directory: &Path, workspace: Option<&Path>) -> Project {
        let args = ProjectArgs {
            directory: Some(directory.to_owned()),
            workspace: workspace.map(Path::to_owned),
            ..ProjectArgs::default()
        };
        Project::locate(&args).unwrap()
    }

    #[test]
    fn the_workspace_is_the_git_top_or_the_directory_itself() {
        let temporary = tempfile::tempdir().unwrap();
        let top = temporary.path().canonicalize().unwrap();
        let deep = top.join("src/deep");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(locate(&deep, None).workspace.path(), deep);

        std::fs::create_dir(top.join(".git")).unwrap();
        assert_eq!(locate(&deep, None).workspace.path(), deep, "an empty .git is no repository");
        std::fs::write(top.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        let found = locate(&deep, None);
        assert_eq!((found.workspace.path(), found.directory.as_path()), (top.as_path(), Path::new("src/deep")));

        std::fs::write(top.join("src/.git"), "gitdir: elsewhere\n").unwrap();
        assert_eq!(locate(&deep, None).workspace.path(), top.join("src"));

        let chosen = locate(&deep, Some(Path::new("..")));
        assert_eq!((chosen.workspace.path(), chosen.directory.as_path()), (&*top.join("src"), Path::new("deep")));
        std::os::unix::fs::symlink(&deep, top.join("link")).unwrap();
        assert_eq!(locate(&top.join("link"), None).directory, Path::new("deep"));
    }

    #[test]
    fn a_directory_that_is_none_is_named_as_it_was_given() {
        let temporary = tempfile::tempdir().unwrap();
        std::fs::write(temporary.path().join("file"), "").unwrap();
        let refused = |directory: &Path, workspace: Option<&str>| {
            let (directory, workspace) = (Some(directory.to_owned()), workspace.map(PathBuf::from));
            let error = Project::locate(&ProjectArgs { directory, workspace, ..ProjectArgs::default() });
            let error = error.unwrap_err().into_cli();
            assert_eq!((error.hints.len(), error.chain().len()), (1, 1), "{error:?}");
            error.chain().remove(0)
        };
        assert_eq!(refused(Path::new("/no such"), None), "the directory '/no such' does not exist");
        assert_eq!(refused(temporary.path(), Some("gone")), "the directory gone does not exist");
        assert_eq!(refused(temporary.path(), Some("file")), "file is not a directory");
    }
}
