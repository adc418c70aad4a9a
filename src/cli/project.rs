//! Which project a command means: the workspace, and where in it the user stands.

use std::path::{Path, PathBuf};

use super::args::ProjectArgs;
use super::error::{CliError, ErrorKind};
use crate::domain::workspace::Workspace;

/// A project directory on the host and a place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// The canonical workspace.
    pub workspace: Workspace,
    /// The current directory below the workspace, relative; empty at its top or outside of it.
    pub directory: PathBuf,
}

impl Project {
    /// Finds the project that the arguments mean.
    pub fn locate(args: &ProjectArgs) -> Result<Self, CliError> {
        let current = match &args.directory {
            Some(directory) => canonical(directory)?,
            None => canonical(Path::new("."))?,
        };
        let workspace = match &args.workspace {
            Some(workspace) => canonical(&current.join(workspace))?,
            None => git_top(&current).unwrap_or(&current).to_owned(),
        };
        let directory = current.strip_prefix(&workspace).map(Path::to_owned).unwrap_or_default();
        Ok(Self { workspace: Workspace::from_canonical(workspace), directory })
    }
}

fn canonical(path: &Path) -> Result<PathBuf, CliError> {
    let path = fs_err::canonicalize(path)?;
    if path.is_dir() {
        Ok(path)
    } else {
        let text = format!("{} is not a directory", path.display());
        Err(CliError::message(text).with_kind(ErrorKind::Usage))
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
}
