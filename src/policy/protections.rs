//! Protective mounts over the workspace (Git Sentry, specification 3.4, SR-4).
//!
//! A mount needs something to be mounted over, and nothing may be made in the workspace for that:
//! its tree stays byte-identical. So what is absent cannot be protected, and where that would
//! open a way to the host the plan is refused with what to do about it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::domain::profile::WorkspaceGrant;
use crate::domain::workspace::{Protection, ProtectionKind};

/// What lies at a path, its own symlink not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// Nothing.
    Absent,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Something else: a socket, a device, a pipe.
    Other,
}

/// What lies in a `.git` directory, as far as protections depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GitDirectory {
    /// `.git/config`.
    pub config: EntryKind,
    /// `.git/config.worktree`.
    pub config_worktree: EntryKind,
    /// Whether `.git/config` may tell Git to read `.git/config.worktree`.
    pub worktree_config: WorktreeConfig,
    /// `.git/hooks`.
    pub hooks: EntryKind,
    /// `.git/commondir`.
    pub commondir: EntryKind,
}

/// Whether a repository's configuration mentions `extensions.worktreeConfig`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorktreeConfig {
    /// It does, so Git may obey `.git/config.worktree`.
    Mentioned,
    /// It does not, so Git ignores that file.
    NotMentioned,
}

/// What the workspace's `.git` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitEntry {
    /// There is none.
    Absent,
    /// A repository of its own.
    Directory(GitDirectory),
    /// A file that names the repository: a linked worktree or a submodule.
    File(RepositoryPlace),
    /// A symbolic link.
    Symlink,
    /// Something else.
    Other,
}

/// Where the repository lies that a `.git` file names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepositoryPlace {
    /// Outside the workspace.
    Outside(PathBuf),
    /// In the workspace.
    Inside(PathBuf),
    /// The file names none that exists, so that Git does not work on the host either.
    Nowhere,
}

/// What was found in a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceFacts {
    /// `.git`.
    pub git: GitEntry,
    /// What lies at each name that the profile wants hidden.
    pub hide: BTreeMap<String, EntryKind>,
}

/// The protections of one workspace, and what a developer should know about them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtectionPlan {
    /// Mounts to make, parents before children.
    pub protections: Vec<Protection>,
    /// One line each.
    pub notices: Vec<String>,
}

/// The workspace cannot be protected as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtectionRefusal {
    /// Following the link could mount something outside the workspace.
    #[error("'{path}' is a symbolic link, which cannot be protected")]
    Symlink {
        /// Path below the workspace.
        path: String,
    },
    /// There is something that Git itself would not understand.
    #[error("'{path}' is not a {expected}")]
    WrongKind {
        /// Path below the workspace.
        path: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Nothing is there, and the sandbox could create what the host's Git then obeys.
    #[error("'{path}' does not exist, so the sandbox could create it and the host's Git would obey it")]
    Missing {
        /// Path below the workspace.
        path: &'static str,
        /// What to do on the host.
        remedy: &'static str,
    },
    /// The sandbox could write configuration and hooks of the workspace's repository.
    #[error("'.git' is a file, and the repository that it names, {}, lies in the workspace unprotected", path.display())]
    RepositoryInside {
        /// The repository.
        path: PathBuf,
    },
    /// The profile wants Git-ignored paths kept apart, which this version can't do.
    #[error("Git-ignored paths can't be kept apart from the host's in this version")]
    Isolation,
}

impl ProtectionRefusal {
    /// Gives what the developer can do about it, on the host, in the workspace.
    pub fn hint(&self) -> String {
        match self {
            Self::Symlink { path } => {
                format!("replace '{path}' by what it points to, or run lazaret where it points to")
            }
            Self::WrongKind { path, expected } => {
                format!(
                    "move '{path}' away, or take its name out of 'hide' in the profile if it need not be a {expected}"
                )
            }
            Self::Missing { remedy, .. } => format!("run '{remedy}' in the workspace on the host"),
            Self::RepositoryInside { path } => {
                format!("move {} out of the workspace, or to '.git' itself", path.display())
            }
            Self::Isolation => {
                "to share them with the sandbox, write 'isolate_ignored = false' below [workspace] in the profile"
                    .to_owned()
            }
        }
    }
}

/// Gives the line that says that Git-ignored paths are shared; refuses a profile that does not agree to it.
pub fn ignored_paths(grant: &WorkspaceGrant) -> Result<&'static str, ProtectionRefusal> {
    if grant.isolate_ignored {
        return Err(ProtectionRefusal::Isolation);
    }
    Ok("Git-ignored paths are shared with the sandbox, as the profile's 'isolate_ignored = false' says")
}

