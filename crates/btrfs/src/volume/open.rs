//! Opens and makes volumes on devices. Called by `spinney::open` and `spinney::make`, by `mkfs`, and by programs with
//! [`VolumeOptions`](super::VolumeOptions).

use std::path::Path;
use std::sync::Arc;

use blockdev::backends::OverlayDevice;
use blockdev::{Access, Device, Locator};
use btrfs_disk::{Generation, TreeId};
use btrfs_pool::{MemberError, Mode};
use btrfs_store::{MakeOptions, Store, StoreOptions};

use super::options::SubvolumeChoice;
use super::{Volume, VolumeOptions};
use crate::dir::Namespace;
use crate::error::{CallerError, Error};
use crate::inode::{Core, Settings};
use crate::log;
use crate::open_volume::{Follow, OpenVolume, Walker};
use crate::subvol;
use vfs::Result;

/// Most bytes of changes that the replay of a log may keep in memory, for a read-only volume. The kernel commits before
/// a log grows that far.
const OVERLAY_BYTES_MAX: usize = 1 << 30;

/// The devices of a volume.
type Devices = Vec<Arc<dyn Device>>;

impl VolumeOptions {
    /// Opens an image file or block device. A path that does not exist and ends in `?offset=N` names a partition of the
    /// file in front of the `?`; one with commas names the devices of one volume (`A,B`).
    ///
    /// Opening for writing finishes the work of an earlier session: it replays a log that a crash left, and frees the
    /// space of deleted files and subvolumes. Opening for reading shows the volume as if the log had been replayed.
    ///
    /// # Errors
    /// `Io` when the device cannot be opened or is in use; `Unsupported` for features this
    /// library lacks, by name; `Corrupt`.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let access = Access { read_only: self.read_only, ..Access::WRITE };
        let parts = |list: Vec<Locator>| list.into_iter().map(|part| part.from_byte(self.offset)).collect::<Vec<_>>();
        let devices = Locator::parse_list(path).and_then(|list| btrfs_pool::open_list(&parts(list), access));
        self.open_devices(devices.map_err(crate::Error::from)?).map_err(|error| error.at(path))
    }

    /// Opens a volume on a given device.
    ///
    /// # Errors
    /// As [`VolumeOptions::open`].
    pub fn open_device(&self, device: Arc<dyn Device>) -> Result<Volume> {
        self.open_devices(vec![device])
    }

    /// Opens a volume on several given devices, which must be all of its devices.
    ///
    /// # Errors
    /// As [`VolumeOptions::open`]; `Members` for devices that are missing, of another file system, or out of date.
    pub fn open_devices(&self, devices: Vec<Arc<dyn Device>>) -> Result<Volume> {
        let (devices, stale) = self.put_stale_aside(devices);
        let options = Self { degraded: self.degraded || !stale.is_empty(), ..self.clone() };
        let volume = options.open_given(devices)?;
        volume.core().data.keep_stale(stale);
        Ok(volume)
    }

    /// The devices of a volume without those that missed commits, and those; none where they are to be refused.
    fn put_stale_aside(&self, devices: Devices) -> (Devices, Devices) {
        if self.read_only || !self.resync || devices.len() < 2 {
            return (devices, Vec::new());
        }
        let (mut fresh, mut stale) = (devices.clone(), Vec::new());
        loop {
            let mode = if stale.is_empty() && !self.degraded { Mode::Strict } else { Mode::Degraded };
            let look = StoreOptions { read_only: true, mode, ..self.store_options() };
            match Store::open(fresh.clone(), &look) {
                Err(btrfs_store::Error::Members(error)) => {
                    let MemberError::Stale { device, .. } = *error else { break };
                    let Some(at) = fresh.iter().position(|known| known.name() == device) else { break };
                    stale.push(fresh.remove(at));
                }
                Ok(store) if !stale.is_empty() => {
                    let count = usize::try_from(store.superblock().fields().num_devices.get()).unwrap_or(usize::MAX);
                    if self.degraded || devices.len() >= count {
                        return (fresh, stale);
                    }
                    break;
                }
                _ => break,
            }
        }
        (devices, Vec::new())
    }

    fn open_given(&self, devices: Vec<Arc<dyn Device>>) -> Result<Volume> {
        let store = Store::open(devices.clone(), &self.store_options()).map_err(crate::Error::from)?;
        if !self.verify_data && !self.read_only {
            return Err(Error::Unsupported("writing to a volume without verifying its data".into()).into());
        }
        if !self.replay_log && !self.read_only && store.has_log() {
            let what = "writing to a volume whose log is not to be replayed";
            return Err(Error::Unsupported(what.into()).into());
        }
        if self.replay_log && self.read_only && self.generation.is_none() && store.has_log() {
            drop(store);
            return self.open_replayed(devices);
        }
        self.start(store)
    }

    /// Replays the log into memory, above devices that are not changed.
    fn open_replayed(&self, devices: Vec<Arc<dyn Device>>) -> Result<Volume> {
        let overlay = |device| -> Arc<dyn Device> { Arc::new(OverlayDevice::new(device, OVERLAY_BYTES_MAX)) };
        let devices: Vec<_> = devices.into_iter().map(overlay).collect();
        let writable = StoreOptions { read_only: false, ..self.store_options() };
        let store = match Store::open(devices.clone(), &writable) {
            Err(btrfs_store::Error::Unsupported { what }) => {
                let text = format!("replaying the log: {what}; without its log the volume can be read");
                return Err(Error::Unsupported(text.into()).into());
            }
            result => result.map_err(crate::Error::from)?,
        };
        log::replay::run(&self.namespace(store))?;
        self.start(Store::open(devices, &self.store_options()).map_err(crate::Error::from)?)
    }

    /// Makes a new, empty file system and opens it: on an image file, which is created with `size` bytes if it does not
    /// exist, or on a block device. Previous contents are lost.
    ///
    /// # Errors
    /// `Io`, `Unsupported` for options that do not fit each other, `NoSpace` for a device that is
    /// too small.
    pub fn make(&self, path: impl AsRef<Path>, make: &MakeOptions) -> Result<Volume> {
        let path = path.as_ref();
        let access = Access { create: make.size.is_some(), ..Access::WRITE };
        let part = Locator::parse(path).map(|part| part.from_byte(self.offset).with_size(make.size));
        let device = part.and_then(|part| blockdev::open(&part, access)).map_err(crate::Error::from)?;
        self.make_device(device, make).map_err(|error| error.at(path))
    }

    /// Makes a new, empty file system on a given device, and opens it.
    ///
    /// # Errors
    /// As [`VolumeOptions::make`].
    pub fn make_device(&self, device: Arc<dyn Device>, make: &MakeOptions) -> Result<Volume> {
        self.make_devices(vec![device], make)
    }

    /// Makes a new, empty file system on several given devices, which it numbers from 1 on, and opens it.
    ///
    /// # Errors
    /// As [`VolumeOptions::make`]; `NoSpace`, too, for a profile that needs more devices.
    pub fn make_devices(&self, devices: Vec<Arc<dyn Device>>, make: &MakeOptions) -> Result<Volume> {
        let store = Store::make(devices, make, &self.store_options()).map_err(crate::Error::from)?;
        subvol::make_trees(&store, self.owner)?;
        self.start(store)
    }

    /// Makes a sprout on a new device, and opens it: a volume of its own that begins with the contents of a seed, to
    /// which it refers. Whoever opens the sprout later gives the devices of both. The seed is only read.
    ///
    /// # Errors
    /// `Unsupported` for a volume that is no seed; `NoSpace` for a device that is too small; those of opening the seed.
    pub fn sprout(&self, seeds: Vec<Arc<dyn Device>>, new: Arc<dyn Device>) -> Result<Volume> {
        self.start(Store::sprout(&seeds, new, &self.store_options()).map_err(crate::Error::from)?)
    }

    fn store_options(&self) -> StoreOptions {
        StoreOptions {
            read_only: self.read_only,
            superblock: self.superblock,
            mode: if self.degraded { Mode::Degraded } else { Mode::Strict },
            too_short: self.too_short,
            generation: self.generation,
            uses_backup_roots: self.backup_roots && self.read_only,
            cache_bytes: self.cache_bytes,
            worker_count: self.workers,
            discard: self.discard,
            leaves_parity: self.leaves_parity,
            env: self.env.clone(),
            ..StoreOptions::default()
        }
    }

    fn start(&self, store: Store) -> Result<Volume> {
        let namespace = self.namespace(store);
        if !self.read_only {
            log::replay::run(&namespace)?;
            namespace.core.store.note_missing_devices().map_err(crate::Error::from)?;
            subvol::prepare_for_writing(&namespace)?;
        }
        let top = self.choose_top(&namespace)?;
        Volume::new(OpenVolume::new(namespace, top, self.owner))
    }

    fn namespace(&self, store: Store) -> Arc<Namespace> {
        let settings = Settings {
            max_inline: self.max_inline,
            dirty_bytes: self.dirty_bytes,
            compress: self.compress,
            file_flags: self.file_flags,
            writes_ahead: self.writes_ahead,
            verifies_data: self.verify_data,
            inherits_data_flags: self.inherits_data_flags,
            is_reproducible: self.is_reproducible,
        };
        Arc::new(Namespace::new(Arc::new(Core::new(store, settings))))
    }

    fn choose_top(&self, namespace: &Namespace) -> Result<TreeId> {
        let top = match &self.subvolume {
            None => subvol::default_subvolume(namespace)?,
            Some(SubvolumeChoice::Id(id)) => *id,
            Some(SubvolumeChoice::Path(path)) => {
                let walker = Walker::new(namespace, TreeId::FS);
                let found = walker.find(path, Follow::Last)?;
                if !found.is_subvolume_root() {
                    return Err(Error::from(CallerError::NoSuchSubvolume).at(path).into());
                }
                found.tree
            }
        };
        namespace.core.root_dir(top)?;
        Ok(top)
    }
}

