//! Text from images, archives and registries on its way into messages.

use std::io;

/// Gives the text without what would upset a terminal, and not longer than a message may be.
pub fn printable(text: &str) -> String {
    let harmless = |c: char| {
        let deceptive =
            matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        if c.is_control() || deceptive { '\u{fffd}' } else { c }
    };
    let mut shown: String = text.chars().take(LENGTH).map(harmless).collect();
    if text.chars().nth(LENGTH).is_some() {
        shown.push('…');
    }
    shown
}

/// Longest text in characters.
const LENGTH: usize = 300;

/// Joins names for a message, some of many.
pub fn list<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let mut shown: Vec<_> = names.into_iter().take(COUNT + 1).map(|name| printable(name)).collect();
    if shown.len() > COUNT {
        shown[COUNT] = "…".into();
    }
    if shown.is_empty() { "none".into() } else { shown.join(", ") }
}

/// Most names that a message lists.
const COUNT: usize = 32;

/// Gives the error of a parser with only harmless text, since parsers quote what they can't parse.
pub fn tame(error: io::Error) -> io::Error {
    let kind = error.kind();
    match error.raw_os_error() {
        Some(_) => error,
        None => io::Error::new(kind, printable(&error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_replaced_and_what_is_long_is_cut() {
        assert_eq!(printable("a\u{1b}[2Jb\nc\u{202e}d"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d");
        assert_eq!(printable(&"ä".repeat(1000)).chars().count(), LENGTH + 1);
        assert_eq!(list(&[]), "none");
        let names: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        assert!(list(&names).ends_with("30, 31, …"));
        let tamed = tame(io::Error::new(io::ErrorKind::InvalidData, "bad\u{7}"));
        assert_eq!((tamed.kind(), tamed.to_string().as_str()), (io::ErrorKind::InvalidData, "bad\u{fffd}"));
    }
}
