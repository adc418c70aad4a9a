//! What one case has for itself: home, XDG directories, project, profile; and the check at its end
//! that nothing is left.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fs_err as fs;
use lazaret::domain::ids::{DomainId, ProfileName};
use lazaret::domain::layout::{DomainRoot, RuntimeRoot, StorageRoot};

use super::command::Invocation;
use super::replay::Trace;
use super::terminal::Terminal;
use super::wait::wait_until;
use super::world::world;
use super::{image, leftovers, project, root};

thread_local! {
    /// The case that this thread runs; marks every process that the case starts.
    static CASE: RefCell<String> = const { RefCell::new(String::new()) };
}

static NUMBER: AtomicU32 = AtomicU32::new(1);

/// How long after the end of a case its processes may take to be gone.
const SETTLE: Duration = Duration::from_secs(5);

/// Notes which case this thread runs from now on.
pub fn enter_case(name: &str) {
    CASE.with_borrow_mut(|case| name.clone_into(case));
}

/// Gives the case that this thread runs, for threads that it starts.
pub fn current_case() -> String {
    CASE.with_borrow(String::clone)
}

/// How long after the last command of a traced run anything may be left.
const TRACED: Duration = Duration::from_secs(20);

/// Where a case keeps images and Domain state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// In the run's shared Storage Root, where the test image is prepared already. Domains stay
    /// apart, since each case has a workspace of its own.
    Shared,
    /// In an empty Storage Root of its own.
    Private,
    /// In one like that, on a file system of so many bytes; needs `Need::Root`.
    Limited(u64),
}

/// One case's surroundings; checks on drop that nothing is left, and removes all.
#[derive(Debug)]
pub struct Environment {
    directory: PathBuf,
    data: PathBuf,
    profiles: RefCell<BTreeSet<String>>,
    workspaces: RefCell<BTreeSet<PathBuf>>,
    trace: RefCell<Option<PathBuf>>,
}

impl Environment {
    /// Makes surroundings with the shared Storage Root, a sample project and a profile `test`.
    pub fn new() -> Result<Self> {
        Self::with(Data::Shared)
    }

