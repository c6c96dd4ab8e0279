//! `bench seeds` runs the five workloads that the mechanisms of this engine were published with, side by side on
//! several systems. `main` calls it.
//!
//! Each runs on Spinney's mount, as it is and with its mechanism done in the older way (the feature `ablation` of the
//! program: mount option `older=`), through the library ([`crate::library`]), and on the kernel's btrfs, ext4 and xfs,
//! all with their images in memory; workloads that sync also with images on a disk. All systems of a workload follow
//! each other in every round, so that load on the machine affects all of them. Systems and workloads are those of
//! `bench mount`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use spinney_cli::picture::{Anchor, Svg, write};

use crate::library::SYSTEM as LIBRARY;
use crate::mounts::{self, Medium, Run};
use crate::table::{append, median, shuffled, spread};

/// Options of the benchmark.
#[derive(Args)]
#[command(after_help = "\
cargo xtask bench builds what it needs, and runs this:
  cargo xtask bench seeds --quick                 a look, in a quarter of an hour
  cargo xtask bench seeds --history bench/history/seeds.jsonl --chart docs/pictures/seeds.svg")]
pub(crate) struct Options {
    /// One round of short runs.
    #[arg(long)]
    quick: bool,
    /// Rounds; five, or one with --quick.
    #[arg(long)]
    rounds: Option<usize>,
    /// Only workloads whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// A picture of the ratios, as SVG.
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    #[command(flatten)]
    place: mounts::Place,
}

/// Fewest rounds of which a median hides the order of the systems within one.
const ROUNDS_LEVEL: usize = 3;

/// Seconds of a run that runs for a time, with --quick.
const QUICK_SECONDS: &str = "4";

/// One of the workloads.
struct Seed {
    /// Name of its row.
    name: &'static str,
    workload: &'static str,
    medium: Medium,
    about: &'static str,
    /// Spinney as it is, Spinney in older ways, others.
    systems: &'static [&'static str],
    /// A smaller figure is a better one.
    is_time: bool,
    /// The ratio to be reached, of Spinney as it is to the kernel's btrfs, if there is one; times count the other way
    /// round.
    least: Option<f64>,
}

/// With the snapshots of this option; the others have no use for it.
const SNAPSHOTS: &str = "spinney-user_subvol_ioctls";

const SEEDS: &[Seed] = &[
    Seed {
        name: "fsync_randwrite",
        workload: "fsync_randwrite",
        medium: Medium::Memory,
        about: "8 writers, fsync after each write",
        systems: &[
            "spinney",
            "spinney-older=items-in-leaf",
            "spinney-older=commit-each-sync",
            LIBRARY,
            "btrfs",
            "ext4",
            "xfs",
        ],
        is_time: false,
        least: Some(3.0),
    },
    Seed {
        name: "snap_randwrite",
        workload: "snap_randwrite",
        medium: Medium::Memory,
        about: "a snapshot, then 4 writers of 4 KiB",
        systems: &[SNAPSHOTS, "spinney-user_subvol_ioctls,writeback", LIBRARY, "btrfs"],
        is_time: false,
        least: Some(2.0),
    },
    Seed {
        name: "snap_randwrite_dio",
        workload: "snap_randwrite_dio",
        medium: Medium::Memory,
        about: "the same, past the page cache",
        systems: &[SNAPSHOTS, "btrfs"],
        is_time: false,
        least: Some(2.0),
    },
    Seed {
        name: "trees",
        workload: "trees",
        medium: Medium::Memory,
        about: "three kernel trees unpacked",
        systems: &["spinney", "spinney-nodatasum", "spinney-max_inline=0", LIBRARY, "btrfs", "ext4", "xfs"],
        is_time: false,
        least: Some(0.5),
    },
    Seed {
        name: "fsmark",
        workload: "fsmark",
        medium: Medium::Memory,
        about: "16 threads, 512 KiB files",
        systems: &["spinney", "spinney-older=apart", "spinney-writeback", LIBRARY, "btrfs", "ext4", "xfs"],
        is_time: true,
        least: Some(1.0 / 0.6),
    },
    Seed {
        name: "uring_randwrite",
        workload: "uring_randwrite",
        medium: Medium::Memory,
        about: "16 jobs, io_uring, direct, copy on write",
        systems: &["spinney", LIBRARY, "btrfs", "ext4", "xfs"],
        is_time: false,
        least: Some(3.0),
    },
    Seed {
        name: "uring_randwrite_nocow",
        workload: "uring_randwrite_nocow",
        medium: Medium::Memory,
        about: "the same, in place",
        systems: &["spinney", "spinney-older=collect-csums", LIBRARY, "btrfs"],
        is_time: false,
        least: Some(1.5),
    },
    Seed {
        name: "fsync_randwrite, disk",
        workload: "fsync_randwrite",
        medium: Medium::Disk,
        about: "8 writers, fsync after each write, on a disk",
        systems: &["spinney", "spinney-older=commit-each-sync", LIBRARY, "btrfs", "ext4", "xfs"],
        is_time: false,
        least: None,
    },
    Seed {
        name: "fsmark, disk",
        workload: "fsmark",
        medium: Medium::Disk,
        about: "16 threads, 512 KiB files, on a disk",
        systems: &["spinney", "spinney-older=apart", LIBRARY, "btrfs", "ext4", "xfs"],
        is_time: true,
        least: None,
    },
];

