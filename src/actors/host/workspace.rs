//! What lies in a workspace, as far as its protections depend on it. No symbolic link is followed.

use std::io;
use std::path::Path;

use crate::policy::protections::{EntryKind, GitDirectory, GitEntry, WorkspaceFacts, WorktreeConfig};

/// Largest Git configuration that is searched; beyond it the extension counts as mentioned.
const CONFIG_LIMIT: u64 = 1 << 20;

/// Looks at `.git` and at the names that the profile wants hidden.
pub fn gather(workspace: &Path, hide: &[String]) -> io::Result<WorkspaceFacts> {
    let git = workspace.join(".git");
    let git = match kind(&git)? {
        EntryKind::Absent => GitEntry::Absent,
        EntryKind::File => GitEntry::File,
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