    /// Makes surroundings with the Storage Root of choice, a sample project and a profile `test`.
    pub fn with(data: Data) -> Result<Self> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = world().base.join("c").join(number.to_string());
        let directory_of_data = if data == Data::Shared { world().base.join("data") } else { directory.join("data") };
        let environment = Self {
            directory,
            data: directory_of_data,
            profiles: RefCell::default(),
            workspaces: RefCell::default(),
            trace: RefCell::default(),
        };
        for path in [environment.home(), environment.config(), environment.runtime(), environment.data.clone()] {
            fs::create_dir_all(&path)?;
        }
        if let Data::Limited(bytes) = data {
            root::limit(&environment.data, bytes)?;
        }
        fs::set_permissions(environment.runtime(), std::fs::Permissions::from_mode(0o700))?;
        project::make(&environment.project())?;
        environment.workspaces.borrow_mut().insert(environment.project());
        fs::create_dir_all(environment.config().join("lazaret/profiles"))?;
        fs::write(environment.config().join("lazaret/config.toml"), "default_profile = \"test\"\n")?;
        environment.profile("test", "")?;
        Ok(environment)
    }

    /// Makes surroundings like [`Environment::new`], with the test image prepared.
    pub fn with_prepared_image() -> Result<Self> {
        let environment = Self::new()?;
        let reference = environment.image_reference();
        image::prepare_once(|| {
            let prepare = environment.lazaret(["image", "prepare", &reference]).deadline(Duration::from_secs(180));
            prepare.run()?.ok()?;
            Ok(())
        })?;
        Ok(environment)
    }

    /// Makes surroundings with a Domain that is up and stays so between sessions.
    pub fn lingering() -> Result<Self> {
        Self::lingering_with("")
    }

    /// Makes surroundings like [`Environment::lingering`], with more lines in the profile.
    pub fn lingering_with(more: &str) -> Result<Self> {
        let environment = Self::with_prepared_image()?;
        environment.profile("test", &format!("linger = \"10m\"\n{more}"))?;
        environment.in_sandbox("true").run()?.ok()?;
        Ok(environment)
    }

    /// Makes an invocation of a host shell's script in the sample project, in which `lazaret` is found in `PATH`.
    pub fn host_script(&self, script: &str) -> Invocation {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", world().binaries.display());
        self.invocation("bash").env("PATH", path).args(["-c", script])
    }

    /// Gives the test image as a profile names it; a name that leads nowhere when there is none.
    pub fn image_reference(&self) -> String {
        let layout = world().image.clone().unwrap_or_else(|_| PathBuf::from("/nonexistent"));
        format!("oci:{}:{}", layout.display(), image::TAG)
    }

    /// Writes a profile for the test image and the user `dev`, with more lines after these.
    ///
    /// Ignored paths are shared unless the lines have a `[workspace]` table, which then must say so itself.
    pub fn profile(&self, name: &str, more: &str) -> Result<()> {
        self.profile_of("dev", name, more)
    }

    /// Writes a profile like [`Environment::profile`], for another user.
    pub fn profile_of(&self, user: &str, name: &str, more: &str) -> Result<()> {
        let (image, workspace) = (self.image_reference(), "\n[workspace]\nisolate_ignored = false\n");
        let workspace = if more.contains("[workspace]") { "" } else { workspace };
        self.write_profile(name, &format!("image = \"{image}\"\nuser = \"{user}\"\n{more}\n{workspace}"))
    }

    /// Writes a profile's whole text.
    pub fn write_profile(&self, name: &str, text: &str) -> Result<()> {
        self.profiles.borrow_mut().insert(name.to_owned());
        Ok(fs::write(self.config().join(format!("lazaret/profiles/{name}.toml")), text)?)
    }

    /// Gives the case's directory; short, and unique in the run.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Gives the home directory.
    pub fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    /// Gives `XDG_CONFIG_HOME`.
    pub fn config(&self) -> PathBuf {
        self.directory.join("config")
    }

    /// Gives `XDG_RUNTIME_DIR`.
    pub fn runtime(&self) -> PathBuf {
        self.directory.join("r")
    }

    /// Gives the Storage Root.
    pub fn storage(&self) -> StorageRoot {
        StorageRoot::new(self.data.join("lazaret"))
    }

    /// Gives `XDG_DATA_HOME`.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Gives the sample project, the workspace of [`Environment::lazaret`].
    pub fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    /// Makes another sample project below the home directory.
    pub fn another_project(&self, name: &str) -> Result<PathBuf> {
        let directory = self.home().join(name);
        project::make(&directory)?;
        self.workspaces.borrow_mut().insert(directory.clone());
        Ok(directory)
    }

    /// Gives the Domain ID of the profile in the workspace.
    pub fn domain_of(&self, profile: &str, workspace: &Path) -> Result<DomainId> {
        let profile: ProfileName = profile.parse()?;
        Ok(DomainId::derive(&profile, &fs::canonicalize(workspace)?))
    }

    /// Gives the Domain ID of the profile `test` in the sample project.
    pub fn domain(&self) -> Result<DomainId> {
        self.domain_of("test", &self.project())
    }

    /// Gives the Domain Root of the profile `test` in the sample project.
    pub fn domain_root(&self) -> Result<DomainRoot> {
        Ok(self.storage().domain(&self.domain()?))
    }

    /// Gives the runtime directory of the profile `test` in the sample project.
    pub fn runtime_root(&self) -> Result<RuntimeRoot> {
        Ok(RuntimeRoot::new(&self.runtime().join("lazaret"), &self.domain()?))
    }

    /// Gives the variables that every program of this case is started with, and no others.
    pub fn variables(&self) -> Vec<(String, String)> {
        let path = |path: PathBuf| path.display().to_string();
        let case = current_case();
        let mut variables = vec![
            ("HOME".to_owned(), path(self.home())),
            ("XDG_CONFIG_HOME".to_owned(), path(self.config())),
            ("XDG_DATA_HOME".to_owned(), path(self.data.clone())),
            ("XDG_RUNTIME_DIR".to_owned(), path(self.runtime())),
            ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("TERM".to_owned(), "xterm-256color".to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("LAZARET_TEST_CASE".to_owned(), case),
        ];
        variables.extend(std::env::var("LAZARET_LOG").map(|value| ("LAZARET_LOG".to_owned(), value)));
        variables.extend(self.trace.borrow().clone().map(|file| ("LAZARET_TRACE".to_owned(), path(file))));
        variables
    }

    /// Makes an invocation of any program with this case's environment, in the sample project.
    pub fn invocation(&self, program: impl Into<PathBuf>) -> Invocation {
        let invocation = Invocation::new(program).clear_env().directory(self.project());
        self.variables().into_iter().fold(invocation, |invocation, (name, value)| invocation.env(name, value))
    }

    /// Makes an invocation of `lazaret` in the sample project.
    pub fn lazaret<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Invocation {
        self.invocation(world().lazaret()).args(arguments)
    }

    /// Makes an invocation of `lazaret run -- sh -c SCRIPT`.
    pub fn in_sandbox(&self, script: &str) -> Invocation {
        self.lazaret(["run", "--", "sh", "-c", script])
    }

    /// Starts `lazaret` in a terminal of 24 rows and 80 columns.
    pub fn terminal<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<Terminal> {
        Terminal::start(&self.lazaret(arguments), 24, 80)
    }

    /// Has every process that is started from now on write what it does, until [`Environment::traced`].
    pub fn trace(&self) {
        *self.trace.borrow_mut() = Some(self.directory.join("trace"));
    }

    /// Gives what was done since [`Environment::trace`], when no process is left that may do more.
    pub fn traced(&self, name: &str) -> Result<Trace> {
        self.expect_nothing_left(TRACED)?;
        let file = self.trace.take().context("nothing is traced")?;
        let trace = Trace::read(name, &file)?;
        fs::remove_file(file)?;
        Ok(trace)
    }

    /// Gives what this case's processes are recognised by.
    fn marks(&self) -> Vec<Vec<u8>> {
        // A slash at the end keeps case 1 apart from case 12.
        let mut marks = vec![format!("{}/", self.directory.display()).into_bytes()];
        for profile in &*self.profiles.borrow() {
            let domains = self.workspaces.borrow();
            let domains = domains.iter().filter_map(|workspace| self.domain_of(profile, workspace).ok());
            marks.extend(domains.map(|domain| domain.as_str().as_bytes().to_vec()));
        }
        marks
    }

    /// Gives this case's living processes.
    pub fn processes(&self) -> Vec<leftovers::Process> {
        let marks = self.marks();
        leftovers::processes(&marks.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// Gives all that a Domain which is down must not leave: processes, mounts, files in the runtime
    /// directory, scratch directories.
    pub fn leftovers(&self) -> Vec<String> {
        let mut found: Vec<_> = self.processes().iter().map(ToString::to_string).collect();
        // The case's own file system, where it has one, is the harness's.
        let mounts = leftovers::mounts(&self.directory).into_iter().filter(|point| self.data != Path::new(point));
        found.extend(mounts.map(|point| format!("mount {point}")));
        found.extend(leftovers::files(&self.runtime().join("lazaret")).into_iter().map(|file| format!("file {file}")));
        for profile in &*self.profiles.borrow() {
            for domain in
                self.workspaces.borrow().iter().filter_map(|workspace| self.domain_of(profile, workspace).ok())
            {
                let entries = fs::read_dir(self.storage().domain(&domain).path()).into_iter().flatten().flatten();
                let scratch = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("scratch-"));
                found.extend(scratch.map(|entry| format!("scratch directory {}", entry.path().display())));
            }
        }
        found
    }

    /// Waits until nothing is left, and fails with what is.
    pub fn expect_nothing_left(&self, deadline: Duration) -> Result<()> {
        if wait_until("nothing is left", deadline, || self.leftovers().is_empty()).is_err() {
            let left = self.leftovers();
            ensure!(left.is_empty(), "left over after {deadline:?}:\n  {}", left.join("\n  "));
        }
        Ok(())
    }

    /// Takes every Domain of this case down, as far as there are any.
    fn take_down(&self) {
        for profile in &*self.profiles.borrow() {
            for workspace in &*self.workspaces.borrow() {
                let Ok(domain) = self.domain_of(profile, workspace) else { continue };
                if self.storage().domain(&domain).path().exists() {
                    let down = self.lazaret(["down", "--yes", "--profile", profile.as_str()]).directory(workspace);
                    // A Domain that is down already makes this fail, which is fine.
                    drop(down.deadline(Duration::from_secs(20)).run());
                }
            }
        }
    }

    fn remove(&self) -> Result<()> {
        if std::env::var_os("LAZARET_TEST_KEEP").is_some() {
            return Ok(());
        }
        if world().root.is_some() {
            return root::remove(&self.directory);
        }
        // Files of subordinate ids can be removed from within a namespace that maps them.
        let remove = Invocation::new("unshare").args(["--map-root-user", "--map-auto", "--", "rm", "-rf"]);
        remove.arg(&self.directory).run()?.ok().context("cannot remove the case's directory")?;
        Ok(())
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.take_down();
        let left = self.expect_nothing_left(SETTLE);
        self.processes().iter().for_each(leftovers::Process::kill);
        let removed = self.remove();
        if let Some(error) = left.err().or(removed.err()) {
            eprintln!("{}: {error:?}", current_case());
            assert!(std::thread::panicking(), "the case does not leave the machine as it was: {error:?}");
        }
    }
}