/// Plans the protective mounts for what was found in a workspace.
pub fn plan(facts: &WorkspaceFacts, grant: &WorkspaceGrant) -> Result<ProtectionPlan, ProtectionRefusal> {
    ignored_paths(grant)?;
    let mut plan = ProtectionPlan::default();
    match &facts.git {
        GitEntry::Absent => plan.notice(
            "the workspace has no '.git': a repository that the sandbox makes here is its own work, hooks and \
             configuration included; look at it before you use Git in it on the host",
        ),
        GitEntry::Directory(directory) => plan.protect_repository(directory)?,
        GitEntry::File(RepositoryPlace::Inside(path)) => {
            return Err(ProtectionRefusal::RepositoryInside { path: path.clone() });
        }
        GitEntry::File(place) => {
            plan.protect(".git", ProtectionKind::ReadOnly);
            if let RepositoryPlace::Outside(path) = place {
                plan.notice(&format!(
                    "Git does not work in this sandbox: the workspace is a linked worktree or a submodule, whose repository \
                     {} is not shared with it; use Git on the host, or work in a clone made with: git clone . DIR",
                    path.display()
                ));
            }
        }
        GitEntry::Symlink => return Err(ProtectionRefusal::Symlink { path: ".git".into() }),
        GitEntry::Other => {
            return Err(ProtectionRefusal::WrongKind { path: ".git".into(), expected: "directory or a file" });
        }
    }
    for name in &grant.hide {
        match facts.hide.get(name).copied().unwrap_or(EntryKind::Absent) {
            EntryKind::Directory => plan.protect(name, ProtectionKind::Hidden),
            // There is nothing to hide, and nothing to be done about it.
            EntryKind::Absent => {}
            EntryKind::Symlink => return Err(ProtectionRefusal::Symlink { path: name.clone() }),
            EntryKind::File | EntryKind::Other => {
                return Err(ProtectionRefusal::WrongKind { path: name.clone(), expected: "directory" });
            }
        }
    }
    Ok(plan)
}

impl ProtectionPlan {
    fn protect(&mut self, path: &str, kind: ProtectionKind) {
        self.protections.push(Protection { path: PathBuf::from(path), kind });
    }

    fn notice(&mut self, text: &str) {
        self.notices.push(text.to_owned());
    }

    fn protect_repository(&mut self, git: &GitDirectory) -> Result<(), ProtectionRefusal> {
        self.protect(".git", ProtectionKind::Pinned);
        expect(".git/config", git.config, EntryKind::File, "file", "git init")?;
        self.protect(".git/config", ProtectionKind::ReadOnly);
        let obeyed = git.worktree_config == WorktreeConfig::Mentioned;
        if git.config_worktree != EntryKind::Absent || obeyed {
            expect(".git/config.worktree", git.config_worktree, EntryKind::File, "file", "touch .git/config.worktree")?;
            self.protect(".git/config.worktree", ProtectionKind::ReadOnly);
        }
        // Git takes the repository's configuration from where this file points to. A main working
        // tree has none, and an absent one can't be mounted over: the git router closes that gap.
        match git.commondir {
            EntryKind::File => self.protect(".git/commondir", ProtectionKind::ReadOnly),
            EntryKind::Symlink => return Err(ProtectionRefusal::Symlink { path: ".git/commondir".into() }),
            EntryKind::Absent | EntryKind::Directory | EntryKind::Other => {}
        }
        expect(".git/hooks", git.hooks, EntryKind::Directory, "directory", "mkdir .git/hooks")?;
        self.protect(".git/hooks", ProtectionKind::Hidden);
        Ok(())
    }
}

