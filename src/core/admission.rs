//! Whether a Client Session is admitted, and exactly which process it becomes in the sandbox.

use std::collections::BTreeMap;

use crate::domain::artifact::{GuestUser, ImageRuntime};
use crate::domain::ids::{ConfigFingerprint, DomainId, SessionId};
use crate::domain::profile::Profile;
use crate::domain::runtime::{DEFAULT_PATH, GuestProcess};
use crate::domain::session::{SessionRequest, Terminal};
use crate::domain::workspace::GUEST_WORKSPACE;

/// Largest argument vector plus environment, in bytes. Both travel in one lease packet, where a byte
/// takes up to two.
pub const PROCESS_BYTES_LIMIT: usize = 72 << 10;

/// Variables that a client contributes without being named in the profile: they describe its terminal and locale.
const CLIENT_VARIABLES: [&str; 9] = [
    "TERM",
    "COLORTERM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "LANG",
    "LANGUAGE",
    "TZ",
    "NO_COLOR",
    "CLICOLOR_FORCE",
];

/// What a Domain runs, as far as admission needs it.
#[derive(Debug, Clone)]
pub struct Grant<'a> {
    /// The Domain.
    pub domain: &'a DomainId,
    /// The validated profile.
    pub profile: &'a Profile,
    /// Its fingerprint.
    pub configuration: &'a ConfigFingerprint,
    /// The user that sessions run as.
    pub user: &'a GuestUser,
    /// How the image wants to be run.
    pub image: &'a ImageRuntime,
}

/// Why a session is not admitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Inadmissible {
    /// The client validated another configuration than the Domain runs with.
    #[error("the Domain runs with a different configuration")]
    ConfigurationDiffers,
    /// An argument or variable can't be given to a process.
    #[error("{what} contains a NUL byte")]
    NulByte {
        /// Which.
        what: &'static str,
    },
    /// The working directory is not below the workspace.
    #[error("the working directory must be a relative path below the workspace, without '..'")]
    Directory,
    /// Arguments and environment together are too large.
    #[error("arguments and environment take {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Their size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

/// Decides whether a session is admitted and gives its process.
///
/// `configuration` is absent for a client that joins whatever runs (`lazaret attach`).
pub fn admit(
    grant: &Grant<'_>,
    session: &SessionId,
    request: &SessionRequest,
    configuration: Option<&ConfigFingerprint>,
) -> Result<GuestProcess, Inadmissible> {
    if configuration.is_some_and(|ours| ours != grant.configuration) {
        return Err(Inadmissible::ConfigurationDiffers);
    }
    let process = GuestProcess {
        argv: command(grant, request),
        env: environment(grant, session, request),
        directory: directory(&request.directory)?,
        uid: grant.user.uid,
        gid: grant.user.gid,
        groups: grant.user.groups.clone(),
        interactive: matches!(request.terminal, Terminal::Interactive(_)),
    };
    if process.argv.iter().any(|argument| argument.contains(&0)) {
        return Err(Inadmissible::NulByte { what: "an argument" });
    }
    if process.env.iter().any(|(name, value)| name.contains(&0) || name.contains(&b'=') || value.contains(&0)) {
        return Err(Inadmissible::NulByte { what: "an environment variable" });
    }
    let size = process.argv.iter().map(|a| a.len() + 1).sum::<usize>()
        + process.env.iter().map(|(n, v)| n.len() + v.len() + 2).sum::<usize>();
    let limit = PROCESS_BYTES_LIMIT;
    if size > limit { Err(Inadmissible::TooLarge { size, limit }) } else { Ok(process) }
}

/// Tells whether a client contributes this variable without its being named in the profile.
pub fn describes_client(name: &[u8]) -> bool {
    CLIENT_VARIABLES.iter().any(|variable| variable.as_bytes() == name) || name.starts_with(b"LC_")
}

fn command(grant: &Grant<'_>, request: &SessionRequest) -> Vec<Vec<u8>> {
    if !request.argv.is_empty() {
        return request.argv.clone();
    }
    if !grant.profile.command.is_empty() {
        return grant.profile.command.iter().map(|word| word.clone().into_bytes()).collect();
    }
    vec![grant.user.shell.clone().into_bytes(), b"-l".to_vec()]
}

fn directory(relative: &[u8]) -> Result<Vec<u8>, Inadmissible> {
    let plain = relative.split(|b| *b == b'/').all(|part| !matches!(part, b"." | b"..") && !part.contains(&0));
    if relative.starts_with(b"/") || !plain {
        return Err(Inadmissible::Directory);
    }
    let mut path = GUEST_WORKSPACE.as_bytes().to_vec();
    if !relative.is_empty() {
        path.push(b'/');
        path.extend_from_slice(relative);
    }
    Ok(path)
}

