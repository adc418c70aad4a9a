//! What cases ask of root: a service in the root stage, on a socket that only the test user reaches.
//!
//! Root never runs what is under test; it removes files of subordinate ids, tells which hosts were
//! contacted, and starts programs *as an unprivileged user* on a machine that lacks something.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use fs_err as fs;
use nix::unistd::chown;
use serde::{Deserialize, Serialize};

use super::command::Invocation;
use super::user::Account;
use super::world::world;
use super::{executable, network};

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Remove a tree below the run's directory.
    Remove(PathBuf),
    /// Put a file system of so many bytes at a directory below the run's.
    Limit(PathBuf, u64),
    /// How often each host of the test network was contacted.
    Contacts,
    /// Run a program on a machine that lacks something.
    Run(Box<Deprived>),
}

/// Something that a machine lacks, in a mount namespace of one program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Lack {
    /// The path does not exist.
    Missing(PathBuf),
    /// The file has this content and mode instead of its own.
    Replaced(PathBuf, String, u32),
}

/// Who runs a program.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Who {
    /// The test user, with subordinate ids.
    TestUser,
    /// `nobody`, who has no subordinate ids.
    Nobody,
}

/// A program on a machine that lacks something.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Deprived {
    /// Who runs it.
    pub who: Who,
    /// What is lacking.
    pub lacks: Vec<Lack>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// Its working directory.
    pub directory: PathBuf,
}

/// How a [`Deprived`] program ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeprivedOutput {
    /// Exit code, 128+n for death by signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    Removed,
    Limited,
    Contacts(BTreeMap<String, u64>),
    Ran(DeprivedOutput),
    Failed(String),
}

/// Removes a tree below the run's directory, also with files of subordinate ids.
pub fn remove(path: &Path) -> Result<()> {
    match ask(&Request::Remove(path.to_owned()))? {
        Reply::Removed => Ok(()),
        other => Err(anyhow!("unexpected reply: {other:?}")),
    }
}

/// Puts a file system of so many bytes, which is the test user's, at a directory; it goes when the directory is removed.
pub fn limit(path: &Path, bytes: u64) -> Result<()> {
    match ask(&Request::Limit(path.to_owned(), bytes))? {
        Reply::Limited => Ok(()),
        other => Err(anyhow!("unexpected reply: {other:?}")),
    }
}

/// Gives how often each host was contacted so far, by `tcp ADDRESS` and `udp ADDRESS`, and the number of
/// packets to each address, by `packet ADDRESS`.
pub fn contacts() -> Result<BTreeMap<String, u64>> {
    match ask(&Request::Contacts)? {
        Reply::Contacts(contacts) => Ok(contacts),
        other => Err(anyhow!("unexpected reply: {other:?}")),
    }
}

/// Runs a program on a machine that lacks something.
pub fn run(deprived: Deprived) -> Result<DeprivedOutput> {
    match ask(&Request::Run(Box::new(deprived)))? {
        Reply::Ran(output) => Ok(output),
        other => Err(anyhow!("unexpected reply: {other:?}")),
    }
}

fn ask(request: &Request) -> Result<Reply> {
    let socket = world().root.as_ref().context("the run has no root stage; the case should say Need::Root")?;
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(format!("{}\n", serde_json::to_string(request)?).as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match serde_json::from_str(&line)? {
        Reply::Failed(reason) => Err(anyhow!(reason)),
        reply => Ok(reply),
    }
}

/// Starts the service as a thread of the root stage and gives its socket.
pub fn serve(base: &Path, user: Account) -> Result<PathBuf> {
    let socket = base.join("root.sock");
    let listener = UnixListener::bind(&socket)?;
    chown(&socket, Some(user.uid), Some(user.gid))?;
    fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let base = base.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let base = base.clone();
            // A client that does not wait for its reply loses it.
            std::thread::spawn(move || drop(converse(stream, &base, user)));
        }
    });
    Ok(socket)
}