/// Figures by workload and system.
type Figures = BTreeMap<(&'static str, &'static str), Vec<f64>>;

/// Runs everything, and returns a table, with the goals met and missed.
pub(crate) fn run(options: &Options) -> Result<String> {
    let seeds: Vec<&Seed> = SEEDS.iter().filter(|seed| seed.name.contains(&options.only)).collect();
    for seed in &seeds {
        mounts::check_tools(&options.place, &[seed.workload], seed.systems)?;
    }
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 5 });
    let seconds = options.quick.then_some(QUICK_SECONDS);
    let (mut figures, mut units, mut failed) = (Figures::new(), BTreeMap::new(), Vec::new());
    for round in 0..rounds {
        for seed in &seeds {
            // Which comes first finds memory that the machine may have given away: with a few rounds that is another
            // one each time and no median shows it, with fewer a run that does not count takes it upon itself.
            if rounds < ROUNDS_LEVEL
                && let Some(first) = seed.systems.first()
                && let Err(error) = mounts::run_one(&options.place, seed.medium, first, seed.workload, Some("1"))
            {
                eprintln!("round {round}: {:<22} {first:<32} to warm up: {error:#}", seed.name);
            }
            for system in shuffled(seed.systems, round) {
                match mounts::run_one(&options.place, seed.medium, system, seed.workload, seconds) {
                    Ok(Run { value, unit, .. }) => {
                        eprintln!("round {round}: {:<22} {system:<32} {value} {unit}", seed.name);
                        units.insert(seed.name, unit);
                        figures.entry((seed.name, system)).or_default().push(value);
                    }
                    Err(error) => {
                        eprintln!("round {round}: {:<22} {system:<32} FAILED: {error:#}", seed.name);
                        failed.push(format!("{} on {system}", seed.name));
                    }
                }
            }
        }
    }
    if let Some(path) = &options.chart {
        write(path, &chart(&seeds, &figures))?;
    }
    let mut text = table(&seeds, &figures, &units);
    text.push_str(&aims(&seeds, &figures));
    if !failed.is_empty() {
        let _ = writeln!(text, "\nfailed: {}", failed.join(", "));
    }
    if let Some(path) = options.place.history() {
        append(path, [History { quick: options.quick, rounds, figures: flat(&figures) }])?;
    }
    Ok(text)
}

/// One run of everything, as it is kept.
#[derive(serde::Serialize)]
struct History<'a> {
    quick: bool,
    rounds: usize,
    figures: Vec<(&'a str, &'a str, &'a [f64])>,
}

fn flat(figures: &Figures) -> Vec<(&str, &str, &[f64])> {
    figures.iter().map(|((workload, system), values)| (*workload, *system, values.as_slice())).collect()
}

/// How much better `system` is than `other`; not a number where one has no figure.
fn ratio(seed: &Seed, figures: &Figures, system: &str, other: &str) -> f64 {
    let of = |name: &str| {
        let found = figures.iter().find(|((workload, system), _)| *workload == seed.name && *system == name);
        found.map_or(f64::NAN, |(_, values)| median(values.clone()))
    };
    if seed.is_time { of(other) / of(system) } else { of(system) / of(other) }
}

/// Smallest, median and largest of each system, and its ratio to the kernel's btrfs.
fn table(seeds: &[&Seed], figures: &Figures, units: &BTreeMap<&str, String>) -> String {
    let mut table = String::from("| workload | system | unit | smallest / **median** / largest | times btrfs |\n");
    table.push_str("|---|---|---|---|---|\n");
    for seed in seeds {
        let unit = units.get(seed.name).map_or("", String::as_str);
        for system in seed.systems {
            let Some(values) = figures.get(&(seed.name, *system)) else { continue };
            let digits = if median(values.clone()) < 100.0 { 2 } else { 0 };
            let (name, values, ratio) = (seed.name, spread(values, digits), ratio(seed, figures, system, "btrfs"));
            let _ = writeln!(table, "| {name} | {system} | {unit} | {values} | {ratio:.2} |");
        }
    }
    table
}

