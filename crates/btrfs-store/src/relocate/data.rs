//! Copies data extents to new places while nothing writes to them. Called by `store/relocation`.
//!
//! Data is never overwritten in place, except in NOCOW files, and the caller has stopped those writes in this group.

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, to_usize};

use super::DataMove;
use crate::Result;
use crate::txn::Engine;
use btrfs_pool::{DataRun, Expect};

/// Bytes that are copied at a time.
const COPIED_TOGETHER: usize = 1 << 20;

/// Copies extents to their new places; data with checksums is verified.
///
/// # Errors
/// `NoGoodCopy` where no copy is as its checksums say; those of the devices.
pub(crate) fn copy_extents(engine: &Engine, moves: &[DataMove]) -> Result<()> {
    let mut buffer = vec![0; COPIED_TOGETHER];
    moves.iter().try_for_each(|moved| copy(engine, moved, &mut buffer))
}

fn copy(engine: &Engine, moved: &DataMove, buffer: &mut [u8]) -> Result<()> {
    let sector = u64::from(engine.reader.format.sectorsize);
    let csums = engine.csum_tree().lookup(moved.from, moved.len)?;
    let total = to_usize(moved.len / sector);
    let mut index = 0;
    while index < total {
        // A run of sectors that all have checksums, or all have none.
        let has_csum = csums.get(index).is_some();
        let most = buffer.len() / to_usize(sector);
        let same = (index..total.min(index + most)).take_while(|at| csums.get(*at).is_some() == has_csum).count();
        let offset = to_u64(index).saturating_mul(sector);
        let (part, _) = buffer.split_at_mut(same * to_usize(sector));
        let expected: Vec<u8> = (index..index + same).filter_map(|at| csums.get(at)).flatten().copied().collect();
        let expect = if has_csum { Expect::Csums(&expected) } else { Expect::Unchecked };
        engine.pool().read(Logical(moved.from.0.saturating_add(offset)), part, expect)?;
        let run = DataRun { at: Logical(moved.to.0.saturating_add(offset)), parts: &[part] };
        engine
            .with_room(|| Ok(engine.pool().write(&[run])?))
            .inspect_err(|error| engine.health.poison_unless_full(error))?;
        index += same;
    }
    Ok(())
}
