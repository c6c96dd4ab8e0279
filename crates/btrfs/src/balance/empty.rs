//! Everything out of one block group.

use std::ops::ControlFlow;

use btrfs_disk::Logical;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_store::{Copied, Emptying};

use crate::error::{CallerError, Result};
use crate::inode::{Core, FileType};
use crate::writeback;

/// Bytes of data that are copied before they are moved together.
const COPIED_BYTES: u64 = 32 << 20;

/// Tree blocks that are moved together, those on the way to them counted: as many as others can wait for.
const BLOCKS_TOGETHER: usize = 512;

/// Times that a group is gone through: what was on its way into it when it was closed arrives meanwhile.
const ROUNDS_MAX: usize = 8;

/// Moves everything out of the block group at `start`, and gives it back. `watch` hears of the bytes that each step
/// moved, and may stop it: then what is left stays, and the answer is `Break`. The caller holds no lock.
///
/// # Errors
/// `NoSpace` where there is no room elsewhere, and `Busy` where new data kept arriving: the rest stays. Damage, I/O.
pub(crate) fn empty_group(
    core: &Core,
    start: Logical,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let mut emptying = core.store.close_group(start)?;
    match move_out(core, &mut emptying, watch) {
        Ok(Some(end)) => {
            if end.is_break() {
                core.store.reopen_group(emptying);
            }
            Ok(end)
        }
        Ok(None) => {
            core.store.reopen_group(emptying);
            Err(CallerError::Busy.into())
        }
        Err(error) => {
            core.store.reopen_group(emptying);
            Err(error)
        }
    }
}

/// `None` where something was left after all rounds.
fn move_out(
    core: &Core,
    emptying: &mut Emptying,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Option<ControlFlow<()>>> {
    // Whoever was about to write in place in this group has done so; others hear that they may not.
    drop(core.data.move_data());
    for _ in 0..ROUNDS_MAX {
        // What has space in the group and is in no tree yet.
        writeback::flush_all(core)?;
        if go_through(core, emptying, watch)?.is_break() {
            return Ok(Some(ControlFlow::Break(())));
        }
        if core.store.retire_group(emptying)? {
            return Ok(Some(ControlFlow::Continue(())));
        }
        core.store.restart(emptying);
    }
    Ok(None)
}

/// Moves all that the trees know of in the group.
fn go_through(
    core: &Core,
    emptying: &mut Emptying,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let mut copied = Copied::default();
    let mut go_on = || -> Result<ControlFlow<()>> {
        loop {
            if copied.is_empty() && emptying.flags().contains(BlockGroupFlags::DATA) {
                copied = core.store.copy_step(emptying, COPIED_BYTES)?;
            }
            let has_data = !copied.is_empty();
            let moved = {
                let _moving = has_data.then(|| core.data.move_data());
                core.store.move_step(emptying, &mut copied, BLOCKS_TOGETHER, &mut || {
                    if has_data {
                        settle(core);
                    }
                })?
            };
            let bytes = moved.data_bytes.saturating_add(moved.block_bytes);
            if moved.is_all {
                return Ok(ControlFlow::Continue(()));
            }
            if watch(bytes).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    };
    let result = go_on();
    core.store.forget_copies(copied);
    result
}

/// Data is elsewhere from now on: what was remembered of its old places is forgotten, and who reads there is waited
/// for. The caller keeps everybody from `editing` locks.
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
