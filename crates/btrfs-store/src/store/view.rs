//! Opens views: reading one committed state while others write. Used by scrub, send and checks of a mounted volume.

use std::sync::Arc;

use blockdev::{Device, Op};
use btrfs_disk::Generation;
use btrfs_pool::FsSuper;

use super::Store;
use super::scrub::BadSuperblock;
use crate::options::StoreOptions;
use crate::txn::View;
use crate::{Result, bootstrap};

/// Why a held state cannot be read any longer.
const GIVEN_UP: &str = "the earlier state that was being read was given up: the volume needed its space";
/// Share of the store's cache size that the cache of a view may use.
const CACHE_SHARE: usize = 4;

impl Store {
    /// The states that the superblock leads to, the newest first. Blocks of earlier ones may have been overwritten.
    #[must_use]
    pub fn generations(&self) -> Vec<Generation> {
        bootstrap::generations(&self.superblock())
    }

    /// A view of the newest durable state: blocks and extents freed while it lives are held. Data overwritten in place
    /// (`NODATACOW`) is read in its present form. If a reservation needs the held space, the view is given up, and
    /// reads through it fail.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn committed_view(&self) -> Result<Self> {
        Ok(self.view(None)?.0)
    }

    /// Keeps the newest durable state from being overwritten, for a reader that opens the device by itself. Where other
    /// operations need the held space, it is given up, as a view is.
    pub fn hold_committed(&self) -> HeldState {
        let (view, superblock) = self.0.open_view();
        HeldState { view, store: self.clone(), superblock }
    }

    /// As [`Self::committed_view`], of the state that an earlier transaction committed. Blocks that the newest durable
    /// state shares stay readable; others may be overwritten at any time, and then reading them fails as damage does.
    ///
    /// # Errors
    /// `Unsupported` for a state that the superblock does not lead to; as [`Self::open`].
    pub fn earlier_view(&self, generation: Generation) -> Result<Self> {
        Ok(self.view(Some(generation))?.0)
    }

    pub(super) fn view(&self, generation: Option<Generation>) -> Result<(Self, Arc<View>)> {
        let engine = &self.0;
        let state = Arc::new(self.hold_committed());
        let (view, mut superblock) = (Arc::clone(&state.view), state.superblock.clone());
        let options = StoreOptions {
            read_only: true,
            cache_bytes: engine.options.cache_bytes / CACHE_SHARE,
            generation: None,
            superblock: None,
            ..engine.options.clone()
        };
        if let Some(wanted) = generation {
            bootstrap::use_generation(&mut superblock, wanted, &options)?;
        }
        // When the last of the devices is dropped, the view ends.
        let wrap = |device| -> Arc<dyn Device> { Arc::new(ViewDevice { device, state: Arc::clone(&state) }) };
        let pool = engine.pool().view(&superblock, wrap)?;
        let store = Self(Arc::new(bootstrap::start(pool, superblock, &options)?));
        Ok((store, view))
    }
}

/// A committed state whose blocks and extents are held, for a reader of the device that is not this store: for as long
/// as this lives and [`Self::is_whole`].
#[derive(Debug)]
#[must_use = "the state is free to be written over when this is dropped"]
pub struct HeldState {
    view: Arc<View>,
    store: Store,
    superblock: FsSuper,
}

impl HeldState {
    /// The superblock of the state, without its log: later commits overwrite a log.
    #[must_use]
    pub fn superblock(&self) -> &FsSuper {
        &self.superblock
    }

    /// The superblock copies on the devices that differ from the last commit's.
    ///
    /// # Errors
    /// As [`Store::scrub_superblocks`].
    pub fn bad_superblocks(&self) -> Result<Vec<BadSuperblock>> {
        Ok(self.store.scrub_superblocks(false)?.1)
    }

    /// True while nothing of the state can have been overwritten, and the volume has the same size. Bytes read before
    /// the call are of the state then.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let now = self.store.0.log.lock_superblock().fields().total_bytes;
        self.view.is_whole() && now == self.superblock.fields().total_bytes
    }
}

impl Drop for HeldState {
    fn drop(&mut self) {
        self.store.0.close_view(&self.view);
    }
}

/// A device on which an earlier state is read, while that state is held.
#[derive(Debug)]
struct ViewDevice {
    device: Arc<dyn Device>,
    state: Arc<HeldState>,
}

impl ViewDevice {
    /// Bytes read before this call are of the viewed state.
    fn check(&self) -> blockdev::Result<()> {
        match self.state.view.is_whole() {
            true => Ok(()),
            false => Err(blockdev::Error::Gone { device: self.name().to_owned(), reason: GIVEN_UP.into() }),
        }
    }

    fn refuse(&self, op: Op) -> blockdev::Result<()> {
        Err(blockdev::Error::ReadOnly { op, device: self.name().to_owned() })
    }
}

impl Device for ViewDevice {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.device.read_at(offset, buf)?;
        self.check()
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.device.will_read(offset, len);
    }

    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> blockdev::Result<()> {
        self.device.read_parts_at(offset, parts)?;
        self.check()
    }

    fn write_at(&self, _offset: u64, _parts: &[&[u8]]) -> blockdev::Result<()> {
        self.refuse(Op::Write)
    }

    fn flush(&self) -> blockdev::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> blockdev::Result<()> {
        self.refuse(Op::Discard)
    }

    fn grow(&self, _size_bytes: u64) -> blockdev::Result<()> {
        self.refuse(Op::Grow)
    }
}
