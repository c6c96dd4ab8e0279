//! Computes medians and ratios of measurements, prints them as a table, and appends the raw figures to the history
//! file. `main` uses it for `bench run`; the other benchmarks use its helpers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::row::{Measure, Row, System};

/// All measures of a run.
#[derive(Default)]
pub(crate) struct Results(BTreeMap<(Row, System), Vec<Measure>>);

impl Results {
    pub(crate) fn add(&mut self, row: &Row, system: System, measure: Measure) {
        self.0.entry((*row, system)).or_default().push(measure);
    }

    fn rates(&self, row: Row, system: System) -> Vec<f64> {
        let measures = self.0.get(&(row, system)).map_or(&[][..], Vec::as_slice);
        measures.iter().map(|measure| measure.rate(row.workload)).collect()
    }

    fn peak_mib(&self, row: Row) -> i64 {
        let measures = self.0.get(&(row, System::Spinney)).map_or(&[][..], Vec::as_slice);
        measures.iter().map(|measure| measure.peak_kib / 1024).max().unwrap_or(0)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.0.iter().map(|((row, system), measures)| Line { row: *row, system: *system, measures })
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.0.keys().map(|(row, _)| *row).collect();
        rows.dedup();
        rows
    }
}

/// The one in the middle; not a number when there is none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The systems in another order each round: a system after one of the kernel's pays for the memory that this one used,
/// so that it must not be the same one each time.
pub(crate) fn shuffled(systems: &[&'static str], round: usize) -> Vec<&'static str> {
    let mut systems = systems.to_vec();
    systems.sort_by_cached_key(|system| {
        let mut hasher = DefaultHasher::new();
        (system, round).hash(&mut hasher);
        hasher.finish()
    });
    systems
}

/// The smallest, the median and the largest, with some digits behind the point.
pub(crate) fn spread(values: &[f64], digits: usize) -> String {
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{smallest:.digits$} / **{:.digits$}** / {largest:.digits$}", median(values.to_vec()))
}

/// Side by side: the smallest, the median and the largest rate of each; the ratio is the median of the ratios of each
/// round, with the smallest and the largest.
pub(crate) fn markdown(results: &Results) -> String {
    let mut table = String::from("| workload | unit | Spinney | kernel | ratio | peak MiB |\n");
    table.push_str("|---|---|---|---|---|---|\n");
    for row in results.rows() {
        let (ours, theirs) = (results.rates(row, System::Spinney), results.rates(row, System::Kernel));
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
        let (ratio, ours, theirs) = (spread(&ratios, 2), spread(&ours, 0), spread(&theirs, 0));
        let (name, unit, peak) = (row.name(), row.workload.unit(), results.peak_mib(row));
        let _ = writeln!(table, "| {name} | {unit} | {ours} | {theirs} | {ratio} | {peak} |");
    }
    table.push_str(COMPARED);
    table
}

/// Explanation of the figures.
const COMPARED: &str = "
Smallest / **median** / largest of the rounds. Spinney: calls of the library in one process, on an image file. Kernel:
system calls on btrfs (`-m dup`, `ssd,nodiscard`), mounted from a loop device on the same file. `rootdir`: `spinney mkfs
--rootdir` and `mkfs.btrfs --rootdir`, neither discards. Trees are copied by the same threads on both sides, without
xattrs. What is written is random.
";

/// The raw figures of a row on a system.
#[derive(Serialize)]
pub(crate) struct Line<'a> {
    row: Row,
    system: System,
    measures: &'a [Measure],
}

/// Appends raw figures, each on a line of its own.
pub(crate) fn append(path: &Path, figures: impl IntoIterator<Item = impl Serialize>) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    for figure in figures {
        writeln!(file, "{}", serde_json::to_string(&figure)?)?;
    }
    Ok(())
}
