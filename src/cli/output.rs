//! How text reaches people and programs: colours only on terminals, JSON in one shape, and no
//! control character that somebody else chose.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;

use crate::domain::escaped;

/// Where text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// Whether text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// With colours.
    Coloured,
    /// Without.
    Plain,
}

impl Style {
    /// Makes text red.
    pub fn red(self, text: &str) -> String {
        self.wrap(text, "1;31")
    }

    /// Makes text green.
    pub fn green(self, text: &str) -> String {
        self.wrap(text, "32")
    }

    /// Makes text yellow.
    pub fn yellow(self, text: &str) -> String {
        self.wrap(text, "33")
    }

    /// Makes text cyan.
    pub fn cyan(self, text: &str) -> String {
        self.wrap(text, "1;36")
    }

    /// Makes text faint.
    pub fn dim(self, text: &str) -> String {
        self.wrap(text, "2")
    }

    /// Makes text bold.
    pub fn bold(self, text: &str) -> String {
        self.wrap(text, "1")
    }

    fn wrap(self, text: &str, code: &str) -> String {
        match self {
            Self::Coloured => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Self::Plain => text.to_owned(),
        }
    }
}

/// Gives the style for a target: colours on a terminal, unless NO_COLOR is set to something or the
/// terminal is a dumb one.
pub fn style(target: Target) -> Style {
    let terminal = match target {
        Target::Output => io::stdout().is_terminal(),
        Target::Error => io::stderr().is_terminal(),
    };
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if terminal && !dumb && !set("NO_COLOR") { Style::Coloured } else { Style::Plain }
}

/// Writes a value as JSON and a newline to standard output, indented on a terminal only.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let text = if io::stdout().is_terminal() { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
    out.write_all(&text?)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes text to standard output.
pub fn text(text: &str) -> io::Result<()> {
    bytes(text.as_bytes())
}

/// Writes bytes to standard output.
pub fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Writes one line of information to standard error; whether it arrives is nobody's concern.
pub fn note(text: &str) {
    let _ = io::stderr().lock().write_all(format!("lazaret: {text}\n").as_bytes());
}

/// Makes text of unknown origin harmless on a terminal: control characters, and characters that
/// change the direction or visibility of text, become their escapes.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmless(c) {
            shown.push(c);
        } else {
            // Writing to a String does not fail.
            let _ = write!(shown, "{}", c.escape_default());
        }
    }
    shown
}

fn is_harmless(c: char) -> bool {
    let deceptive =
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !c.is_control() && !deceptive
}

/// Gives a byte string as one word of a shell's command line: as it is where the shell takes it so, in quotes
/// otherwise, and in the form `$'…'` where it is no harmless text.
pub fn word(bytes: impl AsRef<OsStr>) -> String {
    let bytes = bytes.as_ref().as_bytes();
    let plain = |c: char| c.is_alphanumeric() || "%+,-./:=@_".contains(c);
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Ok(text) if text.chars().all(is_harmless) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => quoted_bytes(bytes),
    }
}

/// Gives a byte string that is kept as text by [`escaped::escape`] as one [`word`].
pub fn escaped_word(text: &str) -> String {
    match escaped::unescape(text) {
        Ok(bytes) => word(OsStr::from_bytes(&bytes)),
        Err(_) => word(text),
    }
}

/// Gives it in the form `$'…'`, which can say every byte.
fn quoted_bytes(bytes: &[u8]) -> String {
    let mut word = String::from("$'");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut buffer = [0; 4];
            match c {
                '\'' | '\\' => word.extend(['\\', c]),
                '\n' => word.push_str("\\n"),
                '\t' => word.push_str("\\t"),
                c if is_harmless(c) => word.push(c),
                c => word.extend(c.encode_utf8(&mut buffer).bytes().map(octal)),
            }
        }
        word.extend(chunk.invalid().iter().copied().map(octal));
    }
    word.push('\'');
    word
}

/// Three digits, since no more of what follows is taken for them.
fn octal(byte: u8) -> String {
    format!("\\{byte:03o}")
}

/// Gives how long ago a moment was, in the largest fitting unit: `42s`, `5m`, `3h`, `2d`.
pub fn age(since: i64, now: i64) -> String {
    let seconds = (now - since).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Gives the local time of day of a moment.
pub fn clock(moment: i64) -> String {
    let moment = jiff::Timestamp::from_second(moment).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    moment.to_zoned_datetime(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string()
}

/// Gives the seconds since the epoch.
pub fn now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs().cast_signed())
}

/// A table whose columns are as wide as their widest cell.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with a heading.
    pub fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row; its cells are made [`printable`].
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// Gives the lines, the heading in bold.
    pub fn render(&self, style: Style) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            let line = line.join("  ");
            let line = line.trim_end();
            text.push_str(&if index == 0 { style.bold(line) } else { line.to_owned() });
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_can_not_drive_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\r\nc"), "a\\u{1b}[31mb\\r\\nc");
        assert_eq!(printable("x\u{202e}y"), "x\\u{202e}y");
        assert_eq!(printable("naïve ☃ file"), "naïve ☃ file");
    }

    #[test]
    fn a_word_is_what_a_shell_takes_for_it() {
        assert_eq!(["make", "-j4", "100%", "a=b/c.d"].map(word), ["make", "-j4", "100%", "a=b/c.d"]);
        assert_eq!([word(""), word("a b"), word("it's"), word("$x;~")], ["''", "'a b'", r"'it'\''s'", "'$x;~'"]);
        assert_eq!(word("naïve ☃"), "'naïve ☃'");
        let odd: Vec<&[u8]> = vec![b"\xff1", b"a\nb'\\", b"\x1b[2J", "\u{202e}x".as_bytes()];
        let words: Vec<_> = odd.iter().map(|bytes| word(OsStr::from_bytes(bytes))).collect();
        assert_eq!(words, [r"$'\3771'", r"$'a\nb\'\\'", r"$'\033[2J'", r"$'\342\200\256x'"]);
        for (bytes, word) in odd.iter().zip(words) {
            let printed = std::process::Command::new("bash").arg("-c").arg(format!("printf %s {word}")).output();
            assert_eq!(printed.unwrap().stdout, *bytes, "{word}");
        }
    }

    #[test]
    fn ages_use_the_largest_fitting_unit() {
        assert_eq!(
            ["42s", "2m", "2h", "3d", "0s"],
            [age(0, 42).as_str(), &age(0, 120), &age(0, 7200), &age(0, 3 * 86_400), &age(50, 40)]
        );
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["NAME", "AGE"]);
        table.row(vec!["a-long-name".into(), "1s".into()]);
        table.row(vec!["b".into(), "2s".into()]);
        assert_eq!(table.render(Style::Plain), "NAME         AGE\na-long-name  1s\nb            2s\n");
    }
}
