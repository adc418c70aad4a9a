//! Which Domains this user has, and which one a command means.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::args::{DomainArgs, ProjectArgs};
use super::connect;
use super::error::{CliError, ErrorKind};
use super::places::Places;
use super::project::Project;
use crate::domain::escaped::escape;
use crate::domain::workspace::DomainRecord;

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

/// Finds the Domain that a command means: by its ID or the beginning of one, by a workspace
/// directory, or the one of the current project.
pub fn find(places: &Places, meant: &DomainArgs) -> Result<DomainRecord, CliError> {
    let (named, project) = (meant.domain.as_ref(), &meant.project);
    let known = known(places)?;
    if let Some(digits) = named.and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("d-"))
        && !Path::new(&format!("d-{digits}")).exists()
    {
        let matching = known.into_iter().filter(|record| record.domain.as_str()[2..].starts_with(digits)).collect();
        return by_id(digits, matching);
    }
    let args = match named {
        Some(directory) => ProjectArgs { directory: Some(directory.into()), ..project.clone() },
        None => project.clone(),
    };
    let workspace = Project::locate(&args)?.workspace;
    let shown = escape(workspace.path().as_os_str().as_bytes());
    let of_workspace = known.into_iter().filter(|record| record.workspace == shown);
    let matching: Vec<_> =
        of_workspace.filter(|record| args.profile.as_ref().is_none_or(|profile| *profile == record.profile)).collect();
    by_workspace(places, &workspace.path().display().to_string(), matching)
}

fn by_id(digits: &str, matching: Vec<DomainRecord>) -> Result<DomainRecord, CliError> {
    if digits.len() < SHORTEST_PREFIX {
        let text = format!("'d-{digits}' is too short to name a sandbox: give at least {SHORTEST_PREFIX} digits");
        return Err(CliError::message(text).with_kind(ErrorKind::Usage));
    }
    match <[DomainRecord; 1]>::try_from(matching) {
        Ok([record]) => Ok(record),
        Err(none) if none.is_empty() => {
            Err(CliError::message(format!("there is no sandbox 'd-{digits}'")).hint("list all: lazaret ls --all"))
        }
        Err(several) => Err(ambiguous(format!("'d-{digits}' is the beginning of several sandboxes"), &several)),
    }
}

fn by_workspace(places: &Places, workspace: &str, matching: Vec<DomainRecord>) -> Result<DomainRecord, CliError> {
    let published = |record: &&DomainRecord| places.runtime(&record.domain).publication().exists();
    let running: Vec<_> = matching.iter().filter(published).cloned().collect();
    let candidates = if running.is_empty() { matching } else { running };
    match <[DomainRecord; 1]>::try_from(candidates) {
        Ok([record]) => Ok(record),
        Err(none) if none.is_empty() => Err(CliError::message(format!("{workspace} has no sandbox"))
            .hint("start one: lazaret up")
            .hint("list those of other projects: lazaret ls --all")),
        Err(several) => Err(ambiguous(format!("{workspace} has several sandboxes"), &several)),
    }
}

fn ambiguous(text: String, several: &[DomainRecord]) -> CliError {
    let named = several.iter().map(|record| format!("{} (profile {})", record.domain, record.profile));
    let named = named.collect::<Vec<_>>().join(", ");
    CliError::message(text).with_kind(ErrorKind::Usage).hint(format!("name one, or its profile with -p: {named}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::layout::StorageRoot;
    use crate::domain::workspace::Workspace;
    use std::path::PathBuf;

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

        fn find(&self, named: Option<&str>, profile: Option<&str>, project: &Path) -> Result<DomainRecord, CliError> {
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
        assert_eq!(machine.find(None, None, &one).unwrap_err().kind, ErrorKind::Usage, "two profiles");
        machine.publish(&codex);
        assert_eq!(machine.find(None, None, &one).unwrap(), codex, "the one that runs");
        assert!(machine.find(None, None, &machine.project("three")).is_err());
        assert!(machine.find(Some("d-00"), None, &one).is_err());
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
