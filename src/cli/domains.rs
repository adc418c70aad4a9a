//! Which Domains this user has, and which one a command means.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::args::{DomainArgs, ProjectArgs};
use super::config::{self, ConfigDirs};
use super::error::{CliError, ErrorKind};
use super::places::Places;
use super::project::{Project, ProjectError};
use super::{connect, hint, output};
use crate::domain::escaped::escape;
use crate::domain::ids::ProfileName;
use crate::domain::workspace::{DomainRecord, Workspace};

/// What a Domain ID begins with.
const ID_PREFIX: &str = "d-";

/// Shortest part of a Domain ID that names it, in digits.
const SHORTEST_PREFIX: usize = 4;

/// Gives every Domain that has state on this machine, by workspace and profile. Directories that
/// hold no consistent record are none.
pub fn known(places: &Places) -> io::Result<Vec<DomainRecord>> {
    let entries = match std::fs::read_dir(places.storage.domains()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut records = Vec::new();
    for entry in entries {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let record: Option<DomainRecord> = connect::record(&places.storage.domain(&id).identity()).ok().flatten();
        records.extend(record.filter(|record| record.domain == id && record.workspace().is_some()));
    }
    records.sort_by(|a, b| (&a.workspace, &a.profile).cmp(&(&b.workspace, &b.profile)));
    Ok(records)
}

/// The Domain that a command means can't be told.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The directory of all Domains can't be read.
    #[error("the sandboxes in {} can't be listed", path.display())]
    List {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The project can't be found.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// What was named is neither a Domain ID nor a directory.
    #[error("there is neither a sandbox nor a directory {}", output::word(.0))]
    NoSuchName(OsString),
    /// No Domain has such an ID.
    #[error("there is no sandbox '{ID_PREFIX}{0}'")]
    NoSuchId(String),
    /// Too few digits name no Domain.
    #[error("'{ID_PREFIX}{0}' is too short to name a sandbox: give at least {SHORTEST_PREFIX} digits")]
    TooShort(String),
    /// The workspace has no Domain, or none of the profile.
    #[error("{} has no sandbox{}", output::word(workspace.path()), of_profile(profile.as_ref()))]
    NoneHere {
        /// The workspace.
        workspace: Workspace,
        /// The profile that was asked for.
        profile: Option<ProfileName>,
    },
    /// What was named is the beginning of several Domains' IDs.
    #[error("'{ID_PREFIX}{digits}' is the beginning of several sandboxes' IDs")]
    SeveralIds {
        /// The digits that were given.
        digits: String,
        /// The Domains.
        several: Vec<DomainRecord>,
    },
    /// The workspace has several Domains and none is the obvious one.
    #[error("{} has several sandboxes", output::word(workspace.path()))]
    SeveralHere {
        /// The workspace.
        workspace: Workspace,
        /// The Domains.
        several: Vec<DomainRecord>,
    },
}

impl FindError {
    /// Turns it into what the Client CLI reports, with what to do; a plain `?` would lose that.
    pub fn into_cli(self) -> CliError {
        let list = "list all: lazaret ls --all";
        match self {
            Self::Project(error) => error.into_cli(),
            Self::NoSuchName(_) | Self::NoSuchId(_) => CliError::from(self).hint(list),
            Self::TooShort(_) => CliError::from(self).with_kind(ErrorKind::Usage).hint(list),
            Self::NoneHere { ref workspace, ref profile } => {
                let start = format!("start one: {}", hint::up(profile.as_ref(), Some(workspace)));
                CliError::from(self).hint(start).hint("list those of other projects: lazaret ls --all")
            }
            Self::SeveralIds { ref several, .. } => {
                let several = listed(several);
                let error = several.into_iter().fold(CliError::from(self), CliError::detail);
                error.with_kind(ErrorKind::Usage).hint("give more digits")
            }
            Self::SeveralHere { ref several, .. } => {
                let several = listed(several);
                let error = several.into_iter().fold(CliError::from(self), CliError::detail);
                let hint = "name one, or its profile with -p; default_profile in config.toml would choose for you";
                error.with_kind(ErrorKind::Usage).hint(hint)
            }
            Self::List { .. } => self.into(),
        }
    }
}

fn of_profile(profile: Option<&ProfileName>) -> String {
    profile.map(|profile| format!(" of the profile {profile}")).unwrap_or_default()
}

fn listed(several: &[DomainRecord]) -> Vec<String> {
    several.iter().map(|record| format!("{} (profile {})", record.domain, record.profile)).collect()
}

/// Finds the Domain that a command means: by its ID or the beginning of one, by a workspace
/// directory, or the one of the current project.
///
/// A workspace that has several is meant with the one of the profile that is named, or else the only one that runs, or
/// else the one of `default_profile`.
pub fn find(places: &Places, meant: &DomainArgs) -> Result<DomainRecord, FindError> {
    let (named, project) = (meant.domain.as_ref(), &meant.project);
    let known = known(places).map_err(|source| FindError::List { path: places.storage.domains(), source })?;
    if let Some(name) = named.filter(|name| !Path::new(name).exists()) {
        return match name.to_str().and_then(|name| name.strip_prefix(ID_PREFIX)) {
            Some(digits) => by_id(digits, known),
            None => Err(FindError::NoSuchName(name.clone())),
        };
    }
    let args = match named {
        Some(directory) => ProjectArgs { directory: Some(directory.into()), ..project.clone() },
        None => project.clone(),
    };
    by_workspace(places, Project::locate(&args)?.workspace, args.profile, known)
}

fn by_id(digits: &str, known: Vec<DomainRecord>) -> Result<DomainRecord, FindError> {
    if digits.len() < SHORTEST_PREFIX {
        return Err(FindError::TooShort(digits.to_owned()));
    }
    let begins = |record: &DomainRecord| record.domain.as_str()[ID_PREFIX.len()..].starts_with(digits);
    only(known.into_iter().filter(begins).collect(), |several| match several.is_empty() {
        true => FindError::NoSuchId(digits.to_owned()),
        false => FindError::SeveralIds { digits: digits.to_owned(), several },
    })
}

fn by_workspace(
    places: &Places,
    workspace: Workspace,
    profile: Option<ProfileName>,
    known: Vec<DomainRecord>,
) -> Result<DomainRecord, FindError> {
    let shown = escape(workspace.path().as_os_str().as_bytes());
    let meant = |record: &DomainRecord| {
        record.workspace == shown && profile.as_ref().is_none_or(|profile| *profile == record.profile)
    };
    let mut candidates: Vec<_> = known.into_iter().filter(meant).collect();
    let published = |record: &DomainRecord| places.runtime(&record.domain).publication().exists();
    if candidates.iter().any(published) {
        candidates.retain(published);
    }
    if candidates.len() > 1 {
        let dirs = ConfigDirs { config: places.configuration.clone(), home: PathBuf::from("/") };
        // With a configuration that can't be read there is no default; who wants to start something is told.
        let default = config::default_profile(&dirs).ok().flatten();
        if let Some(record) = candidates.iter().find(|record| Some(&record.profile) == default.as_ref()) {
            return Ok(record.clone());
        }
    }
    only(candidates, |several| match several.is_empty() {
        true => FindError::NoneHere { workspace, profile },
        false => FindError::SeveralHere { workspace, several },
    })
}

/// Gives the only record there is; otherwise what having another number of them means.
fn only(
    records: Vec<DomainRecord>,
    otherwise: impl FnOnce(Vec<DomainRecord>) -> FindError,
) -> Result<DomainRecord, FindError> {
    <[DomainRecord; 1]>::try_from(records).map(|[record]| record).map_err(otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::layout::StorageRoot;

    struct Machine {
        directory: tempfile::TempDir,
        places: Places,
    }

    impl Machine {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let top = directory.path().canonicalize().unwrap();
            let places = Places {
                configuration: top.join("config"),
                storage: StorageRoot::new(top.join("data")),
                runtime_base: top.join("run"),
            };
            Self { directory, places }
        }

        fn project(&self, name: &str) -> PathBuf {
            let path = self.directory.path().canonicalize().unwrap().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        }

        fn domain(&self, profile: &str, project: &Path) -> DomainRecord {
            let workspace = Workspace::from_canonical(project.to_owned());
            let record = DomainRecord::new(&profile.parse().unwrap(), &workspace);
            let root = self.places.storage.domain(&record.domain);
            std::fs::create_dir_all(root.path()).unwrap();
            std::fs::write(root.identity(), serde_json::to_vec(&record).unwrap()).unwrap();
            record
        }

        fn publish(&self, record: &DomainRecord) {
            let runtime = self.places.runtime(&record.domain);
            std::fs::create_dir_all(runtime.path()).unwrap();
            std::fs::write(runtime.publication(), "{}").unwrap();
        }

        fn find(&self, named: Option<&str>, profile: Option<&str>, project: &Path) -> Result<DomainRecord, FindError> {
            let args = ProjectArgs {
                profile: profile.map(|name| name.parse().unwrap()),
                directory: Some(project.to_owned()),
                workspace: None,
            };
            find(&self.places, &DomainArgs { domain: named.map(Into::into), project: args })
        }
    }

    #[test]
    fn a_domain_is_found_by_id_workspace_and_profile() {
        let machine = Machine::new();
        let (one, two) = (machine.project("one"), machine.project("two"));
        let claude = machine.domain("claude", &one);
        let codex = machine.domain("codex", &one);
        let other = machine.domain("claude", &two);

        assert_eq!(machine.find(None, None, &two).unwrap(), other);
        assert_eq!(machine.find(None, Some("codex"), &one).unwrap(), codex);
        assert_eq!(machine.find(Some(claude.domain.as_str()), None, &two).unwrap(), claude);
        assert_eq!(machine.find(Some(&claude.domain.as_str()[..10]), None, &two).unwrap(), claude);
        assert_eq!(machine.find(Some(two.to_str().unwrap()), None, &one).unwrap(), other);
    }

    #[test]
    fn of_several_the_one_that_runs_is_meant_or_else_the_default_one() {
        let machine = Machine::new();
        let one = machine.project("one");
        let [claude, codex, shell] = ["claude", "codex", "shell"].map(|profile| machine.domain(profile, &one));
        let error = machine.find(None, None, &one).unwrap_err().into_cli();
        assert_eq!((error.kind, error.details.len()), (ErrorKind::Usage, 3), "{error:?}");
        std::fs::create_dir(&machine.places.configuration).unwrap();
        let configure = |text: &str| std::fs::write(machine.places.configuration.join("config.toml"), text).unwrap();
        configure("default_profile = \"gone\"\n");
        assert!(matches!(machine.find(None, None, &one), Err(FindError::SeveralHere { .. })));
        configure("default_profile = \"claude\"\n");
        assert_eq!(machine.find(None, None, &one).unwrap(), claude, "the default one");
        machine.publish(&codex);
        assert_eq!(machine.find(None, None, &one).unwrap(), codex, "the only one that runs");
        machine.publish(&shell);
        assert!(
            matches!(machine.find(None, None, &one), Err(FindError::SeveralHere { several, .. }) if several.len() == 2)
        );
        machine.publish(&claude);
        assert_eq!(machine.find(None, None, &one).unwrap(), claude, "the default one of those that run");
        assert_eq!(machine.find(None, Some("shell"), &one).unwrap(), shell, "the one that is named");
        configure("not TOML");
        let error = machine.find(None, None, &one).unwrap_err();
        assert!(
            matches!(error, FindError::SeveralHere { several, .. } if several.len() == 3),
            "no default can be read"
        );
    }

    #[test]
    fn what_is_not_there_is_told_with_a_way_on() {
        let machine = Machine::new();
        let one = machine.project("one");
        machine.domain("claude", &one);
        let told = |named: Option<&str>, profile: Option<&str>| {
            let error = machine.find(named, profile, &one).unwrap_err().into_cli();
            (error.chain().join("; "), error.hints[0].clone())
        };
        let list = || "list all: lazaret ls --all".to_owned();
        assert_eq!(
            told(Some("no such"), None),
            ("there is neither a sandbox nor a directory 'no such'".into(), list())
        );
        assert_eq!(told(Some("d-0000"), None), ("there is no sandbox 'd-0000'".into(), list()));
        assert!(told(Some("d-00"), None).0.contains("too short"));
        let shown = one.display();
        let none = told(None, Some("codex"));
        assert_eq!(none.0, format!("{shown} has no sandbox of the profile codex"));
        assert_eq!(none.1, format!("start one: lazaret up -p codex --workspace {shown}"));
    }

    #[test]
    fn directories_without_a_consistent_record_are_no_domains() {
        let machine = Machine::new();
        let record = machine.domain("claude", &machine.project("one"));
        let domains = machine.places.storage.domains();
        std::fs::create_dir(domains.join("d-00000000000000000000")).unwrap();
        std::fs::create_dir(domains.join("stray")).unwrap();
        let moved = DomainRecord { workspace: "/elsewhere".into(), ..record.clone() };
        let second = machine.domain("codex", &machine.project("one"));
        let path = machine.places.storage.domain(&second.domain).identity();
        std::fs::write(path, serde_json::to_vec(&moved).unwrap()).unwrap();
        assert_eq!(known(&machine.places).unwrap(), vec![record]);
    }
}