fn converse(mut stream: UnixStream, base: &Path, user: Account) -> Result<()> {
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line)? {
        Request::Remove(path) => remove_below(base, &path).map(|()| Reply::Removed),
        Request::Limit(path, bytes) => limit_below(base, user, &path, bytes).map(|()| Reply::Limited),
        Request::Contacts => Ok(Reply::Contacts(network::contacts())),
        Request::Run(deprived) => run_deprived(base, user, &deprived).map(Reply::Ran),
    };
    let reply = reply.unwrap_or_else(|error| Reply::Failed(format!("{error:?}")));
    Ok(stream.write_all(format!("{}\n", serde_json::to_string(&reply)?).as_bytes())?)
}

fn ensure_below(base: &Path, path: &Path) -> Result<()> {
    let inside = path.strip_prefix(base).is_ok_and(|rest| {
        rest.components().next().is_some()
            && rest.components().all(|part| matches!(part, std::path::Component::Normal(_)))
    });
    ensure!(inside, "{} is not below {}", path.display(), base.display());
    Ok(())
}

fn remove_below(base: &Path, path: &Path) -> Result<()> {
    ensure_below(base, path)?;
    for line in fs::read_to_string("/proc/self/mounts")?.lines() {
        let target = line.split(' ').nth(1).map(Path::new).context("a mount has a target")?;
        if target.starts_with(path) {
            nix::mount::umount2(target, nix::mount::MntFlags::MNT_DETACH)?;
        }
    }
    Ok(fs::remove_dir_all(path)?)
}

fn limit_below(base: &Path, user: Account, path: &Path, bytes: u64) -> Result<()> {
    ensure_below(base, path)?;
    let options = format!("size={bytes},mode=0700,uid={},gid={}", user.uid, user.gid);
    let flags = nix::mount::MsFlags::MS_NOSUID | nix::mount::MsFlags::MS_NODEV;
    Ok(nix::mount::mount(Some("limited"), path, Some("tmpfs"), flags, Some(options.as_str()))?)
}

/// In a mount namespace: a path disappears by an overlay of its directory with a whiteout; a file is
/// replaced by a bind mount.
fn run_deprived(base: &Path, user: Account, deprived: &Deprived) -> Result<DeprivedOutput> {
    let scratch = tempfile::Builder::new().prefix("lack-").tempdir_in(base)?;
    fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let mut script = String::from("set -e\n");
    for (number, lack) in deprived.lacks.iter().enumerate() {
        let own = scratch.path().join(number.to_string());
        match lack {
            Lack::Missing(path) => {
                let parent = path.parent().context("a missing path has a parent")?.display();
                let own = own.display();
                script += &format!("mkdir -p {own}/u {own}/w\n");
                script +=
                    &format!("mount -t overlay -o lowerdir={parent},upperdir={own}/u,workdir={own}/w none {parent}\n");
                script += &format!("rm -rf {}\n", path.display());
            }
            Lack::Replaced(path, content, mode) => {
                executable::write(&own, content.as_str(), *mode)?;
                script += &format!("mount --bind {} {}\n", own.display(), path.display());
            }
        }
    }
    let (uid, gid) = match deprived.who {
        Who::TestUser => (user.uid.as_raw(), user.gid.as_raw()),
        Who::Nobody => (65534, 65534),
    };
    script += &format!("cd {}\n", deprived.directory.display());
    script += &format!("exec setpriv --reuid={uid} --regid={gid} --clear-groups --pdeathsig=KILL -- env -i \"$@\"\n");
    let variables = deprived.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let output = Invocation::new("unshare")
        .args(["--mount", "--propagation", "private", "--", "sh", "-c", &script, "sh"])
        .args(variables)
        .args(&deprived.command)
        .deadline(Duration::from_secs(120))
        .run()?;
    Ok(DeprivedOutput { code: output.code(), stdout: output.stdout(), stderr: output.stderr() })
}
