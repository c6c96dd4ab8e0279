//! Runs writers that record the promises of durability that they get, and checks these promises after a crash.
//!
//! * [`writer`] writes to files of its own, makes new ones (some without a name first), renames them, replaces old
//!   ones, exchanges two, copies ranges, changes attributes, and fsyncs; every other writer does so in a subvolume and
//!   takes snapshots of it;
//! * [`ledger`] is the state that a writer expects: data promised by an fsync, and later changes, which may or may not
//!   be durable;
//! * [`event`] has the operations and the promises;
//! * [`diary`] is their sequence, with the position of each in the record of a disk;
//! * [`attributes`] are mode, owner, times, flags, extended attributes and the access control list;
//! * [`trees`] reads files on a mount, or in an image through the library;
//! * [`snapshots`] makes subvolumes.
//!
//! An operation is noted before its call, a promise after the call has returned. So at any moment, all changes that may
//! be on the disk were noted, and all noted promises must be kept.
//!
//! A writer fails with the error of a call that should have succeeded. Called by `kill` and `power_cut`.

mod attributes;
mod diary;
mod event;
mod ledger;
mod snapshots;
mod trees;
mod writer;

pub(super) use diary::{Clock, Diary, Replay};
pub(super) use ledger::Ledger;
pub(super) use trees::{Mounted, Tree};
pub(super) use writer::{End, Writer};

use crate::formats::Kind;
use anyhow::{Result, bail};
pub(super) use snapshots::Maker;
use std::fmt;
use std::path::Path;
use std::thread::{self, JoinHandle};
use testkit::Random;

/// Most events of a writer that are printed after a loss.
const HISTORY: usize = 400;

/// Running writers.
pub(super) struct Writers(Vec<JoinHandle<Result<Diary>>>);

impl Writers {
    /// Starts `count` writers in directories of their own below `top`; every other one is a subvolume if the format has
    /// them.
    ///
    /// # Errors
    /// The folders cannot be made.
    pub(super) fn start(
        kind: Kind,
        random: &mut Random,
        top: &Path,
        count: u64,
        end: &End,
        clock: impl Fn() -> Result<Clock>,
    ) -> Result<Self> {
        let mut writers = Vec::new();
        std::fs::create_dir(top.join("snapshots"))?;
        for index in 0..count {
            let own = top.join(folder(index));
            let is_subvolume = kind.has_subvolumes() && index % 2 == 1;
            let mut maker = is_subvolume.then(Maker::start).transpose()?;
            match &mut maker {
                Some(maker) => maker.make(&own)?,
                None => std::fs::create_dir(&own)?,
            }
            writers.push(Writer::new(&own, random.number(), end.clone(), Diary::new(clock()?), maker));
        }
        // The directories are promised too.
        rustix::fs::fsync(std::fs::File::open(top)?)?;
        let start = |writer: Writer| thread::Builder::new().spawn(move || writer.run());
        Ok(Self(writers.into_iter().map(start).collect::<std::io::Result<_>>()?))
    }

    /// Waits for all; returns their diaries.
    ///
    /// # Errors
    /// A call failed that should have succeeded.
    pub(super) fn join(self) -> Result<Vec<Diary>> {
        let mut diaries = Vec::new();
        for writer in self.0 {
            match writer.join() {
                Ok(diary) => diaries.push(diary?),
                Err(_) => bail!("a writer failed in a way of its own"),
            }
        }
        Ok(diaries)
    }
}

/// The folder of a writer.
fn folder(index: impl fmt::Display) -> String {
    format!("writer-{index}")
}

/// A broken promise.
#[derive(Debug)]
pub(super) struct Miss {
    writer: usize,
    who: &'static str,
    what: String,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, writer {}: {}", self.who, self.writer, self.what)
    }
}

/// The broken promises of all writers in `tree`, whose reader is called `who`.
///
/// # Errors
/// Something of the tree cannot be read.
pub(super) fn misses<'a>(
    ledgers: impl Iterator<Item = &'a Ledger>,
    tree: &dyn Tree,
    who: &'static str,
) -> Result<Vec<Miss>> {
    let mut all = Vec::new();
    for (writer, ledger) in ledgers.enumerate() {
        let found = ledger.misses(tree, Path::new(&folder(writer)))?;
        all.extend(found.into_iter().map(|what| Miss { writer, who, what }));
    }
    Ok(all)
}

/// Prints the last events of the writers with broken promises.
pub(super) fn print_histories<'a>(ledgers: impl Iterator<Item = &'a Ledger>, misses: &[Miss]) {
    for (writer, ledger) in ledgers.enumerate() {
        if misses.iter().any(|miss| miss.writer == writer) {
            let last = ledger.history.iter().rev().take(HISTORY);
            let lines: Vec<&str> = last.rev().map(String::as_str).collect();
            println!("last operations of writer {writer}:\n  {}", lines.join("\n  "));
        }
    }
}
