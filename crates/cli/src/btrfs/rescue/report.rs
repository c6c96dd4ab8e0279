//! Collects the losses of a rescue for its report: files saved in part or not at all, and files whose contents may be
//! wrong or older. Prints them as text; `rescue` calls it, and puts them into its JSON.

use std::collections::HashSet;
use std::io::Write as _;

use anyhow::Result;
use serde::Serialize;
use spinney::btrfs::rescue::{LostFile, Older, View};

use crate::commands::human;
use crate::commands::names::{JsonPath, escaped};
use crate::commands::output::Output;

/// Most files and ranges named in a text report; JSON has all.
const SHOWN_MAX: usize = 1000;
const RANGES_SHOWN_MAX: usize = 8;

/// Losses of a rescue.
#[derive(Debug, Default, Serialize)]
pub(super) struct Losses {
    /// Files that were saved in part.
    part: Vec<Part>,
    /// Files of which only the name is left.
    lost: Vec<Lost>,
    /// Files with bytes whose checksums are lost; the bytes may be correct.
    unverified: Vec<Unverified>,
    /// Files from blocks that no tree refers to: they may be an older state of the file.
    maybe_older: Vec<JsonPath>,
    /// Inodes that may lack items, because no block with them was found.
    missing: Vec<Missing>,
    /// Subvolumes saved in an older state, because the last one is not found.
    older_subvolumes: Vec<OlderSubvolume>,
}

#[derive(Debug, Serialize)]
struct OlderSubvolume {
    subvolume: u64,
    generation: u64,
    last_generation: u64,
}

#[derive(Debug, Serialize)]
struct Part {
    #[serde(flatten)]
    path: JsonPath,
    subvolume: u64,
    inode: u64,
    /// For each range its first byte, and the byte after its last.
    lost_ranges: Vec<[u64; 2]>,
    lost_bytes: u64,
    /// Extents are missing at unknown offsets.
    lacks_extents: bool,
    /// Size, mode and times are defaults, because the inode item is lost.
    has_lost_inode: bool,
    #[serde(skip)]
    shown: String,
}

#[derive(Debug, Serialize)]
struct Lost {
    #[serde(flatten)]
    path: JsonPath,
    subvolume: u64,
    inode: u64,
    #[serde(skip)]
    shown: String,
}

#[derive(Debug, Serialize)]
struct Unverified {
    #[serde(flatten)]
    path: JsonPath,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Missing {
    subvolume: u64,
    inodes: [u64; 2],
}

impl Losses {
    /// Losses of a view so far.
    pub(super) fn of(view: &View) -> Self {
        let mut losses = Self::default();
        losses.add(view);
        let missing = view.missing().into_iter();
        losses.missing = missing
            .map(|missing| Missing { subvolume: missing.subvolume, inodes: [missing.inodes.0, missing.inodes.1] })
            .collect();
        let older = view.older().into_iter();
        losses.older_subvolumes = older
            .map(|Older { subvolume, generation, last }| OlderSubvolume {
                subvolume,
                generation,
                last_generation: last,
            })
            .collect();
        losses
    }

    /// Adds the losses of a view.
    pub(super) fn add(&mut self, view: &View) {
        for LostFile { path, subvolume, inode, loss } in view.losses() {
            let shown = escaped(&path).into_owned();
            if loss.is_gone {
                self.lost.push(Lost { path: JsonPath(path), subvolume, inode, shown });
                continue;
            }
            if loss.unverified_bytes > 0 {
                self.unverified.push(Unverified { path: JsonPath(path.clone()), bytes: loss.unverified_bytes });
            }
            if loss.is_part() {
                self.part.push(Part {
                    path: JsonPath(path),
                    subvolume,
                    inode,
                    lost_bytes: loss.lost_bytes(),
                    lost_ranges: loss.ranges.iter().map(|range| [range.start, range.end]).collect(),
                    lacks_extents: loss.lacks_extents,
                    has_lost_inode: loss.has_lost_inode,
                    shown,
                });
            } else if loss.may_be_older {
                self.maybe_older.push(JsonPath(path));
            }
        }
    }

