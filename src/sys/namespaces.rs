//! Processes in new user, pid and mount namespaces, as root of a mapped identity range.

use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::ExitStatus;

use nix::libc;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;

use super::idmap::{self, IdMapError};
use super::launch::{Entry, Gated, Image, LaunchError};
use crate::domain::artifact::{IdMapping, IdRange};

pub use super::child::Child as MappedChild;
pub use super::launch::Step;

/// A command to run as root of new namespaces.
#[derive(Debug)]
pub struct MappedCommand {
    /// The executable. `/proc/self/exe` means the caller's own.
    pub executable: PathBuf,
    /// The argument vector, `argv[0]` included.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Descriptors to pass: each with its number in the new process. Standard streams that are not
    /// named are `/dev/null`; every other descriptor is closed.
    pub fds: Vec<(OwnedFd, RawFd)>,
    /// The identity mapping.
    pub mapping: IdMapping,
}

/// A command that could not be run in new namespaces.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The process could not be brought to execution.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Its identities could not be mapped.
    #[error("cannot map identities into the new user namespace")]
    Mapping(#[from] IdMapError),
    /// Its end or its output could not be collected.
    #[error("cannot collect the result of {program}")]
    Collect {
        /// The executable.
        program: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Starts a command as user 0, group 0 and process 1 of new user, pid and mount namespaces.
///
/// When this returns the command executes. It has no supplementary groups, private mounts and a
/// fresh `/proc`; it is killed when the calling *thread* ends (prctl(2), PR_SET_PDEATHSIG), so call
/// this from a thread that outlives it. The call takes some milliseconds, most of them in
/// newuidmap(1) and newgidmap(1).
pub fn spawn_mapped(command: MappedCommand) -> Result<MappedChild, NamespaceError> {
    let MappedCommand { executable, argv, env, fds, mapping } = command;
    let image = Image::prepare(&executable, &argv, &env, fds)?;
    let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS;
    let gated = Gated::clone_process(image, flags as u64, Entry::Namespaces(idmap::groups(&mapping)))?;
    idmap::install(gated.child.pid(), &mapping)?;
    Ok(gated.open()?)
}

/// How a command ended, and what it wrote.
#[derive(Debug)]
pub struct MappedOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// The end of its standard output, at most [`OUTPUT_KEPT`] bytes.
    pub stdout: Vec<u8>,
    /// The end of its standard error, at most [`OUTPUT_KEPT`] bytes.
    pub stderr: Vec<u8>,
}

/// How much of a command's output [`run_mapped`] keeps.
pub const OUTPUT_KEPT: usize = 64 << 10;

/// Runs a command as [`spawn_mapped`] does and collects its end and its output. The command must
/// not name descriptors 1 and 2. Dropping the future kills the command.
pub async fn run_mapped(mut command: MappedCommand) -> Result<MappedOutput, NamespaceError> {
    let program = command.executable.clone();
    let collect = |source| NamespaceError::Collect { program: program.clone(), source };
    let (stdout, into_stdout) = output_pipe().map_err(collect)?;
    let (stderr, into_stderr) = output_pipe().map_err(collect)?;
    command.fds.push((into_stdout, libc::STDOUT_FILENO));
    command.fds.push((into_stderr, libc::STDERR_FILENO));
    let mut child = spawn_mapped(command)?;
    let (stdout, stderr, status) = tokio::join!(read_end(stdout), read_end(stderr), child.wait());
    let status = status.map_err(collect)?;
    Ok(MappedOutput { status, stdout: stdout.map_err(collect)?, stderr: stderr.map_err(collect)? })
}

fn output_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((pipe::Receiver::from_owned_fd(read)?, write))
}

/// Reads to the end and keeps the last [`OUTPUT_KEPT`] bytes.
async fn read_end(mut from: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    while from.read_buf(&mut kept).await? > 0 {
        if kept.len() > 2 * OUTPUT_KEPT {
            kept.drain(..kept.len() - OUTPUT_KEPT);
        }
    }
    kept.drain(..kept.len().saturating_sub(OUTPUT_KEPT));
    Ok(kept)
}

