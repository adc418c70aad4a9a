//! What a start shows while it takes longer than half a second: spinner and bars on a terminal,
//! plain lines otherwise.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use super::output;
use crate::wire::bootstrap::Progress;

/// How long a start may take before anything is shown.
const PATIENCE: Duration = Duration::from_millis(500);

/// Longest time between two states of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// Whether progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// It is.
    Normal,
    /// It is not.
    Quiet,
}

/// The progress of one start.
#[derive(Debug)]
pub struct ProgressDisplay {
    face: Face,
    begun: Instant,
    showing: bool,
    phase: Option<String>,
}

#[derive(Debug)]
enum Face {
    Quiet,
    Lines { announced: BTreeMap<String, u64> },
    Bars { all: MultiProgress, phase: Option<ProgressBar>, downloads: BTreeMap<String, ProgressBar> },
}

impl ProgressDisplay {
    /// Begins a display that shows nothing yet.
    pub fn begin(verbosity: Verbosity) -> Self {
        let face = match verbosity {
            Verbosity::Quiet => Face::Quiet,
            Verbosity::Normal if std::io::stderr().is_terminal() => Face::Bars {
                all: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()),
                phase: None,
                downloads: BTreeMap::new(),
            },
            Verbosity::Normal => Face::Lines { announced: BTreeMap::new() },
        };
        Self { face, begun: Instant::now(), showing: false, phase: None }
    }

    /// Waits until it is time to show something, then shows it; forever once it is shown.
    pub async fn due(&mut self) {
        if self.showing {
            return std::future::pending().await;
        }
        tokio::time::sleep_until(self.begun + PATIENCE).await;
        self.showing = true;
        if let Face::Bars { all, .. } = &self.face {
            all.set_draw_target(ProgressDrawTarget::stderr());
        }
        if let Some(phase) = self.phase.clone() {
            self.show_phase(&phase);
        }
    }

    /// Takes a report of the starting coordinator.
    pub fn report(&mut self, progress: Progress) {
        match progress {
            Progress::Phase(phase) => self.phase(phase),
            Progress::Notice(text) => self.notice(&text),
            Progress::Download { what, done, total } => self.download(what, done, total),
        }
    }

    /// Says what is going on.
    pub fn phase(&mut self, phase: String) {
        if self.phase.as_ref() == Some(&phase) {
            return;
        }
        if self.showing {
            self.show_phase(&phase);
        }
        self.phase = Some(phase);
    }

    /// Tells something that stays on the screen, at once.
    fn notice(&self, text: &str) {
        let text = output::printable(text);
        match &self.face {
            Face::Quiet => {}
            Face::Lines { .. } => output::note(&text),
            Face::Bars { all, .. } => all.suspend(|| output::note(&text)),
        }
    }

    fn show_phase(&mut self, phase: &str) {
        let text = output::printable(phase);
        match &mut self.face {
            Face::Quiet => {}
            Face::Lines { .. } => output::note(&text),
            Face::Bars { all, phase, .. } => phase
                .get_or_insert_with(|| {
                    let bar = all.insert(0, ProgressBar::new_spinner());
                    bar.enable_steady_tick(TICK);
                    bar
                })
                .set_message(text),
        }
    }

    fn download(&mut self, what: String, done: u64, total: u64) {
        match &mut self.face {
            Face::Quiet => {}
            Face::Lines { announced } => {
                // A line at every quarter, so that a log shows that it goes on.
                let quarter = done.saturating_mul(4).checked_div(total).unwrap_or(0);
                if self.showing && announced.get(&what).is_none_or(|last| *last < quarter) {
                    let (what_shown, size) = (output::printable(&what), indicatif::HumanBytes(total));
                    output::note(&format!("{what_shown}: {}% of {size}", quarter * 25));
                    announced.insert(what, quarter);
                }
            }
            Face::Bars { all, downloads, .. } => {
                let shown = output::printable(&what);
                let bar = downloads.entry(what).or_insert_with(|| {
                    let bar = all.add(ProgressBar::new(total));
                    bar.set_style(bar_style());
                    bar.set_message(shown);
                    bar
                });
                bar.set_length(total);
                bar.set_position(done);
                if done >= total {
                    bar.finish_and_clear();
                }
            }
        }
    }

    /// Takes everything off the terminal.
    pub fn clear(&mut self) {
        if let Face::Bars { all, phase, downloads } = &mut self.face {
            phase
                .take()
                .into_iter()
                .chain(std::mem::take(downloads).into_values())
                .for_each(|bar| bar.finish_and_clear());
            // A terminal that is gone needs no clearing.
            let _ = all.clear();
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.clear();
    }
}

fn bar_style() -> ProgressStyle {
    let template = "  {msg:30!} {bar:30} {bytes:>10} of {total_bytes} {bytes_per_sec} {eta}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_shown_before_half_a_second() {
        let mut display = ProgressDisplay::begin(Verbosity::Normal);
        let begun = std::time::Instant::now();
        display.report(Progress::Phase("preparing".into()));
        assert!(!display.showing);
        display.due().await;
        assert!(display.showing && begun.elapsed() >= PATIENCE);
        display.report(Progress::Download { what: "layer".into(), done: 1, total: 0 });
        display.report(Progress::Download { what: "layer".into(), done: 5, total: 10 });
    }
}
