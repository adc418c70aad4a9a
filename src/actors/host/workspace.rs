//! What lies in a workspace, as far as its protections depend on it. No symbolic link is followed, but for finding out where
//! the repository lies that a `.git` file names.

use std::ffi::OsStr;
use std::io;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::policy::protections::{EntryKind, GitDirectory, GitEntry, RepositoryPlace, WorkspaceFacts, WorktreeConfig};

/// Largest Git configuration that is searched; beyond it the extension counts as mentioned.
const CONFIG_LIMIT: u64 = 1 << 20;

/// Largest `.git` file that is read: a word and a path.
const GIT_FILE_LIMIT: u64 = 8 << 10;

/// Looks at `.git` and at the names that the profile wants hidden.
pub fn gather(workspace: &Path, hide: &[String]) -> io::Result<WorkspaceFacts> {
    let git = workspace.join(".git");
    let git = match kind(&git)? {
        EntryKind::Absent => GitEntry::Absent,
        EntryKind::File => GitEntry::File(repository_place(workspace, &git)?),
        EntryKind::Symlink => GitEntry::Symlink,
        EntryKind::Other => GitEntry::Other,
        EntryKind::Directory => {
            let config = kind(&git.join("config"))?;
            GitEntry::Directory(GitDirectory {
                config,
                config_worktree: kind(&git.join("config.worktree"))?,
                worktree_config: worktree_config(&git.join("config"), config)?,
                hooks: kind(&git.join("hooks"))?,
                commondir: kind(&git.join("commondir"))?,
            })
        }
    };
    let hide = hide.iter().map(|name| Ok((name.clone(), kind(&workspace.join(name))?)));
    Ok(WorkspaceFacts { git, hide: hide.collect::<io::Result<_>>()? })
}

fn kind(path: &Path) -> io::Result<EntryKind> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => Ok(EntryKind::Directory),
        Ok(found) if found.is_file() => Ok(EntryKind::File),
        Ok(found) if found.is_symlink() => Ok(EntryKind::Symlink),
        Ok(_) => Ok(EntryKind::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(EntryKind::Absent),
        Err(error) => Err(error),
    }
}

/// Reads whether the configuration names the extension at all; Git's own value may still be false,
/// and then a protection too many is made.
fn worktree_config(path: &Path, kind: EntryKind) -> io::Result<WorktreeConfig> {
    if kind != EntryKind::File {
        return Ok(WorktreeConfig::NotMentioned);
    }
    if std::fs::symlink_metadata(path)?.len() > CONFIG_LIMIT {
        return Ok(WorktreeConfig::Mentioned);
    }
    let content = std::fs::read(path)?.to_ascii_lowercase();
    let name = b"worktreeconfig";
    let mentioned = content.windows(name.len()).any(|window| window == name);
    Ok(if mentioned { WorktreeConfig::Mentioned } else { WorktreeConfig::NotMentioned })
}

/// Finds out where the repository lies that a `.git` file names (gitrepository-layout(5)).
fn repository_place(workspace: &Path, git: &Path) -> io::Result<RepositoryPlace> {
    let mut content = Vec::new();
    std::fs::File::open(git)?.take(GIT_FILE_LIMIT).read_to_end(&mut content)?;
    let Some(named) = content.strip_prefix(b"gitdir:").map(<[u8]>::trim_ascii) else {
        return Ok(RepositoryPlace::Nowhere);
    };
    let named = workspace.join(OsStr::from_bytes(named));
    // As it is written: the sandbox can make what is not there yet, and replace a link that leads out.
    let written = lexical(&named);
    if written.starts_with(workspace) {
        return Ok(RepositoryPlace::Inside(written));
    }
    Ok(match named.canonicalize() {
        Ok(path) if path.starts_with(workspace) => RepositoryPlace::Inside(path),
        Ok(path) => RepositoryPlace::Outside(path),
        // One that this user can't reach is of no use to this user's Git.
        Err(_) => RepositoryPlace::Nowhere,
    })
}

/// Gives a path without `.` and `..`, as it is written and whatever lies there.
fn lexical(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn git_directory(workspace: &Path) -> GitDirectory {
        match gather(workspace, &[]).unwrap().git {
            GitEntry::Directory(directory) => directory,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_repository_is_described_by_what_lies_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path();
        assert_eq!(gather(workspace, &[]).unwrap().git, GitEntry::Absent);
        fs::create_dir_all(workspace.join(".git/hooks")).unwrap();
        fs::write(workspace.join(".git/config"), "[core]\n\tbare = false\n").unwrap();
        let found = git_directory(workspace);
        assert_eq!((found.config, found.hooks), (EntryKind::File, EntryKind::Directory));
        assert_eq!(found.worktree_config, WorktreeConfig::NotMentioned);
        fs::write(workspace.join(".git/config"), "[extensions]\n\tworktreeConfig = true\n").unwrap();
        assert_eq!(git_directory(workspace).worktree_config, WorktreeConfig::Mentioned);
    }

    #[test]
    fn a_repository_that_is_named_is_looked_for() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let workspace = top.join("linked");
        fs::create_dir_all(workspace.join("own")).unwrap();
        fs::create_dir_all(top.join("main/.git/worktrees/linked")).unwrap();
        let place = |content: &str| {
            fs::write(workspace.join(".git"), content).unwrap();
            match gather(&workspace, &[]).unwrap().git {
                GitEntry::File(place) => place,
                other => panic!("{other:?}"),
            }
        };
        let main = top.join("main/.git/worktrees/linked");
        assert_eq!(place(&format!("gitdir: {}\n", main.display())), RepositoryPlace::Outside(main.clone()));
        assert_eq!(place("gitdir: ../main/.git/worktrees/linked\n"), RepositoryPlace::Outside(main));
        assert_eq!(place("gitdir: own\n"), RepositoryPlace::Inside(workspace.join("own")));
        let inside = |name: &str| RepositoryPlace::Inside(workspace.join(name));
        assert_eq!(place("gitdir: not/yet\n"), inside("not/yet"), "the sandbox can make it");
        std::os::unix::fs::symlink(&top, workspace.join("link")).unwrap();
        assert_eq!(place("gitdir: link/main/.git\n"), inside("link/main/.git"), "the sandbox can replace the link");
        assert_eq!(place("gitdir: ../linked/./own\n"), inside("own"));
        std::os::unix::fs::symlink(workspace.join("own"), top.join("back")).unwrap();
        assert_eq!(place("gitdir: ../back\n"), inside("own"));
        assert_eq!(place("gitdir: /no/such\n"), RepositoryPlace::Nowhere);
        assert_eq!(place("something else"), RepositoryPlace::Nowhere);
    }

    #[test]
    fn links_are_described_as_links() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path();
        std::os::unix::fs::symlink("/etc", workspace.join(".git")).unwrap();
        std::os::unix::fs::symlink("/etc", workspace.join(".vscode")).unwrap();
        let facts = gather(workspace, &[".vscode".into(), ".idea".into()]).unwrap();
        assert_eq!(facts.git, GitEntry::Symlink);
        assert_eq!(facts.hide[".vscode"], EntryKind::Symlink);
        assert_eq!(facts.hide[".idea"], EntryKind::Absent);
    }
}
