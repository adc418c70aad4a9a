//! Finds installed programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// Where administrative programs lie that an unprivileged user's `PATH` may leave out.
const ADMINISTRATIVE: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Gives the absolute path of a program on `PATH` or in the administrative directories.
pub fn find(name: &str) -> Option<PathBuf> {
    find_in(name, std::env::var_os("PATH").as_deref())
}

/// Gives the absolute path of a program in a search path of this form or in the administrative
/// directories. Relative entries are passed over: what they name depends on where one stands.
pub fn find_in(name: &str, path: Option<&OsStr>) -> Option<PathBuf> {
    let listed = path.map(std::env::split_paths).into_iter().flatten();
    let directories = listed.chain(ADMINISTRATIVE.map(PathBuf::from)).filter(|directory| directory.is_absolute());
    directories.map(|directory| directory.join(name)).find(|candidate| is_executable(candidate))
}

/// Gives the places where the sandbox-side executable is looked for: what `LAZARET_GUEST` names,
/// beside this executable, and in the `libexec` of the prefix that this executable is installed in.
pub fn guest_candidates() -> Vec<PathBuf> {
    let named = std::env::var_os("LAZARET_GUEST").filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(named) = named {
        return vec![named];
    }
    let own = std::env::current_exe().ok();
    let Some(directory) = own.as_deref().and_then(Path::parent) else { return Vec::new() };
    let mut candidates = vec![directory.join("lazaret-guest")];
    if let Some(prefix) = directory.parent() {
        candidates.extend(["libexec/lazaret/lazaret-guest", "libexec/lazaret-guest"].map(|path| prefix.join(path)));
    }
    candidates
}

/// Gives the sandbox-side executable, when it is there.
pub fn guest() -> Option<PathBuf> {
    guest_candidates().into_iter().find(|candidate| is_executable(candidate))
}

/// Tells whether a path is a regular file that this user may execute.
pub fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_executable_regular_file_wins() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, mode| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        std::fs::create_dir_all(directory.path().join("a/tool")).unwrap();
        make("b/tool", 0o644);
        let wanted = make("c/tool", 0o755);
        let path = std::env::join_paths(
            ["relative".into()].into_iter().chain(["a", "b", "c"].map(|d| directory.path().join(d))),
        )
        .unwrap();
        assert_eq!(find_in("tool", Some(&path)), Some(wanted));
        assert_eq!(find_in("no-such-tool-anywhere", Some(&path)), None);
        assert_eq!(find_in("no-such-tool-anywhere", None), None);
    }
}
