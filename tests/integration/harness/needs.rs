//! What a case needs of the machine, and whether it is there.

use std::fs::OpenOptions;
use std::path::Path;

use super::world::world;

/// One thing that a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Everything that a Domain's start needs: namespaces, id maps, devices, runsc, slirp4netns, umoci
    /// and the shared test image.
    Sandbox,
    /// The shared test image.
    TestImage,
    /// The test network: hosts, resolver and a private `/etc/resolv.conf`.
    TestNetwork,
    /// The root stage's service ([`super::root`]).
    Root,
    /// Subordinate ids and newuidmap.
    IdMaps,
    /// Executables that can be made to fail: the cargo feature `fault-injection`.
    Faults,
    /// The model checker, to replay what the processes did, and executables that tell it: the cargo feature
    /// `protocol-trace`.
    Replay,
    /// A program in `PATH`.
    Program(&'static str),
    /// No other case runs at the same time, since this one changes what all share or measures time.
    Alone,
}

/// Tells whether an unmet need fails a case instead of having it ignored.
pub fn all_required() -> bool {
    std::env::var_os("LAZARET_REQUIRE").is_some_and(|value| value == "all")
}

/// Gives the first unmet need's reason.
pub fn unmet(needs: &[Need]) -> Option<String> {
    needs.iter().find_map(|need| need.unmet())
}

impl Need {
    fn unmet(self) -> Option<String> {
        match self {
            Self::Alone => None,
            Self::TestImage => world().image.as_ref().err().map(|reason| format!("no test image: {reason}")),
            Self::TestNetwork => world().no_network.as_ref().map(|reason| format!("no test network: {reason}")),
            Self::Root => world().root.is_none().then(|| "the run was not started by root or with sudo".to_owned()),
            Self::Faults => {
                let built = cfg!(feature = "fault-injection");
                (!built).then(|| "built without the cargo feature fault-injection".to_owned())
            }
            Self::Replay if !cfg!(feature = "protocol-trace") => {
                Some("built without the cargo feature protocol-trace".to_owned())
            }
            Self::Replay => world().model.as_ref().err().map(|reason| format!("no model checker: {reason}")),
            Self::Program(name) => find_program(name).is_none().then(|| format!("{name} is not installed")),
            Self::IdMaps => Self::Program("newuidmap").unmet().or_else(no_subordinate_ids),
            Self::Sandbox => unmet(&[
                Self::IdMaps,
                Self::Program("runsc"),
                Self::Program("slirp4netns"),
                Self::Program("umoci"),
                Self::TestImage,
            ])
            .or_else(|| ["/dev/fuse", "/dev/net/tun"].into_iter().find_map(not_openable)),
        }
    }
}

/// Finds a program in `PATH` and in the system directories that an unprivileged user's `PATH` may lack.
pub fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let directories = path.split(':').chain(["/usr/sbin", "/sbin"]);
    directories.map(|directory| Path::new(directory).join(name)).find(|candidate| candidate.is_file())
}

fn not_openable(device: &str) -> Option<String> {
    OpenOptions::new().read(true).write(true).open(device).err().map(|error| format!("{device}: {error}"))
}

fn no_subordinate_ids() -> Option<String> {
    let name = super::user::current_name();
    let of = |file: &str| super::user::subordinate_ids(file, &name);
    (of("/etc/subuid") < 65536 || of("/etc/subgid") < 65536)
        .then(|| format!("user {name} has fewer than 65536 subordinate ids"))
}