/// A line for each aim, and for each older way.
fn aims(seeds: &[&Seed], figures: &Figures) -> String {
    let mut text = String::from("\n");
    for seed in seeds {
        let Some(ours) = seed.systems.first() else { continue };
        let found = ratio(seed, figures, ours, "btrfs");
        let word = |least| if found >= least { "holds" } else { "DOES NOT HOLD" };
        let aim = seed.least.map_or_else(String::new, |least| format!(", aimed at {least:.2}: {}", word(least)));
        let _ = writeln!(text, "{}: {found:.2} x btrfs{aim}", seed.name);
        for older in seed.systems.iter().filter(|system| system.contains("older=")) {
            let found = ratio(seed, figures, ours, older);
            let _ = writeln!(text, "{}: {found:.2} x {older}", seed.name);
        }
    }
    text
}

const BAR_PIXELS: u32 = 14;
const LEFT: f64 = 150.0;
/// Pixels of the longest bar.
const LONGEST: f64 = 640.0;

/// A bar of the picture: the system's name there, its colour, and how many times as fast as the kernel's btrfs it is.
type Bar<'a> = (&'a str, &'static str, f64);

/// How the picture calls a system, and the colour of its bar; `None` for a variant, which only the table has.
fn label(system: &str) -> Option<(&str, &'static str)> {
    match system {
        "spinney" | SNAPSHOTS => Some(("Spinney, mounted", "#31a354")),
        LIBRARY => Some(("Spinney, library", "#a1d99b")),
        "btrfs" => Some(("btrfs, kernel", "#3182bd")),
        _ if system.starts_with("spinney") => None,
        other => Some((other, "#9ecae1")),
    }
}

/// A bar for each system: how many times as fast as the kernel's btrfs.
fn chart(seeds: &[&Seed], figures: &Figures) -> String {
    let bar = f64::from(BAR_PIXELS);
    let drawn: Vec<(&str, Vec<Bar<'_>>)> = seeds
        .iter()
        .map(|seed| {
            let bars = seed.systems.iter().filter_map(|system| {
                let (name, fill) = label(system)?;
                let found = ratio(seed, figures, system, "btrfs");
                found.is_finite().then_some((name, fill, found))
            });
            (seed.about, bars.collect())
        })
        .collect();
    let most = drawn.iter().flat_map(|(_, bars)| bars).map(|(.., found)| *found).fold(1.0, f64::max);
    let one = LONGEST / most;
    let rows: usize = drawn.iter().map(|(_, bars)| bars.len() + 2).sum();
    let height = u32::try_from(rows).unwrap_or(0) * BAR_PIXELS + 60;
    let mut svg = Svg::new(860, height);
    svg.title((12.0, 24.0), "Times as fast as the kernel's btrfs (longer is better)");
    let mut y = 48.0;
    for (about, bars) in &drawn {
        svg.text((12.0, y), Anchor::Start, about);
        y += bar;
        for (name, fill, found) in bars {
            svg.text((LEFT - 8.0, y), Anchor::End, name);
            svg.rect((LEFT, y - 10.0), (found * one, bar - 3.0), fill, "");
            svg.text((LEFT + found * one + 6.0, y), Anchor::Start, &format!("{found:.2}"));
            y += bar;
        }
        y += bar;
    }
    svg.rule((LEFT + one, 40.0), (LEFT + one, f64::from(height) - 20.0));
    svg.done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_the_other_way_round() {
        let mut figures = Figures::new();
        for (workload, ours, theirs) in [("fsmark", 2.0, 4.0), ("uring_randwrite", 6.0, 2.0)] {
            figures.insert((workload, "spinney"), vec![ours, 100.0, 0.0]);
            figures.insert((workload, "btrfs"), vec![theirs]);
        }
        let seeds: Vec<&Seed> = SEEDS.iter().collect();
        let text = aims(&seeds, &figures);
        assert!(text.contains("fsmark: 2.00 x btrfs, aimed at 1.67: holds"), "{text}");
        assert!(text.contains("uring_randwrite: 3.00 x btrfs, aimed at 3.00: holds"), "{text}");
        assert!(text.contains("trees: NaN x btrfs, aimed at 0.50: DOES NOT HOLD"), "{text}");
        assert!(chart(&seeds, &figures).contains("3.00"));
        assert!(
            table(&seeds, &figures, &BTreeMap::new())
                .contains("| fsmark | spinney |  | 0.00 / **2.00** / 100.00 | 2.00 |")
        );
    }
}
