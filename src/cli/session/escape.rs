//! The escape sequence of an interactive session: typed at the start of a line, the escape
//! character followed by `.` ends the session; the escape character twice sends it once.

use crate::cli::args::EscapeCharacter;

/// What becomes of a piece of input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passage {
    /// These bytes go to the session; perhaps none.
    Forward(Vec<u8>),
    /// The user ends the session.
    Disconnect,
}

/// Looks for the sequence in what is typed.
///
/// Only single keys count. A paste comes in larger pieces and is never searched, so no text that
/// somebody pastes can end a session.
#[derive(Debug)]
pub struct EscapeFilter {
    character: EscapeCharacter,
    at_line_start: bool,
    held: bool,
}

impl EscapeFilter {
    /// Makes a filter for a session that begins.
    pub fn new(character: EscapeCharacter) -> Self {
        Self { character, at_line_start: true, held: false }
    }

    /// Takes what was read in one go.
    pub fn pass(&mut self, bytes: Vec<u8>) -> Passage {
        let EscapeCharacter::Byte(escape) = self.character else { return Passage::Forward(bytes) };
        if std::mem::take(&mut self.held) {
            return match bytes.as_slice() {
                b"." => Passage::Disconnect,
                [byte] if *byte == escape => self.forward(bytes),
                _ => self.forward([vec![escape], bytes].concat()),
            };
        }
        if self.at_line_start && bytes == [escape] {
            self.held = true;
            return Passage::Forward(Vec::new());
        }
        if self.at_line_start && bytes == [escape, b'.'] {
            return Passage::Disconnect;
        }
        self.forward(bytes)
    }

    fn forward(&mut self, bytes: Vec<u8>) -> Passage {
        if let Some(last) = bytes.last() {
            self.at_line_start = matches!(last, b'\r' | b'\n');
        }
        Passage::Forward(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(character: EscapeCharacter, pieces: &[&str]) -> (String, bool) {
        let mut filter = EscapeFilter::new(character);
        let mut forwarded = Vec::new();
        for piece in pieces {
            match filter.pass(piece.as_bytes().to_vec()) {
                Passage::Forward(bytes) => forwarded.extend(bytes),
                Passage::Disconnect => return (String::from_utf8(forwarded).unwrap(), true),
            }
        }
        (String::from_utf8(forwarded).unwrap(), false)
    }

    #[test]
    fn the_sequence_counts_only_when_typed_at_the_start_of_a_line() {
        let tilde = EscapeCharacter::Byte(b'~');
        for (pieces, forwarded, ended) in [
            (&["~", "."][..], "", true),
            (&["~."], "", true),
            (&["ls\r", "~", "."], "ls\r", true),
            (&["l", "~", "."], "l~.", false),
            (&["~", "/", "."], "~/.", false),
            (&["~", "~", "."], "~.", false),
            (&["pasted\n~.\nmore"], "pasted\n~.\nmore", false),
            (&["~", ".pasted"], "~.pasted", false),
        ] {
            assert_eq!(typed(tilde, pieces), (forwarded.to_owned(), ended), "{pieces:?}");
        }
        assert_eq!(typed(EscapeCharacter::None, &["~", "."]), ("~.".to_owned(), false));
    }
}