    /// The number of copied entries that may be wrong or older, except those saved in part. If a subvolume is in an
    /// older state, all `entries` that were copied count, except those saved in part.
    pub(super) fn uncertain(&self, entries: u64) -> u64 {
        if !self.older_subvolumes.is_empty() {
            return entries.saturating_sub(self.count().0);
        }
        let part: HashSet<&[u8]> = self.part.iter().map(|part| part.path.0.as_slice()).collect();
        let unverified = self.unverified.iter().map(|file| file.path.0.as_slice());
        let older = self.maybe_older.iter().map(|path| path.0.as_slice());
        let all: HashSet<&[u8]> = unverified.chain(older).filter(|path| !part.contains(path)).collect();
        u64::try_from(all.len()).unwrap_or(u64::MAX)
    }

    /// True if nothing is lost or doubtful.
    pub(super) fn is_none(&self) -> bool {
        let is_certain = self.unverified.is_empty() && self.maybe_older.is_empty() && self.older_subvolumes.is_empty();
        self.count() == (0, 0) && is_certain && self.missing.is_empty()
    }

    /// Number of partial and of lost files.
    pub(super) fn count(&self) -> (u64, u64) {
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        (count(self.part.len()), count(self.lost.len()))
    }

    /// Prints all losses.
    pub(super) fn print(&self, out: &mut Output) -> Result<()> {
        for part in self.part.iter().take(SHOWN_MAX) {
            writeln!(out, "part: {}: {}", part.shown, lacks(part))?;
        }
        for lost in self.lost.iter().take(SHOWN_MAX) {
            writeln!(out, "lost: {}", lost.shown)?;
        }
        let more = self.part.len().saturating_sub(SHOWN_MAX) + self.lost.len().saturating_sub(SHOWN_MAX);
        if more > 0 {
            writeln!(out, "and {more} more; --json names all")?;
        }
        for missing in self.missing.iter().take(SHOWN_MAX) {
            let ([first, last], subvolume) = (missing.inodes, missing.subvolume);
            let last = if last == u64::MAX { "all that follow".to_owned() } else { last.to_string() };
            writeln!(
                out,
                "missing: subvolume {subvolume}: no block found for inodes {first} to {last}, their contents are lost"
            )?;
        }
        for older in self.older_subvolumes.iter().take(SHOWN_MAX) {
            let OlderSubvolume { subvolume, generation, last_generation } = older;
            if generation == last_generation {
                writeln!(
                    out,
                    "older: subvolume {subvolume}: there are several states of its last generation, {generation}, and \
                     the last of them cannot be determined: this may be an earlier one"
                )?;
                continue;
            }
            writeln!(
                out,
                "older: subvolume {subvolume}: this is its state of generation {generation} or before, and the last is \
                 {last_generation}: later changes are lost"
            )?;
        }
        for file in self.unverified.iter().take(SHOWN_MAX) {
            let (path, bytes) = (escaped(&file.path.0), human::bytes(file.bytes));
            writeln!(out, "unverified: {path}: the checksums of {bytes} are lost; these bytes may be wrong")?;
        }
        for path in self.maybe_older.iter().take(SHOWN_MAX) {
            let path = escaped(&path.0);
            writeln!(out, "older: {path}: from a block that no tree refers to; it may be an earlier state")?;
        }
        if self.unverified.len().max(self.maybe_older.len()) > SHOWN_MAX {
            writeln!(out, "not all of them are named here; --json names all")?;
        }
        Ok(())
    }
}

fn lacks(part: &Part) -> String {
    let mut texts: Vec<String> = Vec::new();
    if !part.lost_ranges.is_empty() {
        let ranges = part.lost_ranges.iter().take(RANGES_SHOWN_MAX);
        let ranges: Vec<String> = ranges.map(|[start, end]| format!("{start}-{}", end.saturating_sub(1))).collect();
        let more = part.lost_ranges.len().saturating_sub(RANGES_SHOWN_MAX);
        let more = if more > 0 { format!(" and {more} more ranges") } else { String::new() };
        texts.push(format!("{} lost, bytes {}{more}", human::bytes(part.lost_bytes), ranges.join(", ")));
    }
    if part.lacks_extents {
        texts.push("more extents are missing, at unknown offsets".to_owned());
    }
    if part.has_lost_inode {
        texts.push("its inode is lost: size, mode and times are guesses".to_owned());
    }
    texts.join("; ")
}
