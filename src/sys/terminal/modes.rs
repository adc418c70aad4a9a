//! Which modes of the terminal a session has switched on, as its output says, and how each is
//! switched off again.
//!
//! A session that ends by itself leaves a clean terminal. One that is lost (its coordinator was
//! killed, the sandbox died) may leave the alternate screen, mouse reports or a hidden cursor. Only
//! what is known to be on is reset: a reset of what is off is not harmless, the one for the
//! alternate screen moves the cursor.

use std::sync::atomic::{AtomicU32, Ordering};

/// The modes that are on. The process's, so that [`super::restore_all`] finds it in any context.
static ON: AtomicU32 = AtomicU32::new(0);

/// A mode that DECSET and DECRST switch by number.
struct PrivateMode {
    numbers: &'static [u16],
    usual: Usual,
    reset: &'static [u8],
}

/// Which of its two states a mode is in when nobody has touched it.
#[derive(PartialEq, Eq)]
enum Usual {
    Set,
    Reset,
}

/// In the order of their resets: the screen comes back before the cursor does.
const PRIVATE: [PrivateMode; 13] = [
    PrivateMode { numbers: &[2026], usual: Usual::Reset, reset: b"\x1b[?2026l" },
    PrivateMode { numbers: &[1000], usual: Usual::Reset, reset: b"\x1b[?1000l" },
    PrivateMode { numbers: &[1002], usual: Usual::Reset, reset: b"\x1b[?1002l" },
    PrivateMode { numbers: &[1003], usual: Usual::Reset, reset: b"\x1b[?1003l" },
    PrivateMode { numbers: &[1005], usual: Usual::Reset, reset: b"\x1b[?1005l" },
    PrivateMode { numbers: &[1006], usual: Usual::Reset, reset: b"\x1b[?1006l" },
    PrivateMode { numbers: &[1015], usual: Usual::Reset, reset: b"\x1b[?1015l" },
    PrivateMode { numbers: &[1004], usual: Usual::Reset, reset: b"\x1b[?1004l" },
    PrivateMode { numbers: &[2004], usual: Usual::Reset, reset: b"\x1b[?2004l" },
    PrivateMode { numbers: &[1], usual: Usual::Reset, reset: b"\x1b[?1l" },
    PrivateMode { numbers: &[47, 1047, 1049], usual: Usual::Reset, reset: b"\x1b[?1049l" },
    PrivateMode { numbers: &[7], usual: Usual::Set, reset: b"\x1b[?7h" },
    PrivateMode { numbers: &[25], usual: Usual::Set, reset: b"\x1b[?25h" },
];

/// Whether a mode differs from its usual state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    On,
    Off,
}

/// Further modes, each with its bit and reset.
const KEYPAD: u32 = 1 << 16;
const ATTRIBUTES: u32 = 1 << 17;
const REGION: u32 = 1 << 18;
const LINE_DRAWING: u32 = 1 << 19;
const CURSOR_SHAPE: u32 = 1 << 20;
const KEYBOARD_STACK: u32 = 1 << 21;
const OTHER_KEYS: u32 = 1 << 22;
const FURTHER: [(u32, &[u8]); 7] = [
    (KEYPAD, b"\x1b>"),
    (ATTRIBUTES, b"\x1b[0m"),
    // The cursor is kept: setting the region moves it.
    (REGION, b"\x1b7\x1b[r\x1b8"),
    (LINE_DRAWING, b"\x1b(B"),
    (CURSOR_SHAPE, b"\x1b[0 q"),
    // Pops more than any program pushes; an empty stack is the usual state.
    (KEYBOARD_STACK, b"\x1b[<32u"),
    (OTHER_KEYS, b"\x1b[>4m"),
];

/// Gives the sequences that switch off what is on, and takes it for off from now on.
/// Async-signal-safe.
pub(super) fn take_resets() -> impl Iterator<Item = &'static [u8]> {
    let on = ON.swap(0, Ordering::AcqRel);
    let private = PRIVATE.iter().enumerate().map(|(index, mode)| (1 << index, mode.reset));
    let further = FURTHER.iter().copied();
    // The stack of keyboard modes belongs to the screen that is shown, so it goes before the screen.
    further.chain(private).filter(move |(bit, _)| on & bit != 0).map(|(_, reset)| reset)
}

/// Watches one session's output for modes that it switches.
#[derive(Debug, Default)]
pub struct OutputModes {
    state: State,
    sequence: Sequence,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    Charset,
    Control,
}

/// A control sequence so far: `ESC [ PREFIX PARAMETERS INTERMEDIATE FINAL`.
#[derive(Debug, Default, Clone)]
struct Sequence {
    prefix: u8,
    intermediate: u8,
    parameters: [u16; 16],
    count: usize,
}

impl Sequence {
    fn parameters(&self) -> &[u16] {
        &self.parameters[..self.count.min(self.parameters.len())]
    }
}