/// Later sources win: image, account, client, profile, Lazaret.
fn environment(grant: &Grant<'_>, session: &SessionId, request: &SessionRequest) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut env: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut set = |name: &str, value: &str| {
        env.insert(name.as_bytes().to_vec(), value.as_bytes().to_vec());
    };
    set("PATH", DEFAULT_PATH);
    for variable in &grant.image.env {
        if let Some((name, value)) = variable.split_once('=') {
            set(name, value);
        }
    }
    set("HOME", &grant.user.home);
    set("SHELL", &grant.user.shell);
    if let Some(name) = &grant.user.name {
        set("USER", name);
        set("LOGNAME", name);
    }
    if matches!(request.terminal, Terminal::Interactive(_)) {
        set("TERM", "xterm-256color");
    }
    for (name, value) in &request.env {
        let granted = grant.profile.environment.pass.iter().any(|pass| pass.as_bytes() == name);
        if granted || describes_client(name) {
            env.insert(name.clone(), value.clone());
        }
    }
    let mut set = |name: &str, value: &str| {
        env.insert(name.as_bytes().to_vec(), value.as_bytes().to_vec());
    };
    for (name, value) in &grant.profile.environment.set {
        set(name, value);
    }
    set("LAZARET_DOMAIN", grant.domain.as_str());
    set("LAZARET_SESSION", session.as_str());
    env.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::profile::{Environment, fixtures};
    use crate::domain::session::WindowSize;
    use std::path::Path;

    fn profile() -> Profile {
        Profile {
            command: vec!["agent".into()],
            environment: Environment {
                set: BTreeMap::from([("EDITOR".into(), "vim".into()), ("TERM".into(), "dumb".into())]),
                pass: vec!["API_KEY".into()],
            },
            ..fixtures::profile()
        }
    }

    fn check(
        profile: &Profile,
        request: &SessionRequest,
        theirs: Option<&ConfigFingerprint>,
    ) -> Result<GuestProcess, Inadmissible> {
        let domain = DomainId::derive(&profile.name, Path::new("/w"));
        let user = GuestUser {
            uid: 1000,
            gid: 1000,
            groups: vec![27],
            name: Some("node".into()),
            home: "/home/node".into(),
            shell: "/bin/bash".into(),
        };
        let image = ImageRuntime { env: vec!["PATH=/opt/bin".into(), "NODE=1".into()], ..ImageRuntime::default() };
        let configuration = profile.fingerprint();
        let grant = Grant { domain: &domain, profile, configuration: &configuration, user: &user, image: &image };
        admit(&grant, &SessionId::mint(), request, theirs)
    }

    fn request(argv: &[&str]) -> SessionRequest {
        SessionRequest {
            argv: argv.iter().map(|a| a.as_bytes().to_vec()).collect(),
            env: vec![],
            directory: vec![],
            terminal: Terminal::Pipes,
            terminal_name: String::new(),
        }
    }

    fn value<'a>(process: &'a GuestProcess, name: &str) -> Option<&'a [u8]> {
        process.env.iter().find(|(n, _)| n == name.as_bytes()).map(|(_, v)| v.as_slice())
    }

    #[test]
    fn a_session_without_a_command_gets_the_profile_s_then_the_login_shell() {
        let mut profile = profile();
        assert_eq!(check(&profile, &request(&[]), None).unwrap().argv, vec![b"agent".to_vec()]);
        profile.command.clear();
        assert_eq!(check(&profile, &request(&[]), None).unwrap().argv, vec![b"/bin/bash".to_vec(), b"-l".to_vec()]);
        assert_eq!(check(&profile, &request(&["true"]), None).unwrap().argv, vec![b"true".to_vec()]);
    }

    #[test]
    fn only_granted_variables_of_the_client_reach_the_sandbox() {
        let mut request = request(&["env"]);
        request.terminal = Terminal::Interactive(WindowSize { rows: 24, columns: 80 });
        for (name, value) in [("API_KEY", "k"), ("SECRET", "s"), ("LC_ALL", "C.UTF-8"), ("TERM", "screen")] {
            request.env.push((name.into(), value.into()));
        }
        let process = check(&profile(), &request, None).unwrap();
        assert_eq!(value(&process, "API_KEY"), Some(&b"k"[..]));
        assert_eq!(value(&process, "SECRET"), None);
        assert_eq!(value(&process, "LC_ALL"), Some(&b"C.UTF-8"[..]));
        assert_eq!(value(&process, "TERM"), Some(&b"dumb"[..]), "the profile's value wins");
        assert_eq!(value(&process, "PATH"), Some(&b"/opt/bin"[..]));
        assert_eq!(value(&process, "HOME"), Some(&b"/home/node"[..]));
    }

    #[test]
    fn a_different_configuration_is_refused_unless_the_client_joins_what_runs() {
        let other = ConfigFingerprint::of(b"other");
        assert_eq!(check(&profile(), &request(&["x"]), Some(&other)), Err(Inadmissible::ConfigurationDiffers));
        assert!(check(&profile(), &request(&["x"]), Some(&profile().fingerprint())).is_ok());
        assert!(check(&profile(), &request(&["x"]), None).is_ok());
    }

    #[test]
    fn directories_stay_below_the_workspace() {
        let with = |directory: &str| {
            let mut request = request(&["pwd"]);
            request.directory = directory.as_bytes().to_vec();
            check(&profile(), &request, None).map(|p| String::from_utf8(p.directory).unwrap())
        };
        assert_eq!(with("").unwrap(), "/workspace");
        assert_eq!(with("src/a b").unwrap(), "/workspace/src/a b");
        for bad in ["/etc", "..", "a/../b", "./a", "a/.."] {
            assert_eq!(with(bad), Err(Inadmissible::Directory), "{bad}");
        }
    }

    #[test]
    fn what_no_process_can_take_is_refused() {
        assert_eq!(check(&profile(), &request(&["a\0b"]), None), Err(Inadmissible::NulByte { what: "an argument" }));
        let huge = "x".repeat(PROCESS_BYTES_LIMIT + 1);
        assert!(matches!(check(&profile(), &request(&[&huge]), None), Err(Inadmissible::TooLarge { .. })));
    }
}
