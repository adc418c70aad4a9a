//! Finding and executing a program, with the messages and statuses of a shell.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::unistd::execve;

use crate::domain::runtime::DEFAULT_PATH;

/// The interpreter of an executable file that is neither binary nor names one (execvp(3)).
const SHELL: &[u8] = b"/bin/sh";

/// How much of a file tells what it is.
const HEAD: u64 = 256;

/// Why a program could not be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExecFailure {
    /// The program as the user named it.
    name: Vec<u8>,
    /// What is wrong with it.
    reason: Reason,
}

/// What is wrong with a program.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    /// It is in no directory of PATH.
    NotFound,
    /// The path that was given does not exist.
    NoSuchFile,
    /// It is a directory.
    Directory,
    /// A directory on the way to it may not be searched, so nobody can say whether it exists.
    Unreachable,
    /// The interpreter that its first line names does not exist.
    Interpreter(Vec<u8>),
    /// Its dynamic linker does not exist.
    Linker,
    /// It is a binary of a kind that can't be executed.
    Format,
    /// Anything else.
    Refused(Errno),
}

impl ExecFailure {
    /// Gives the exit status: 127 when something does not exist, 126 when it can't be executed.
    pub(super) fn status(&self) -> u8 {
        match self.reason {
            Reason::NotFound | Reason::NoSuchFile | Reason::Interpreter(_) | Reason::Linker => 127,
            Reason::Directory | Reason::Unreachable | Reason::Format | Reason::Refused(_) => 126,
        }
    }

    /// Gives what the developer can do, where it is not plain.
    pub(super) fn hint(&self) -> Option<&'static str> {
        matches!(self.reason, Reason::NotFound).then_some(
            "install it in the image or below a persistent path, or name another command ('command' in the profile)",
        )
    }
}

impl fmt::Display for ExecFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", printable(&self.name))?;
        match &self.reason {
            Reason::NotFound => f.write_str("command not found"),
            Reason::NoSuchFile => f.write_str("no such file or directory"),
            Reason::Directory => f.write_str("is a directory"),
            Reason::Interpreter(path) => write!(f, "its interpreter '{}' does not exist", printable(path)),
            Reason::Linker => f.write_str("its dynamic linker does not exist in this image"),
            Reason::Format => f.write_str("not a program that can run here"),
            Reason::Unreachable => f.write_str(&Errno::EACCES.desc().to_lowercase()),
            Reason::Refused(errno) => f.write_str(&errno.desc().to_lowercase()),
        }
    }
}

/// Gives a byte string so that it cannot steer a terminal.
pub(super) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Replaces this process by a program, found along the PATH of its own environment. Returns only
/// when that fails.
pub(super) fn replace(argv: &[Vec<u8>], env: &[(Vec<u8>, Vec<u8>)]) -> ExecFailure {
    let name = argv.first().cloned().unwrap_or_default();
    let arguments = c_strings(argv.iter().cloned());
    let environment = c_strings(env.iter().map(|(name, value)| [name.as_slice(), b"=", value].concat()));
    let (Ok(arguments), Ok(environment)) = (arguments, environment) else {
        return ExecFailure { name, reason: Reason::Refused(Errno::EINVAL) };
    };
    let path = env.iter().rev().find(|(name, _)| name == b"PATH").map(|(_, value)| value.as_slice());
    let reason = search(&name, path, |candidate| attempt(candidate, &arguments, &environment));
    ExecFailure { name, reason }
}

/// Turns byte strings into C strings.
fn c_strings(strings: impl Iterator<Item = Vec<u8>>) -> Result<Vec<CString>, std::ffi::NulError> {
    strings.map(CString::new).collect()
}

/// Tries the files that a name may mean, in order, until one is there. `attempt` gives what is
/// wrong with a file, `None` when there is no such file. A file without permission does not end
/// the search, as in execvp(3).
fn search(name: &[u8], path: Option<&[u8]>, mut attempt: impl FnMut(&[u8]) -> Option<Reason>) -> Reason {
    if name.is_empty() {
        return Reason::NotFound;
    }
    if name.contains(&b'/') {
        return attempt(name).unwrap_or(Reason::NoSuchFile);
    }
    let mut denied = None;
    for directory in path.unwrap_or(DEFAULT_PATH.as_bytes()).split(|&byte| byte == b':') {
        let directory = if directory.is_empty() { b"." } else { directory };
        match attempt(&[directory, b"/", name].concat()) {
            None | Some(Reason::Unreachable) => {}
            Some(reason @ (Reason::Directory | Reason::Refused(Errno::EACCES))) => {
                denied.get_or_insert(reason);
            }
            Some(reason) => return reason,
        }
    }
    denied.unwrap_or(Reason::NotFound)
}

