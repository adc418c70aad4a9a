//! What runsc's log says about a failed command.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest part of a log that is looked at, in bytes.
const LOG_LIMIT: u64 = 1 << 20;
/// Lines of a panic that are told; the rest is a trace of every goroutine.
const PANIC_LINES: usize = 12;
/// Longest text taken over from runsc, in bytes; it may repeat what a sandbox said.
const TEXT_LIMIT: usize = 2000;

/// Gives the first error of a log file, which is the root cause of a failed command.
pub fn first_error(path: &Path) -> Option<String> {
    first_error_in(&beginning(path)?)
}

/// Gives the first lines of a panic of the sandbox's kernel; nothing when it did not panic. What comes before
/// the panic in the file is the kernel's ordinary output.
pub fn panic(path: &Path) -> Option<String> {
    panic_in(&String::from_utf8_lossy(&beginning(path)?))
}

/// Reads the part of a log that is looked at.
fn beginning(path: &Path) -> Option<Vec<u8>> {
    let mut text = vec![];
    File::open(path).ok()?.take(LOG_LIMIT).read_to_end(&mut text).ok()?;
    Some(text)
}

fn panic_in(text: &str) -> Option<String> {
    let begin = |line: &&str| ["panic: ", "fatal error: "].iter().any(|word| line.starts_with(word));
    let lines: Vec<&str> = text.lines().skip_while(|line| !begin(line)).take(PANIC_LINES).collect();
    (!lines.is_empty()).then(|| bounded(&lines.join(" | ")))
}

/// Gives the first error in a log's text. Its JSON objects follow each other without a separator, and
/// the last may be cut off.
fn first_error_in(text: &[u8]) -> Option<String> {
    let entries = serde_json::Deserializer::from_slice(text).into_iter::<serde_json::Value>();
    let mut errors = entries.map_while(Result::ok).filter(|entry| entry["level"] == "error");
    errors.find_map(|entry| entry["msg"].as_str().map(|said| bounded(&without_command(said))))
}

/// Takes the command line of a session out of what runsc says: it would bury the reason, and belongs into no log.
fn without_command(said: &str) -> String {
    let Some((before, rest)) = said.split_once(" \"") else { return said.to_owned() };
    if !rest.contains("lazaret-guest session ") {
        return said.to_owned();
    }
    let after = rest.rfind("\" in sandbox").map(|at| &rest[at + 1..]).unwrap_or_default();
    format!("{before}{after}")
}

/// Bounds a text and makes every control character visible, as it may come from the sandbox.
pub fn bounded(text: &str) -> String {
    let mut out = String::new();
    for c in text.trim().chars() {
        if out.len() >= TEXT_LIMIT {
            out.push('…');
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_sessions_command_line_is_in_no_error() {
        let said = "executing processes for container: executing command \"/run/lazaret/bin/lazaret-guest session --dir \
            /x\" in sandbox\" -- id\" in sandbox: too many open files";
        let told = "executing processes for container: executing command in sandbox: too many open files";
        assert_eq!(super::without_command(said), told);
        assert_eq!(super::without_command("a \"/x/lazaret-guest session --dir /x"), "a");
        assert_eq!(super::without_command("no such \"thing\" here"), "no such \"thing\" here");
    }

    use super::*;

    #[test]
    fn a_panic_is_told_by_its_first_lines() {
        let text = "I0101 something\npanic: index out of range [recovered]\n\ngoroutine 7 [running]:\n";
        assert_eq!(panic_in(text).unwrap(), "panic: index out of range [recovered] |  | goroutine 7 [running]:");
        assert_eq!(panic_in("W0101 this is no panic: it is a line\n"), None);
    }

    #[test]
    fn the_first_error_of_concatenated_objects_is_found() {
        let log = br#"{"msg":"starting","level":"info"}{"msg":"gofer: no such file","level":"error"}{"msg":"EOF","level":"error"}{"ms"#;
        assert_eq!(first_error_in(log).as_deref(), Some("gofer: no such file"));
        assert_eq!(first_error_in(br#"{"msg":"x","level":"warning"}"#), None);
        assert_eq!(first_error_in(b"not json"), None);
    }

    #[test]
    fn text_is_bounded_and_shows_its_control_characters() {
        assert_eq!(bounded("a\x1b[2Jb\n"), "a\\u{1b}[2Jb");
        assert!(bounded(&"x".repeat(10_000)).len() < TEXT_LIMIT + 8);
    }
}
