//! Moves the contents of one block group elsewhere, a step at a time. Called by `run`, `shrink` and
//! `removal`.

use std::ops::ControlFlow;
use std::time::Instant;

use btrfs_disk::Logical;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_store::{Copied, Emptying};

use super::pace::Pace;
use crate::error::{CallerError, Result};
use crate::inode::{Core, FileType};
use crate::writeback;

/// Passes over one group: data that was being written into it when it was closed arrives meanwhile.
const ROUNDS_MAX: usize = 8;

/// A group that is being emptied. To be ended with [`Self::stop`], unless it is gone: else it stays closed until the
/// next open.
#[derive(Debug)]
#[must_use = "the group stays closed"]
pub(crate) struct Evacuation {
    emptying: Emptying,
    copied: Copied,
    rounds: usize,
    /// Data that was being written into the group is in the trees.
    is_settled: bool,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Bytes of data and tree blocks that were moved.
    pub(crate) moved_bytes: u64,
    /// Nothing was left, and the group has been given back.
    pub(crate) is_gone: bool,
}

impl Evacuation {
    /// Closes the block group at `start`. The caller holds no lock.
    ///
    /// # Errors
    /// `NoSpace` where the volume is too full to close the group; `Unsupported` without a free-space tree.
    pub(crate) fn begin(core: &Core, start: Logical) -> Result<Self> {
        let emptying = core.store.close_group(start)?;
        // Writers that were about to write in place in this group have finished; later ones see that they may not.
        drop(core.data.move_data());
        Ok(Self { emptying, copied: Copied::default(), rounds: 0, is_settled: false })
    }

    /// Moves a part of the group, and adjusts the pace by how long other operations had to wait. After a failure the
    /// group is to be stopped. The caller holds no lock.
    ///
    /// # Errors
    /// `NoSpace` where there is no room elsewhere, and `Busy` where new data kept arriving. Damage, I/O.
    pub(crate) fn step(&mut self, core: &Core, pace: &mut Pace) -> Result<Left> {
        if !self.is_settled {
            writeback::flush_all(core)?;
            self.is_settled = true;
        }
        if self.copied.is_empty() && self.emptying.flags().contains(BlockGroupFlags::DATA) {
            self.copied = core.store.copy_step(&self.emptying, pace.data_bytes())?;
        }
        let has_data = !self.copied.is_empty();
        if pace.is_served() {
            // The step begins with a commit, which all writers wait for: this commit leaves little to it.
            core.store.commit()?;
        }
        // Real time: other operations wait in it.
        let (moved, held) = {
            let _moving = has_data.then(|| core.data.move_data());
            let from = Instant::now();
            let moved = core.store.move_step(&mut self.emptying, &mut self.copied, pace.blocks(), &mut || {
                if has_data {
                    settle(core);
                }
            });
            (moved?, from.elapsed())
        };
        if pace.is_served() {
            // An fsync in the transaction of a move could not use the log.
            let from = Instant::now();
            core.store.commit()?;
            pace.note(held, from.elapsed());
        }
        let moved_bytes = moved.data_bytes.saturating_add(moved.block_bytes);
        if moved.is_all {
            if core.store.retire_group(&self.emptying)? {
                return Ok(Left { moved_bytes, is_gone: true });
            }
            self.rounds += 1;
            if self.rounds >= ROUNDS_MAX {
                return Err(CallerError::Busy.into());
            }
            core.store.restart(&mut self.emptying);
            self.is_settled = false;
        }
        Ok(Left { moved_bytes, is_gone: false })
    }

    /// Ends the emptying; the rest of the group stays there.
    pub(crate) fn stop(self, core: &Core) {
        core.store.forget_copies(self.copied);
        core.store.reopen_group(self.emptying);
    }
}

/// Empties the block group at `start`, at once; returns the bytes that were moved.
///
/// # Errors
/// As [`Evacuation::begin`] and [`Evacuation::step`]: finished moves stay.
pub(crate) fn empty(core: &Core, start: Logical) -> Result<u64> {
    let emptied = empty_unless(core, start, &mut |_| ControlFlow::Continue(()))?;
    Ok(emptied.unwrap_or(0))
}

/// As [`empty`]; `None` where `watch`, which gets the bytes that were moved, broke it off.
///
/// # Errors
/// As [`empty`].
pub(crate) fn empty_unless(
    core: &Core,
    start: Logical,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Option<u64>> {
    let mut leaving = Evacuation::begin(core, start)?;
    let mut pace = Pace::WHOLE;
    let mut moved = 0u64;
    loop {
        if watch(moved).is_break() {
            leaving.stop(core);
            return Ok(None);
        }
        match leaving.step(core, &mut pace) {
            Ok(left) => {
                moved = moved.saturating_add(left.moved_bytes);
                if left.is_gone {
                    return Ok(Some(moved));
                }
            }
            Err(error) => {
                leaving.stop(core);
                return Err(error);
            }
        }
    }
}

/// After a move: forgets cached data and maps of the old places, and waits for readers there. The caller keeps all
/// other threads from taking `editing` locks.
fn settle(core: &Core) {
    core.data.forget_decompressed();
    let forgotten = core.inodes.for_each(
        |inode| inode.kind() == FileType::File,
        |inode| {
            let layers = inode.data.inner.write();
            inode.data.forget_map();
            inode.data.settle(layers);
            Ok(())
        },
    );
    debug_assert!(forgotten.is_ok(), "forgetting does not fail");
}