/// Executes one file, or gives what is wrong with it.
fn attempt(file: &[u8], arguments: &[CString], environment: &[CString]) -> Option<Reason> {
    let Ok(c_file) = CString::new(file) else { return Some(Reason::Refused(Errno::EINVAL)) };
    let Err(errno) = execve(&c_file, arguments, environment);
    let path = Path::new(OsStr::from_bytes(file));
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => {
            // The file itself may be there and something that it needs not.
            if !path.exists() {
                return None;
            }
            Some(interpreter(&head(path)).map_or(Reason::Linker, Reason::Interpreter))
        }
        Errno::EACCES => Some(match path.metadata() {
            Ok(metadata) if metadata.is_dir() => Reason::Directory,
            Ok(_) => Reason::Refused(errno),
            Err(_) => Reason::Unreachable,
        }),
        Errno::ENOEXEC => {
            if head(path).contains(&0) {
                return Some(Reason::Format);
            }
            let shell = CString::new(SHELL).ok()?;
            let line: Vec<&CString> = [&shell, &c_file].into_iter().chain(arguments.iter().skip(1)).collect();
            let Err(_) = execve(&shell, &line, environment);
            Some(Reason::Format)
        }
        errno => Some(Reason::Refused(errno)),
    }
}

/// Reads a file's beginning; empty when it can't be read.
fn head(path: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    // A named pipe would block; only what `execve` accepts, a regular file, is read.
    if path.is_file()
        && let Ok(file) = File::open(path)
    {
        let _ = file.take(HEAD).read_to_end(&mut head);
    }
    head
}

/// Gives the interpreter that a script's first line names.
fn interpreter(head: &[u8]) -> Option<Vec<u8>> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | b'\r')).filter(|word| !word.is_empty());
    words.next().map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches in a made-up file system and gives the files tried and the result.
    fn found(name: &str, path: Option<&str>, files: &[(&str, Reason)]) -> (Vec<String>, Reason) {
        let mut tried = Vec::new();
        let reason = search(name.as_bytes(), path.map(str::as_bytes), |file| {
            let file = String::from_utf8(file.to_vec()).unwrap();
            let reason = files.iter().find(|(path, _)| *path == file).map(|(_, reason)| reason.clone());
            tried.push(file);
            reason
        });
        (tried, reason)
    }

    #[test]
    fn the_path_is_searched_in_order_and_an_empty_part_is_the_directory() {
        let (tried, reason) = found("x", Some("/a::/b"), &[]);
        assert_eq!(tried, ["/a/x", "./x", "/b/x"]);
        assert_eq!(reason, Reason::NotFound);
        assert_eq!(found("x", None, &[]).0.len(), 6);
    }

    #[test]
    fn a_slash_means_that_very_file() {
        assert_eq!(found("./x", Some("/a"), &[]), (vec!["./x".into()], Reason::NoSuchFile));
    }

    #[test]
    fn a_file_without_permission_does_not_hide_a_later_one_but_is_remembered() {
        let denied = ("/a/x", Reason::Refused(Errno::EACCES));
        assert_eq!(found("x", Some("/a:/b"), &[denied.clone(), ("/b/x", Reason::Format)]).1, Reason::Format);
        assert_eq!(found("x", Some("/a:/b"), std::slice::from_ref(&denied)).1, denied.1);
        let hidden = ("/a/x", Reason::Unreachable);
        assert_eq!(found("x", Some("/a"), std::slice::from_ref(&hidden)).1, Reason::NotFound);
        assert_eq!(found("/a/x", None, &[hidden]).1, Reason::Unreachable);
        assert_eq!(found("", Some("/a"), &[denied]).1, Reason::NotFound);
    }

    #[test]
    fn messages_and_statuses_are_a_shells() {
        let cases: [(&[u8], Reason, &str, u8); 7] = [
            (b"100%\xff", Reason::NotFound, "100%\u{fffd}: command not found", 127),
            (b"nope", Reason::NotFound, "nope: command not found", 127),
            (b"./nope", Reason::NoSuchFile, "./nope: no such file or directory", 127),
            (b"/tmp", Reason::Directory, "/tmp: is a directory", 126),
            (b"./f", Reason::Refused(Errno::EACCES), "./f: permission denied", 126),
            (b"./s", Reason::Interpreter(b"/x".to_vec()), "./s: its interpreter '/x' does not exist", 127),
            (b"\x1b[2J", Reason::NotFound, "?[2J: command not found", 127),
        ];
        for (name, reason, message, status) in cases {
            let failure = ExecFailure { name: name.to_vec(), reason };
            assert_eq!((failure.to_string().as_str(), failure.status()), (message, status));
        }
    }

    #[test]
    fn a_scripts_first_line_names_its_interpreter() {
        assert_eq!(interpreter(b"#! /usr/bin/env python\nx"), Some(b"/usr/bin/env".to_vec()));
        assert_eq!(interpreter(b"#!/bin/sh\r\n"), Some(b"/bin/sh".to_vec()));
        assert_eq!(interpreter(b"#!\n"), None);
        assert_eq!(interpreter(b"\x7fELF"), None);
    }
}