impl OutputModes {
    /// Takes the next bytes of the session's output; sequences may be cut anywhere.
    pub fn observe(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.state == State::Text {
                let Some(escape) = rest.iter().position(|byte| *byte == 0x1b) else { return };
                self.state = State::Escape;
                rest = &rest[escape + 1..];
            } else {
                self.step(rest[0]);
                rest = &rest[1..];
            }
        }
    }

    fn step(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (_, 0x1b) => State::Escape,
            (State::Escape, b'[') => {
                self.sequence = Sequence::default();
                State::Control
            }
            (State::Escape, b'(') => State::Charset,
            (State::Escape, b'=') => note(KEYPAD, Mode::On),
            (State::Escape, b'>') => note(KEYPAD, Mode::Off),
            // Full reset.
            (State::Escape, b'c') => note(u32::MAX, Mode::Off),
            (State::Charset, byte) => note(LINE_DRAWING, on_if(byte == b'0')),
            (State::Control, b'<'..=b'?') => {
                self.sequence.prefix = byte;
                State::Control
            }
            (State::Control, b'0'..=b'9' | b';' | b':') => {
                self.parameter(byte);
                State::Control
            }
            (State::Control, b' '..=b'/') => {
                self.sequence.intermediate = byte;
                State::Control
            }
            (State::Control, b'@'..=b'~') => self.finish(byte),
            _ => State::Text,
        };
    }

    fn parameter(&mut self, byte: u8) {
        let sequence = &mut self.sequence;
        sequence.count = sequence.count.max(1);
        match (byte, sequence.parameters.get_mut(sequence.count - 1)) {
            (b'0'..=b'9', Some(value)) => *value = value.saturating_mul(10).saturating_add(u16::from(byte - b'0')),
            (b'0'..=b'9', None) => {}
            _ => sequence.count = (sequence.count + 1).min(usize::from(u8::MAX)),
        }
    }

    fn finish(&self, byte: u8) -> State {
        let sequence = &self.sequence;
        let parameters = sequence.parameters();
        match (sequence.prefix, sequence.intermediate, byte) {
            (b'?', 0, b'h' | b'l') => {
                let set = if byte == b'h' { Usual::Set } else { Usual::Reset };
                for (index, mode) in PRIVATE.iter().enumerate() {
                    if mode.numbers.iter().any(|number| parameters.contains(number)) {
                        note(1 << index, on_if(mode.usual != set));
                    }
                }
                State::Text
            }
            (0, 0, b'm') => note(ATTRIBUTES, on_if(parameters.last().is_some_and(|last| *last != 0))),
            (0, 0, b'r') => note(REGION, on_if(!parameters.is_empty())),
            (0, b' ', b'q') => note(CURSOR_SHAPE, on_if(parameters.first().is_some_and(|shape| *shape != 0))),
            // Soft reset.
            (0, b'!', b'p') => note(KEYPAD | ATTRIBUTES | REGION | LINE_DRAWING, Mode::Off),
            (b'>' | b'=', 0, b'u') => note(KEYBOARD_STACK, Mode::On),
            (b'<', 0, b'u') => note(KEYBOARD_STACK, Mode::Off),
            (b'>', 0, b'm') if parameters.first() == Some(&4) => {
                note(OTHER_KEYS, on_if(parameters.get(1).is_some_and(|value| *value != 0)))
            }
            _ => State::Text,
        }
    }
}

/// Notes modes as on or off; a sequence ends with it.
fn note(bits: u32, when: Mode) -> State {
    match when {
        Mode::On => ON.fetch_or(bits, Ordering::AcqRel),
        Mode::Off => ON.fetch_and(!bits, Ordering::AcqRel),
    };
    State::Text
}

fn on_if(condition: bool) -> Mode {
    if condition { Mode::On } else { Mode::Off }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::{Mutex, MutexGuard};

    /// The state is the process's, so that these tests and the terminal's take turns.
    pub(in crate::sys::terminal) fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(|error| error.into_inner())
    }

    fn resets_after(output: &[u8]) -> String {
        let _ = take_resets();
        OutputModes::default().observe(output);
        take_resets().map(|reset| String::from_utf8_lossy(reset).replace('\x1b', "^")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_what_is_on_is_switched_off() {
        let _turn = turn();
        for (output, resets) in [
            ("plain text, \x1b[31mred\x1b[0m again", ""),
            ("\x1b[31mred", "^[0m"),
            ("\x1b[1;38;5;0m", ""),
            ("\x1b[?1049h\x1b[?1049l", ""),
            ("\x1b[?1049h", "^[?1049l"),
            ("\x1b[?47h", "^[?1049l"),
            ("\x1b[?25l", "^[?25h"),
            ("\x1b[?25l\x1b[?25h", ""),
            ("\x1b[?1002;1006;2004h", "^[?1002l ^[?1006l ^[?2004l"),
            ("\x1b[?1h\x1b=", "^> ^[?1l"),
            ("\x1b[?1h\x1b=\x1b[?1l\x1b>", ""),
            ("\x1b[2;20r", "^7^[r^8"),
            ("\x1b[2;20r\x1b[r", ""),
            ("\x1b(0qqq", "^(B"),
            ("\x1b(0qqq\x1b(B", ""),
            ("\x1b[6 q", "^[0 q"),
            ("\x1b[>1u", "^[<32u"),
            ("\x1b[>1u\x1b[<u", ""),
            ("\x1b[>4;2m", "^[>4m"),
            ("\x1b[>4;0m", ""),
            ("\x1b[?1049h\x1b[?25l\x1bc", ""),
            ("\x1b[?1049$p\x1b[?99999999999999h", ""),
            ("\x1b]0;title \x1b\\", ""),
        ] {
            assert_eq!(resets_after(output.as_bytes()), resets, "{output:?}");
        }
    }

    #[test]
    fn sequences_may_be_cut_anywhere() {
        let _turn = turn();
        let _ = take_resets();
        let mut modes = OutputModes::default();
        for byte in b"text\x1b[?1049;2004hmore\x1b[4" {
            modes.observe(&[*byte]);
        }
        let resets: Vec<_> = take_resets().collect();
        assert_eq!(resets, [&b"\x1b[?2004l"[..], b"\x1b[?1049l"]);
    }

    proptest! {
        #[test]
        fn no_output_makes_it_panic(output in proptest::collection::vec(
            prop_oneof![any::<u8>(), Just(0x1b), Just(b'['), Just(b'?'), Just(b';'), Just(b'9'), Just(b'h')], 0..200)) {
            let _turn = turn();
            OutputModes::default().observe(&output);
            let _ = take_resets();
        }
    }
}
