//! What is measured, and how several of them share a noisy machine.

use anyhow::bail;

use crate::measure::Turn;
use crate::report::Row;

/// Something that runs a command in a sandbox.
pub trait Subject {
    /// Its name in the report.
    fn name(&self) -> String;
    /// Starts a sandbox, runs `true` and takes it down: milliseconds.
    fn start(&mut self) -> Turn;
    /// Runs `true` in a sandbox that runs: milliseconds.
    fn join(&mut self) -> Turn {
        bail!("not measured")
    }
    /// Types keys at a program in a sandbox that runs: milliseconds each.
    fn echo(&mut self, _keys: usize) -> Turn {
        bail!("not measured")
    }
    /// Shows the text on a terminal, in a sandbox that runs: MB a second.
    fn output(&mut self) -> Turn {
        bail!("not measured")
    }
}

/// Lets the subjects take turns. One that fails is out of the row, with its reason.
pub fn take_turns(
    row: &mut Row,
    subjects: &mut [&mut dyn Subject],
    rounds: usize,
    measure: impl Fn(&mut dyn Subject) -> Turn,
) {
    let mut failed = vec![false; subjects.len()];
    for round in 0..=rounds {
        for (subject, failed) in subjects.iter_mut().zip(&mut failed) {
            if *failed {
                continue;
            }
            let mut turn = measure(*subject);
            if round == 0 {
                // It only warms caches up.
                turn = turn.map(|_| Vec::new());
            }
            *failed = turn.is_err();
            row.take(&subject.name(), &turn);
        }
    }
}
