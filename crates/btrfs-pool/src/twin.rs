//! Has another device take the place of one while the pool is in use, and goes on without a device that fails. The
//! store's rebuild calls the first, the pool's writes the second.
//!
//! The new device is a *twin* at first: it gets each write that the old one gets. The rest is copied to it meanwhile.
//! Then it becomes the member. A failure of the twin ends the rebuild, and nothing else.
//!
//! ```text
//! begin_twin -> writes go to both, the caller copies -> adopt_twin: reads and writes go to the new one
//!                                                    -> end_twin: all is as before
//! ```
//!
//! A device that a write or flush fails on, or whose file was truncated, is given up if each block group that is in use
//! has a copy of everything on others; empty ones without a copy are closed. It counts as missing from then on: it
//! misses writes, so it must not be read before it was brought up to date, and the caller ([`Pool::losses`]) has to
//! commit before it promises anything, so that the device is recognised by its generation.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use blockdev::Device;
use blockdev::queue::Failed;
use btrfs_disk::{DevId, Uuid};

use super::Pool;
use super::chunk::{Chunk, Stripe};
use super::devices::PoolDevice;
use crate::error::{Error, Result};
use crate::locks::{Mutex, Rank};

/// A device that gets what another one gets.
#[derive(Debug)]
pub(super) struct Twin {
    id: DevId,
    device: Arc<dyn Device>,
    /// The first error of a write to it.
    failure: Mutex<Option<blockdev::Error>>,
}

impl Twin {
    pub(super) fn id(&self) -> DevId {
        self.id
    }

    pub(super) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    pub(super) fn note(&self, failed: Vec<Failed>) {
        if let Some(Failed { error, .. }) = failed.into_iter().next() {
            self.failure.lock().get_or_insert(error);
        }
    }
}

/// The result of adopting a twin.
#[derive(Clone, Debug)]
pub struct Twinned {
    /// The device that was there before; `None` for a missing one.
    pub before: Option<Arc<dyn Device>>,
}

impl Pool {
    /// Has `device` get each write that begins from now on and that device `id` gets, or would get if it is missing.
    ///
    /// # Errors
    /// `Unsupported` while another device has a twin, and for a device that the pool does not have, or a seed.
    pub fn begin_twin(&self, id: DevId, device: Arc<dyn Device>) -> Result<()> {
        self.check_writable()?;
        let known = self.devices().get(id).filter(|known| known.seed_fsid().is_none());
        known.ok_or_else(|| Error::unsupported(format!("another device for device {id}")))?;
        let mut twin = self.twin.write();
        if twin.is_some() {
            return Err(Error::unsupported("another device for two devices at the same time"));
        }
        *twin = Some(Twin { id, device, failure: Mutex::new(Rank::Device, None) });
        Ok(())
    }

    /// Ends the part that a twin takes; nothing where there is none.
    pub fn end_twin(&self) {
        *self.twin.write() = None;
    }

    /// Fails if a write to the twin failed.
    ///
    /// # Errors
    /// The first error.
    pub fn check_twin(&self) -> Result<()> {
        let twin = self.twin.read();
        let failure = twin.as_ref().and_then(|twin| twin.failure.lock().clone());
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Makes the twin the member. All that belongs on it has to be there.
    ///
    /// # Errors
    /// A failed write to it; then all is as before.
    pub fn adopt_twin(&self) -> Result<Twinned> {
        let mut place = self.twin.write();
        let Some(twin) = place.take() else { return Err(Error::unsupported("a twin that has ended")) };
        let failure = twin.failure.lock().take();
        if let Some(error) = failure {
            return Err(error.into());
        }
        let old = self.device(twin.id);
        let before = (!old.is_missing()).then(|| Arc::clone(old.device()));
        self.devices().add(PoolDevice::new(twin.id, old.uuid(), twin.device, old.total_bytes()));
        old.leave();
        Ok(Twinned { before })
    }

    /// Adds a device that has no chunk yet.
    pub fn add_device(&self, id: DevId, uuid: Uuid, device: Arc<dyn Device>, total_bytes: u64) {
        self.devices().add(PoolDevice::new(id, uuid, device, total_bytes));
    }

    /// Takes out a device that no chunk has a part of.
    pub fn forget_device(&self, id: DevId) {
        if let Some(device) = self.devices().get(id) {
            device.leave();
        }
    }

    /// How many devices failed since the pool was opened, and count as missing.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Passes the result of a write or flush of a device on; an error ends the use of the device instead, if there is a
    /// copy of everything on others.
    pub(super) fn or_without(&self, device: &PoolDevice, done: Result<()>) -> Result<()> {
        let Err(error) = done else { return Ok(()) };
        if device.is_missing() {
            return Ok(());
        }
        if !is_failure(&error) || !self.can_do_without(device) {
            return Err(error);
        }
        device.fail();
        // Another device may have failed at the same time, in another thread: then one of the two sees both.
        if !self.can_do_without(device) {
            return Err(error);
        }
        self.losses.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// True if every chunk that is in use has all bytes on other devices that are there.
    fn can_do_without(&self, device: &PoolDevice) -> bool {
        let is_lost = |stripe: &Stripe| stripe.device == device.id() || self.device(stripe.device).is_missing();
        let others = self.devices().iter().filter(|other| other.is_written() && other.id() != device.id()).count();
        let is_spare = |chunk: &Chunk| chunk.is_whole_without(is_lost) || self.chunks().close_if_empty(chunk.start());
        others > 0 && self.chunks().all().iter().all(|chunk| is_spare(chunk))
    }
}

/// True for a failure of the device itself: not for one whose host is full, where nothing is lost.
fn is_failure(error: &Error) -> bool {
    match error {
        Error::Device(error @ blockdev::Error::Io { .. }) => !error.is_no_space(),
        Error::Device(blockdev::Error::UnexpectedEnd { .. }) => true,
        _ => false,
    }
}
