//! Runs a flush: allocates space side by side for many files, compresses, and writes in large pieces. Called by
//! `writeback` for each batch of jobs, and by `direct_write`.

#![expect(
    clippy::indexing_slicing,
    reason = "tasks name their owners by their place in the list that they were made from"
)]

use std::sync::Arc;

use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_store::ablation::allocates_apart;
use btrfs_store::{DataExtent, Hint};
use vfs::{PageCache, Run};

use super::batch::Batches;
use super::disk::give_up;
use super::job::Job;
use super::outgoing_data::{Outgoing, Source};
use super::plan::{EXTENT_BYTES_MAX, Step};
use super::{completion, encode};
use crate::error::{Error, Result};
use crate::extents::{FileExtent, Kind};
use crate::inode::{Compression, Core, Flight, Receipt};

/// Bytes of files that are compressed together, before they are allocated.
const WINDOW_BYTES: u64 = 4 << 20;

/// One task for the data of one file.
#[derive(Clone, Copy)]
pub(super) enum Task {
    Inline {
        len: u64,
    },
    InPlace {
        run: Run,
        old: FileExtent,
    },
    /// The run gets new space, uncompressed.
    Plain(Run),
    /// The run gets one new extent if it can be compressed.
    Piece(Run, Compression),
}

/// Writes and inserts the data of the jobs. A finished job has given up its flight; after a failure the remaining ones
/// have put everything back.
pub(super) fn run(core: &Core, jobs: &mut [Job<'_>]) -> Result<()> {
    let in_place = core.data.in_place.read();
    let written = jobs.iter_mut().try_for_each(|job| job.plan(core)).and_then(|()| write_jobs(core, jobs));
    drop(in_place);
    let mut result = written;
    for job in jobs {
        if result.is_ok() {
            result = completion::finish(core, job);
            if result.is_err() {
                // Items may point at the new extents already: they are not given back.
                job.out.made.fresh.clear();
            }
        }
        if let Err(error) = &result {
            restore(core, job, error);
        }
    }
    result
}

/// Writes the data of the jobs' plans.
fn write_jobs(core: &Core, jobs: &mut [Job<'_>]) -> Result<()> {
    let flights: Vec<Arc<Flight>> = jobs.iter().map(|job| Arc::clone(&job.flight)).collect();
    let sources: Vec<_> = flights.iter().map(|flight| flight.pages.as_ref().map(Source::Pages)).collect();
    let mut tasks = Vec::new();
    for (owner, job) in jobs.iter_mut().enumerate() {
        job.out.own_place = job.own_place();
        tasks.extend(tasks_of(owner, std::mem::take(&mut job.steps), job.out.compression));
    }
    let mut outs: Vec<&mut Outgoing> = jobs.iter_mut().map(|job| &mut job.out).collect();
    write(core, &sources, &mut outs, &tasks, Hint::default())?;
    jobs.iter().for_each(Job::note_growth);
    Ok(())
}

/// Allocates in the order of the tasks, preferably from `hint` on, and writes adjacent data together. No other thread
/// allocates for data meanwhile, so that the space of one flush is in few pieces, and its requests are not cut by
/// another thread's data; writing is concurrent. Tasks name the sources, and their results, by indices into the lists.
///
/// # Errors
/// `NoSpace`, the device's.
pub(super) fn write<'p>(
    core: &Core,
    sources: &'p [Option<Source<'p>>],
    outs: &mut [&mut Outgoing],
    tasks: &[(usize, Task)],
    hint: Hint,
) -> Result<()> {
    let mut writer = Writer { core, outs, sources, batches: Batches::default(), hint, plain: None };
    // While one window is written, the next is compressed.
    let mut before: (&[(usize, Task)], Vec<Encoded>) = (&[], Vec::new());
    let mut rest = tasks;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(window(rest));
        let (tasks, encoded) = std::mem::take(&mut before);
        let (encoded, placed) = encode_beside(core, sources, now, || writer.place_all(tasks, encoded));
        placed?;
        before = (now, encoded);
        rest = later;
    }
    writer.place_all(before.0, before.1)?;
    writer.end_plain()?;
    writer.batches.write_all(core, writer.outs)
}

/// The tasks of one plan, each with the index of its owner.
pub(super) fn tasks_of(owner: usize, steps: Vec<Step>, compression: Option<Compression>) -> Vec<(usize, Task)> {
    let mut tasks = Vec::new();
    for step in steps {
        match (step, compression) {
            (Step::Inline { len }, _) => tasks.push((owner, Task::Inline { len })),
            (Step::InPlace { run, old }, _) => tasks.push((owner, Task::InPlace { run, old })),
            (Step::Allocate(run), None) => tasks.push((owner, Task::Plain(run))),
            (Step::Allocate(run), Some(compression)) => {
                let starts = (run.start..run.end()).step_by(to_usize(encode::PIECE_BYTES));
                let piece = |start| Run { start, len: (run.end() - start).min(encode::PIECE_BYTES) };
                tasks.extend(starts.map(|start| (owner, Task::Piece(piece(start), compression))));
            }
        }
    }
    tasks
}

/// How many of the tasks are compressed together; at least one.
fn window(tasks: &[(usize, Task)]) -> usize {
    let mut bytes = 0;
    let fits = tasks.iter().take_while(|(_, task)| {
        let before = bytes;
        bytes += if let Task::Piece(run, _) = task { run.len } else { 0 };
        before < WINDOW_BYTES
    });
    fits.count()
}

/// The compressed bytes of a task; `None` where it is stored uncompressed.
type Encoded = Option<Vec<u8>>;