fn expect(
    path: &'static str,
    found: EntryKind,
    wanted: EntryKind,
    expected: &'static str,
    remedy: &'static str,
) -> Result<(), ProtectionRefusal> {
    match found {
        found if found == wanted => Ok(()),
        EntryKind::Absent => Err(ProtectionRefusal::Missing { path, remedy }),
        EntryKind::Symlink => Err(ProtectionRefusal::Symlink { path: path.into() }),
        _ => Err(ProtectionRefusal::WrongKind { path: path.into(), expected }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPOSITORY: GitDirectory = GitDirectory {
        config: EntryKind::File,
        config_worktree: EntryKind::Absent,
        worktree_config: WorktreeConfig::NotMentioned,
        hooks: EntryKind::Directory,
        commondir: EntryKind::Absent,
    };

    fn planned(git: GitEntry, hide: &[(&str, EntryKind)]) -> Result<ProtectionPlan, ProtectionRefusal> {
        let grant =
            WorkspaceGrant { isolate_ignored: false, hide: hide.iter().map(|(name, _)| name.to_string()).collect() };
        let hide = hide.iter().map(|(name, kind)| (name.to_string(), *kind)).collect();
        plan(&WorkspaceFacts { git, hide }, &grant)
    }

    fn kinds(plan: &ProtectionPlan) -> Vec<(&str, ProtectionKind)> {
        plan.protections.iter().map(|p| (p.path.to_str().unwrap(), p.kind)).collect()
    }

    #[test]
    fn a_repository_is_pinned_with_config_read_only_and_hooks_hidden() {
        let plan = planned(GitEntry::Directory(REPOSITORY), &[(".vscode", EntryKind::Directory)]).unwrap();
        let expected = [
            (".git", ProtectionKind::Pinned),
            (".git/config", ProtectionKind::ReadOnly),
            (".git/hooks", ProtectionKind::Hidden),
            (".vscode", ProtectionKind::Hidden),
        ];
        assert_eq!(kinds(&plan), expected);
        assert!(plan.notices.is_empty());
    }

    #[test]
    fn worktree_configuration_is_read_only_or_asked_for() {
        let with = GitDirectory { config_worktree: EntryKind::File, ..REPOSITORY };
        let plan = planned(GitEntry::Directory(with), &[]).unwrap();
        assert!(kinds(&plan).contains(&(".git/config.worktree", ProtectionKind::ReadOnly)));
        let obeyed = GitDirectory { worktree_config: WorktreeConfig::Mentioned, ..REPOSITORY };
        let refusal = planned(GitEntry::Directory(obeyed), &[]).unwrap_err();
        assert_eq!(refusal.hint(), "run 'touch .git/config.worktree' in the workspace on the host");
    }

    #[test]
    fn what_cannot_be_mounted_over_is_refused_with_the_remedy() {
        let without_hooks = GitDirectory { hooks: EntryKind::Absent, ..REPOSITORY };
        let refusal = planned(GitEntry::Directory(without_hooks), &[]).unwrap_err();
        assert!(refusal.hint().contains("mkdir .git/hooks"), "{}", refusal.hint());
        let without_config = GitDirectory { config: EntryKind::Absent, ..REPOSITORY };
        assert!(planned(GitEntry::Directory(without_config), &[]).is_err());
        for link in [
            GitDirectory { hooks: EntryKind::Symlink, ..REPOSITORY },
            GitDirectory { config: EntryKind::Symlink, ..REPOSITORY },
            GitDirectory { config_worktree: EntryKind::Symlink, ..REPOSITORY },
            GitDirectory { commondir: EntryKind::Symlink, ..REPOSITORY },
        ] {
            let refusal = planned(GitEntry::Directory(link), &[]).unwrap_err();
            assert!(matches!(refusal, ProtectionRefusal::Symlink { .. }));
        }
        assert!(planned(GitEntry::Symlink, &[]).is_err());
        assert!(planned(GitEntry::Other, &[]).is_err());
        assert!(planned(GitEntry::Absent, &[(".idea", EntryKind::Symlink)]).is_err());
        assert!(planned(GitEntry::Absent, &[(".idea", EntryKind::File)]).is_err());
    }

    #[test]
    fn sharing_ignored_paths_takes_agreement() {
        let mut grant = WorkspaceGrant { isolate_ignored: true, hide: Vec::new() };
        let facts = WorkspaceFacts { git: GitEntry::Directory(REPOSITORY), hide: BTreeMap::new() };
        assert_eq!(plan(&facts, &grant), Err(ProtectionRefusal::Isolation));
        grant.isolate_ignored = false;
        assert!(ignored_paths(&grant).unwrap().contains("shared"));
    }

    #[test]
    fn a_notice_is_given_where_something_is_to_be_done() {
        let main = || PathBuf::from("/home/dev/main/.git/worktrees/linked");
        let absent = [(".vscode", EntryKind::Absent)];
        let plan = planned(GitEntry::File(RepositoryPlace::Outside(main())), &absent).unwrap();
        assert_eq!(kinds(&plan), [(".git", ProtectionKind::ReadOnly)]);
        assert_eq!(plan.notices.len(), 1, "{:?}", plan.notices);
        assert!(plan.notices[0].contains("/home/dev/main/.git/worktrees/linked is not shared"), "{:?}", plan.notices);
        let plan = planned(GitEntry::File(RepositoryPlace::Nowhere), &absent).unwrap();
        assert_eq!((kinds(&plan).len(), plan.notices.len()), (1, 0), "Git does not work on the host either");
        let refusal = planned(GitEntry::File(RepositoryPlace::Inside(main())), &[]).unwrap_err();
        assert_eq!(refusal, ProtectionRefusal::RepositoryInside { path: main() });
        let plan = planned(GitEntry::Absent, &[]).unwrap();
        assert!(plan.protections.is_empty());
        assert_eq!(plan.notices.len(), 1);
    }
}