impl Volume {
    /// A view of the newest durable state, for as long as the returned volume lives: space that is freed meanwhile is
    /// held, which `usage` shows. Data that is overwritten in place (`nodatacow`) is read in its present form. This
    /// volume stays open as long.
    ///
    /// Where writers would find no room otherwise, the view is given up, and reads through it fail.
    ///
    /// # Errors
    /// Damage, I/O.
    pub fn committed_view(&self) -> Result<Self> {
        let options = Self::options().read_only(true).subvolume_id(self.open.top);
        options.start(self.core().store.committed_view().map_err(crate::Error::from)?)
    }

    /// A view of the state that an earlier transaction committed; [`Self::generations`] lists those that the superblock
    /// leads to. Blocks that the newest durable state shares are held for as long as the returned volume lives, as with
    /// [`Self::committed_view`]. Others may be overwritten: reading them fails as damage does.
    /// [`crate::VolumeOptions::generation`] opens an image so. Use a snapshot to keep a state for longer.
    ///
    /// # Errors
    /// `Unsupported` for a state that the superblock does not lead to; damage, I/O.
    ///
    /// # Examples
    /// ```
    /// # use btrfs::{MakeOptions, Volume};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let make = MakeOptions { size: Some(64 << 20), ..MakeOptions::default() };
    /// # let volume = Volume::make(dir.path().join("disk.img"), &make)?;
    /// volume.write("plan", "keep it")?;
    /// volume.sync()?;
    /// let before = volume.info()?.generation;
    /// volume.remove_file("plan")?;
    /// volume.sync()?;
    ///
    /// let earlier = volume.open_at(before)?;
    /// assert_eq!(earlier.read("plan")?, b"keep it");
    /// assert!(earlier.is_read_only() && !volume.exists("plan")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_at(&self, generation: Generation) -> Result<Self> {
        let options = Self::options().read_only(true).subvolume_id(self.open.top);
        options.start(self.core().store.earlier_view(generation).map_err(crate::Error::from)?)
    }

    /// Makes a new, empty file system and opens it; see [`VolumeOptions::make`].
    ///
    /// # Errors
    /// As [`VolumeOptions::make`].
    pub fn make(path: impl AsRef<Path>, make: &MakeOptions) -> Result<Self> {
        Self::options().make(path, make)
    }
}
