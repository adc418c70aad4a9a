//! The report: medians, ratios, and whether the targets hold.

use std::fmt;

use fs_err as fs;

use crate::harness::Invocation;
use crate::measure::{NotInstalled, Turn};

/// What a target demands of a ratio, of a difference, or of a value itself.
#[derive(Debug, Clone, Copy)]
pub enum Bound {
    /// Not more than so many times the other (or not more than so much).
    Most(f64),
    /// Not less than so many times the other.
    Least(f64),
    /// Not more than so much above the other.
    MostAbove(f64),
}

/// One row: some subjects' samples and a target.
#[derive(Debug)]
pub struct Row {
    what: String,
    entries: Vec<Entry>,
    demand: Option<(String, Bound, Option<String>)>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    samples: Vec<f64>,
    failure: Option<String>,
}

impl Entry {
    fn quantile(&self, part: f64) -> Option<f64> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        Some(sorted[(last as f64 * part).round() as usize])
    }

    /// The median, unless a round failed.
    fn median(&self) -> Option<f64> {
        if self.failure.is_some() { None } else { self.quantile(0.5) }
    }
}

impl Row {
    /// Begins a row.
    pub fn new(what: &str) -> Self {
        Self { what: what.to_owned(), entries: Vec::new(), demand: None }
    }

    /// Adds a turn of a subject.
    pub fn take(&mut self, name: &str, turn: &Turn) {
        let index = self.entries.iter().position(|entry| entry.name == name).unwrap_or_else(|| {
            self.entries.push(Entry { name: name.to_owned(), samples: Vec::new(), failure: None });
            self.entries.len() - 1
        });
        match turn {
            Ok(samples) => self.entries[index].samples.extend(samples),
            Err(error) => self.entries[index].failure = Some(reason(error)),
        }
    }

    /// States the target: a subject against another.
    pub fn demand(&mut self, name: &str, bound: Bound, other: &str) {
        self.demand = Some((name.to_owned(), bound, Some(other.to_owned())));
    }

    /// States the target: a subject's value.
    pub fn demand_value(&mut self, name: &str, bound: Bound) {
        self.demand = Some((name.to_owned(), bound, None));
    }

    fn median(&self, name: &str) -> Option<f64> {
        self.entries.iter().find(|entry| entry.name == name)?.median()
    }

    /// Says what the target is, and whether it holds when that is known.
    fn verdict(&self) -> Option<(String, Option<bool>)> {
        let (name, bound, other) = self.demand.as_ref()?;
        let own = self.median(name);
        let reference = other.as_ref().map(|other| self.median(other));
        // A value of its own is compared with the bound as it is.
        let (own, reference) = match reference {
            Some(reference) => (own, reference),
            None => (own, Some(1.0)),
        };
        let of = other.as_ref().map(|other| format!(" × {other}")).unwrap_or_default();
        let (text, holds): (String, fn(f64, f64, f64) -> bool) = match bound {
            Bound::Most(limit) => (format!("≤ {limit:.4}{of}"), |own, other, limit| own <= limit * other),
            Bound::Least(limit) => (format!("≥ {limit:.4}{of}"), |own, other, limit| own >= limit * other),
            Bound::MostAbove(limit) => {
                let above = other.as_deref().unwrap_or_default();
                (format!("≤ {limit:.4} above {above}"), |own, other, limit| own <= other + limit)
            }
        };
        let (Bound::Most(limit) | Bound::Least(limit) | Bound::MostAbove(limit)) = *bound;
        let holds = own.zip(reference).filter(|_| !limit.is_nan()).map(|(own, other)| holds(own, other, limit));
        Some((text, holds))
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n## {}\n", self.what)?;
        writeln!(f, "| subject | median | p10 | p90 | samples | lazaret ÷ this |")?;
        writeln!(f, "| :--- | ---: | ---: | ---: | ---: | ---: |")?;
        let own = self.median("lazaret");
        for entry in &self.entries {
            match (&entry.failure, entry.median()) {
                (None, Some(median)) => {
                    let [low, high] = [0.1, 0.9].map(|part| entry.quantile(part).unwrap_or(f64::NAN));
                    let ratio = own.map_or("–".to_owned(), |own| format!("{:.2}", own / median));
                    let count = entry.samples.len();
                    writeln!(f, "| {} | {median:.2} | {low:.2} | {high:.2} | {count} | {ratio} |", entry.name)?;
                }
                (failure, _) => {
                    let reason = failure.as_deref().unwrap_or("no samples").replace('\n', " ").replace('|', "\\|");
                    let short: String = reason.chars().take(300).collect();
                    writeln!(f, "| {} | {short} | | | | |", entry.name)?;
                }
            }
        }
        match self.verdict() {
            Some((target, Some(true))) => writeln!(f, "\nTarget {target}: **holds**"),
            Some((target, Some(false))) => writeln!(f, "\nTarget {target}: **does not hold**"),
            Some((target, None)) => writeln!(f, "\nTarget {target}: **not measured**"),
            None => Ok(()),
        }
    }
}

/// Says why a subject has no value.
fn reason(error: &anyhow::Error) -> String {
    if error.is::<NotInstalled>() { error.to_string() } else { format!("failed: {error:#}") }
}

/// All rows, and what machine they were taken on.
#[derive(Debug)]
pub struct Report {
    head: Vec<String>,
    rows: Vec<Row>,
}

impl Report {
    /// Notes the machine.
    pub fn new() -> Self {
        let first_line = |program: &str, arguments: &[&str]| {
            let output = Invocation::new(program).args(arguments).run().ok();
            output
                .and_then(|output| output.stdout().lines().next().map(str::to_owned))
                .unwrap_or("not installed".into())
        };
        let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpus = file("/proc/cpuinfo");
        let models: Vec<_> = cpus.lines().filter(|line| line.starts_with("model name")).collect();
        let model = models.first().and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown").to_owned();
        let head = vec![
            format!("processor: {} × {model}", models.len()),
            format!("kernel: {}", file("/proc/sys/kernel/osrelease").trim()),
            format!("load before: {}", file("/proc/loadavg").trim()),
            format!("runsc: {}", first_line("runsc", &["--version"])),
            format!("podman: {}", first_line("podman", &["--version"])),
            format!("bubblewrap: {}", first_line("bwrap", &["--version"])),
        ];
        Self { head, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn add(&mut self, row: Row) {
        eprintln!("{row}");
        self.rows.push(row);
    }

    /// Gives the median of a subject in a row that was added.
    pub fn median(&self, what: &str, name: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.what == what)?.median(name)
    }

    /// Tells whether every target was measured.
    pub fn is_complete(&self) -> bool {
        self.rows.iter().filter_map(Row::verdict).all(|(_, holds)| holds.is_some())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Taken with `make bench`, as an unprivileged user; subjects took turns.\n")?;
        self.head.iter().try_for_each(|line| writeln!(f, "- {line}"))?;
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        writeln!(f, "- load after: {}", load.trim())?;
        self.rows.iter().try_for_each(|row| write!(f, "{row}"))
    }
}
