//! Collects bytes that become adjacent on disk into large writes. Called by `run` and `direct_write`.

#![expect(
    clippy::indexing_slicing,
    reason = "owners are indices into the list of outgoing files that a batch was made from"
)]

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, to_usize};
use vfs::Run;

use super::disk::{Outbound, is_in_one_group, write_and_sum};
use super::outgoing_data::{Outgoing, Source};
use crate::error::Result;
use crate::inode::Core;

/// Bytes after which a batch is written.
const WRITE_BYTES: u64 = 1 << 20;

/// Data with a place on disk that is about to be written there.
#[derive(Default)]
pub(super) struct Batches<'p> {
    /// The one that is being collected.
    last: Batch<'p>,
    /// Those before it.
    full: Vec<Batch<'p>>,
}

/// Bytes that are adjacent on disk.
#[derive(Default)]
struct Batch<'p> {
    at: u64,
    len: u64,
    parts: Vec<Part<'p>>,
    /// The owner of each stretch of the batch, with its length.
    owners: Vec<(usize, u64)>,
    wants_csums: bool,
}

/// Bytes as they will be on disk.
enum Part<'p> {
    Plain(&'p [u8]),
    Encoded(Vec<u8>),
}

impl Part<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Encoded(bytes) => bytes,
        }
    }
}

impl<'p> Batches<'p> {
    /// Adds the bytes of `run` as they are, which belong to `owner` and go to `at`.
    pub(super) fn add_plain(
        &mut self,
        core: &Core,
        outs: &[&mut Outgoing],
        source: Source<'p>,
        owner: usize,
        (run, at): (Run, Logical),
    ) {
        let mut run = run;
        let mut at = at;
        while run.len > 0 {
            self.make_room(core, at, run.len);
            let len = run.len.min(WRITE_BYTES.saturating_sub(self.last.len));
            self.last.parts.extend(source.parts(run.start..run.start + len).map(Part::Plain));
            self.last.grow(outs, owner, len);
            run = Run { start: run.start + len, len: run.len - len };
            at = Logical(at.0 + len);
        }
    }

    /// Adds `bytes`, whole sectors, which belong to `owner` and go to `at`.
    pub(super) fn add_encoded(
        &mut self,
        core: &Core,
        outs: &[&mut Outgoing],
        owner: usize,
        (bytes, at): (Vec<u8>, Logical),
    ) {
        let len = to_u64(bytes.len());
        debug_assert!(len.is_multiple_of(u64::from(core.store.sizes().sector)), "the disk takes whole sectors");
        self.make_room(core, at, len);
        self.last.parts.push(Part::Encoded(bytes));
        self.last.grow(outs, owner, len);
    }

    /// Begins a new batch, unless the last one is short and `len` bytes at `at` can be written together with it.
    fn make_room(&mut self, core: &Core, at: Logical, len: u64) {
        let Batch { at: start, len: held, .. } = self.last;
        let is_adjacent =
            start.saturating_add(held) == at.0 && is_in_one_group(core, Logical(start), held.saturating_add(len));
        if held >= WRITE_BYTES || !is_adjacent {
            let before = std::mem::replace(&mut self.last, Batch { at: at.0, ..Batch::default() });
            self.full.extend((before.len > 0).then_some(before));
        }
    }

    /// Writes the batches that are full, as many at a time as the devices take, and gives each owner the checksums of
    /// its part.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn write_full(&mut self, core: &Core, outs: &mut [&mut Outgoing]) -> Result<()> {
        let depth = core.store.queue_depth().max(1);
        std::mem::take(&mut self.full).chunks(depth).try_for_each(|batches| write(core, batches, outs))
    }

    /// As [`Self::write_full`], with the last one.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn write_all(&mut self, core: &Core, outs: &mut [&mut Outgoing]) -> Result<()> {
        let last = std::mem::take(&mut self.last);
        self.full.extend((last.len > 0).then_some(last));
        self.write_full(core, outs)
    }
}

impl Batch<'_> {
    fn grow(&mut self, outs: &[&mut Outgoing], owner: usize, len: u64) {
        self.owners.push((owner, len));
        self.len += len;
        self.wants_csums |= outs[owner].wants_csums;
    }

    /// Gives each owner the checksums of its part.
    fn hand_out(&self, core: &Core, csums: &[u8], outs: &mut [&mut Outgoing]) {
        let (sector, csum) = (u64::from(core.store.sizes().sector), core.store.sizes().csum);
        let mut offset = 0;
        for (owner, len) in &self.owners {
            let out = &mut outs[*owner];
            if out.wants_csums {
                let from = to_usize(offset / sector) * csum;
                let to = to_usize((offset + len) / sector) * csum;
                out.add_csums(core, self.at + offset, csums.get(from..to).unwrap_or_default());
            }
            offset += len;
        }
    }
}

/// Writes batches at the same time.
fn write(core: &Core, batches: &[Batch<'_>], outs: &mut [&mut Outgoing]) -> Result<()> {
    let parts: Vec<Vec<&[u8]>> = batches.iter().map(|batch| batch.parts.iter().map(Part::bytes).collect()).collect();
    let outbound: Vec<Outbound<'_>> = std::iter::zip(batches, &parts)
        .map(|(batch, parts)| Outbound { at: Logical(batch.at), parts, len: batch.len, wants_csums: batch.wants_csums })
        .collect();
    let csums = write_and_sum(core, &outbound)?;
    std::iter::zip(batches, csums).for_each(|(batch, csums)| batch.hand_out(core, &csums, outs));
    Ok(())
}