/// Gives the mapping of only the caller's own ids to root, which needs neither subordinate ids nor
/// helpers.
pub fn own_ids() -> IdMapping {
    let only = |outside| vec![IdRange { inside: 0, outside, count: 1 }];
    IdMapping { uids: only(rustix::process::geteuid().as_raw()), gids: only(rustix::process::getegid().as_raw()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::policy::mapping::identity_mapping;
    use crate::sys::accounts::{Account, SubordinateIds};
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;

    /// Variable that names the directory of a test that runs in namespaces.
    const DIRECTORY: &str = "LAZARET_TEST_DIRECTORY";

    /// Runs a test in namespaces of its own. Inside, gives a directory to it; outside, nothing, after
    /// it has passed there and its directory, with no mount in it any more, is removed.
    pub(crate) fn in_namespaces(test: &str) -> Option<PathBuf> {
        if rustix::process::getpid().is_init() {
            return Some(std::env::var_os(DIRECTORY).unwrap().into());
        }
        let directory = tempfile::tempdir().unwrap();
        let arguments = ["test", "--exact", test, "--include-ignored", "--nocapture"];
        let mut command = command(Path::new("/proc/self/exe"), &arguments, own_ids());
        command.env = vec![(DIRECTORY.into(), directory.path().into())];
        let output = block_on(run_mapped(command)).unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
        assert!(text(&output.stdout).contains("1 passed"), "{test} is the test's name?");
        crate::sys::directories::remove_tree(directory.path()).unwrap();
        None
    }

    pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn command(executable: &Path, argv: &[&str], mapping: IdMapping) -> MappedCommand {
        let argv = argv.iter().map(Into::into).collect();
        MappedCommand { executable: executable.into(), argv, env: Vec::new(), fds: Vec::new(), mapping }
    }

    fn shell(script: &str, mapping: IdMapping) -> MappedCommand {
        command(Path::new("/bin/sh"), &["sh", "-c", script], mapping)
    }

    fn output_of(command: MappedCommand) -> String {
        let output = block_on(run_mapped(command)).unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_command_is_root_and_first_in_namespaces_of_its_own() {
        let script =
            "echo $$ $(id -u):$(id -g) $(pwd) $(readlink /proc/self/ns/user /proc/self/ns/pid /proc/self/ns/mnt)";
        let said = output_of(shell(script, own_ids()));
        let own = ["user", "pid", "mnt"].map(|kind| std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap());
        assert!(said.starts_with("1 0:0 / user:["), "{said}");
        assert!(own.iter().all(|namespace| !said.contains(namespace.to_str().unwrap())), "{said}");
        let propagation = output_of(shell("grep -c shared: /proc/self/mountinfo || true", own_ids()));
        assert_eq!(propagation, "0\n");
    }

    #[test]
    fn exactly_the_named_descriptors_and_variables_arrive() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        // Crosswise on purpose: each source's number may be another one's target.
        let (a, b) = (std::os::fd::AsRawFd::as_raw_fd(&read), std::os::fd::AsRawFd::as_raw_fd(&write));
        let mut named = shell("ls /proc/self/fd; env; cat /proc/self/fd/$A", own_ids());
        named.env = vec![("A".into(), b.to_string().into()), ("PATH".into(), "/usr/bin:/bin".into())];
        rustix::io::write(&write, b"through the pipe").unwrap();
        named.fds = vec![(read, b), (std::fs::File::open("/dev/null").unwrap().into(), a)];
        drop(write);
        let said = output_of(named);
        let (listed, rest) = said.split_once("PATH=").or_else(|| said.split_once("A=")).unwrap();
        let numbers: Vec<i32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
        let expected = [0, 1, 2, a, b];
        // One more is the directory that ls reads.
        assert_eq!(numbers.iter().filter(|number| expected.contains(number)).count(), 5, "{said}");
        assert!(numbers.len() <= 6, "{said}");
        assert!(rest.ends_with("through the pipe"), "{said}");
    }

    #[test]
    fn a_failing_step_is_named() {
        let error = spawn_mapped(command(Path::new("/no/such/program"), &["x"], own_ids())).unwrap_err();
        let NamespaceError::Launch(LaunchError::Step { step: Step::Execute, source }) = error else {
            panic!("{error}")
        };
        assert_eq!(source.kind(), io::ErrorKind::NotFound);
        let missing = spawn_mapped(command(Path::new("/proc/no/such"), &["x"], own_ids())).unwrap_err();
        assert!(matches!(missing, NamespaceError::Launch(LaunchError::Executable { .. })));
        let nul = spawn_mapped(shell("a\0b", own_ids())).unwrap_err();
        assert!(matches!(nul, NamespaceError::Launch(LaunchError::Nul(_))));
    }

    #[test]
    fn a_mapping_that_is_not_granted_is_refused_with_the_helpers_words() {
        let foreign = vec![IdRange { inside: 0, outside: 3_000_000_000, count: 5 }];
        let error = spawn_mapped(shell("true", IdMapping { uids: foreign.clone(), gids: foreign })).unwrap_err();
        let NamespaceError::Mapping(IdMapError::HelperRefused { said, .. }) = error else { panic!("{error:?}") };
        assert!(said.contains("newuidmap"), "{said}");
    }

    #[test]
    fn signals_are_at_their_defaults() {
        let said = output_of(shell("grep -E '^Sig(Blk|Ign)' /proc/self/status", own_ids()));
        assert_eq!(said, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    }

    #[test]
    fn the_command_dies_with_its_parent_thread() {
        let spawn = || {
            let child = spawn_mapped(shell("sleep 100; true", own_ids())).unwrap();
            let pidfd = child.pidfd().try_clone_to_owned().unwrap();
            std::mem::forget(child);
            pidfd
        };
        let pidfd = std::thread::spawn(spawn).join().unwrap();
        let ended = crate::sys::child::ended(pidfd.as_fd());
        block_on(async { tokio::time::timeout(std::time::Duration::from_secs(5), ended).await }).unwrap().unwrap();
    }

    #[test]
    fn the_end_of_long_output_is_kept() {
        let output = block_on(run_mapped(shell("seq 1 100000; seq 1 50000 >&2; kill -9 $$; exit 3", own_ids())));
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(3), "the first process of a namespace cannot kill itself");
        assert!(output.stdout.len() <= OUTPUT_KEPT && output.stdout.ends_with(b"\n100000\n"));
        assert!(output.stderr.ends_with(b"\n50000\n"));
    }

    #[test]
    fn a_killed_command_is_told_from_an_exit() {
        let mut child = spawn_mapped(shell("sleep 100; true", own_ids())).unwrap();
        child.kill();
        assert_eq!(child.wait_blocking().unwrap().signal(), Some(9));
    }

    #[test]
    #[ignore = "needs subordinate ids: run as a user who has them"]
    fn every_guest_id_is_mapped_and_the_user_is_the_developer() {
        let account = Account::current().unwrap();
        let subordinate = SubordinateIds::of(&account).unwrap();
        for uid in [0, 1000, 65_534] {
            let user = crate::domain::artifact::GuestUser {
                uid,
                gid: uid,
                groups: vec![],
                name: None,
                home: "/".into(),
                shell: "/bin/sh".into(),
            };
            let developer = (account.uid, account.gid);
            let mapping = identity_mapping(&user, developer, &subordinate.uids, &subordinate.gids).unwrap();
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().display();
            let script = format!(
                "cd {path} && id -G && touch root user other && chown {uid}:{uid} user && chown 5:5 other && \
                 awk '{{n += $3}} END {{print (n > 65536)}}' /proc/self/uid_map"
            );
            assert_eq!(output_of(shell(&script, mapping.clone())), "0\n1\n");
            use std::os::unix::fs::MetadataExt;
            let owner = |name: &str| directory.path().join(name).metadata().unwrap().uid();
            assert_eq!(owner("user"), account.uid);
            assert_eq!(Some(owner("root")), mapping.host_uid(0));
            assert_eq!(Some(owner("other")), mapping.host_uid(5));
            output_of(shell(&format!("rm {path}/root {path}/other"), mapping));
        }
    }

    #[test]
    #[ignore = "needs subordinate ids: run as a user who has them"]
    fn inner_process_ids_are_found_from_outside() {
        let account = Account::current().unwrap();
        let subordinate = SubordinateIds::of(&account).unwrap();
        let developer = (account.uid, account.gid);
        let user = crate::domain::artifact::GuestUser {
            uid: 0,
            gid: 0,
            groups: vec![],
            name: None,
            home: "/".into(),
            shell: "/bin/sh".into(),
        };
        let mapping = identity_mapping(&user, developer, &subordinate.uids, &subordinate.gids).unwrap();
        let (ready, written) = rustix::pipe::pipe().unwrap();
        let mut command = shell("sleep 100 & echo $! >&5; wait", mapping);
        command.fds = vec![(written, 5)];
        let child = spawn_mapped(command).unwrap();
        let mut line = [0u8; 16];
        let length = rustix::io::read(&ready, &mut line).unwrap();
        let inner: i32 = std::str::from_utf8(&line[..length]).unwrap().trim().parse().unwrap();
        let outer = crate::sys::procfs::outer_pid(child.pid(), inner).unwrap();
        assert_eq!(crate::sys::procfs::children(child.pid()), [outer]);
        assert_eq!(crate::sys::procfs::outer_pid(child.pid(), 1), Some(child.pid()));
        assert_eq!(crate::sys::procfs::outer_pid(child.pid(), inner + 1000), None);
    }
}