/// The compressed bytes of each task, and the result of `here`, which runs meanwhile.
fn encode_beside<B>(
    core: &Core,
    sources: &[Option<Source<'_>>],
    tasks: &[(usize, Task)],
    here: impl FnOnce() -> B,
) -> (Vec<Encoded>, B) {
    if !tasks.iter().any(|(_, task)| matches!(task, Task::Piece(..))) {
        return (vec![None; tasks.len()], here());
    }
    let sector = core.store.sizes().sector;
    let encode = |(owner, task): &(usize, Task)| match (task, sources.get(*owner)) {
        (Task::Piece(run, compression), Some(Some(source))) => encode::piece(*source, *run, *compression, sector),
        _ => None,
    };
    core.store.work_on_beside(tasks.iter().collect(), encode, here)
}

/// Writes data to disk, in the order of its tasks.
struct Writer<'c, 'p, 'o, 'a> {
    core: &'c Core,
    outs: &'o mut [&'a mut Outgoing],
    sources: &'p [Option<Source<'p>>],
    batches: Batches<'p>,
    /// Preferred place of the next extent.
    hint: Hint,
    /// Uncompressed bytes, not yet allocated: pieces that could not be compressed become one extent.
    plain: Option<(usize, Run)>,
}

impl Writer<'_, '_, '_, '_> {
    /// Places all tasks, and writes full requests.
    fn place_all(&mut self, tasks: &[(usize, Task)], encoded: Vec<Encoded>) -> Result<()> {
        let mut tasks = tasks.iter().zip(encoded);
        if allocates_apart() {
            return tasks.try_for_each(|((owner, task), encoded)| {
                self.place(*owner, *task, encoded)?;
                self.batches.write_full(self.core, self.outs)
            });
        }
        {
            let _together = self.core.data.laying_out.lock();
            tasks.try_for_each(|((owner, task), encoded)| self.place(*owner, *task, encoded))?;
            self.end_plain()?;
        }
        self.batches.write_full(self.core, self.outs)
    }

    fn place(&mut self, owner: usize, task: Task, encoded: Option<Vec<u8>>) -> Result<()> {
        let Some(source) = self.sources[owner] else { return Ok(()) };
        match (task, encoded) {
            (Task::Plain(run) | Task::Piece(run, _), None) => return self.add_plain(owner, run),
            (Task::Piece(run, compression), Some(bytes)) => {
                self.end_plain()?;
                return self.add_encoded(owner, run, compression, bytes);
            }
            (Task::Inline { len }, _) => self.outs[owner].set_inline(source, len),
            (Task::InPlace { run, old }, _) => {
                self.end_plain()?;
                self.outs[owner].add_in_place(run, &old);
                let place = (run, old.disk_at(run.start));
                self.batches.add_plain(self.core, self.outs, source, owner, place);
            }
            (Task::Plain(_), Some(_)) => debug_assert!(false, "only pieces are compressed"),
        }
        Ok(())
    }

    /// Adds `run` to the uncompressed bytes.
    fn add_plain(&mut self, owner: usize, run: Run) -> Result<()> {
        match &mut self.plain {
            Some((last, before)) if *last == owner && before.end() == run.start => before.len += run.len,
            _ => {
                self.end_plain()?;
                self.plain = Some((owner, run));
            }
        }
        Ok(())
    }

    /// Writes the collected uncompressed bytes to disk.
    fn end_plain(&mut self) -> Result<()> {
        let Some((owner, mut rest)) = self.plain.take() else { return Ok(()) };
        while rest.len > 0 {
            let extent = self.outs[owner].allocate(self.core, rest.len.min(EXTENT_BYTES_MAX), &mut self.hint)?;
            self.put_plain(owner, rest.start, extent);
            rest = Run { start: rest.start + extent.len, len: rest.len - extent.len };
        }
        Ok(())
    }

    fn put_plain(&mut self, owner: usize, start: u64, extent: DataExtent) {
        let Some(source) = self.sources[owner] else { return };
        self.outs[owner].add_fresh(FileExtent::whole(start, Kind::Regular, extent.at, extent.len));
        let run = Run { start, len: extent.len };
        self.batches.add_plain(self.core, self.outs, source, owner, (run, extent.at));
    }

    /// Writes `bytes` to disk, which are `run` compressed.
    fn add_encoded(&mut self, owner: usize, run: Run, compression: Compression, bytes: Vec<u8>) -> Result<()> {
        let len = to_u64(bytes.len());
        let extent = self.outs[owner].allocate(self.core, len, &mut self.hint)?;
        if extent.len < len {
            // Free space is in pieces: a compressed extent cannot be cut, the file's bytes can.
            self.put_plain(owner, run.start, extent);
            return self.add_plain(owner, Run { start: run.start + extent.len, len: run.len - extent.len });
        }
        let item = FileExtent::compressed(run.start, extent.at, len, run.len, compression.kind.to_raw());
        self.outs[owner].add_fresh(item);
        self.batches.add_encoded(self.core, self.outs, owner, (bytes, extent.at));
        Ok(())
    }
}

/// Puts back the data that a job could not write: the next flush tries again.
fn restore(core: &Core, job: &mut Job<'_>, error: &Error) {
    let mut layers = job.inode.data.inner.write();
    layers.flight = None;
    for extent in job.out.made.fresh.drain(..) {
        give_up(core, extent, error);
    }
    let flight = std::mem::take(&mut job.flight);
    let Ok(flight) = Arc::try_unwrap(flight) else {
        return;
    };
    if let Some(pages) = flight.pages {
        let dirty = layers.dirty.get_or_insert_with(|| {
            let sector = core.store.sizes().sector;
            PageCache::new(sector, Arc::clone(&core.data.budget))
        });
        dirty.put_older(pages);
    }
    let newer = std::mem::replace(&mut layers.pending, flight.pending);
    layers.pending.extend(newer);
    job.out.receipt = Receipt::default();
}
