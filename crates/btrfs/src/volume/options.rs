//! Defines the options for opening a volume. Callers outside the crate set them; `volume::open` reads them.

use std::path::{Path, PathBuf};

use btrfs_disk::{Generation, TreeId};
use btrfs_store::{Env, NewProfiles, TooShort};

use crate::balance::BalanceSpec;
use crate::inode::{Compression, InodeFlags};

/// Dirty file data kept in memory before writers have to write it out.
const DIRTY_BYTES_DEFAULT: usize = 64 << 20;
/// Tree blocks kept in memory.
const CACHE_BYTES_DEFAULT: usize = 128 << 20;
/// Largest file stored inside its inode's leaf, as the kernel's `max_inline` default.
const MAX_INLINE_DEFAULT: u32 = 2048;

/// How to open a volume.
#[derive(Debug, Clone)]
pub struct VolumeOptions {
    pub(crate) read_only: bool,
    pub(crate) replay_log: bool,
    pub(crate) superblock: Option<usize>,
    pub(crate) too_short: TooShort,
    pub(crate) generation: Option<Generation>,
    pub(crate) offset: u64,
    pub(crate) subvolume: Option<SubvolumeChoice>,
    pub(crate) max_inline: u32,
    pub(crate) dirty_bytes: usize,
    pub(crate) compress: Option<Compression>,
    pub(crate) discard: bool,
    pub(crate) file_flags: InodeFlags,
    pub(crate) cache_bytes: usize,
    pub(crate) workers: usize,
    pub(crate) writes_ahead: bool,
    pub(crate) inherits_data_flags: bool,
    pub(crate) is_reproducible: bool,
    pub(crate) verify_data: bool,
    pub(crate) backup_roots: bool,
    pub(crate) degraded: bool,
    pub(crate) resync: bool,
    pub(crate) leaves_parity: Option<NewProfiles>,
    pub(crate) env: Env,
    pub(crate) owner: (u32, u32),
}

/// Which subvolume is the root of all paths.
#[derive(Debug, Clone)]
pub(crate) enum SubvolumeChoice {
    Path(PathBuf),
    Id(TreeId),
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            replay_log: true,
            superblock: None,
            too_short: TooShort::Refused,
            generation: None,
            offset: 0,
            subvolume: None,
            max_inline: MAX_INLINE_DEFAULT,
            dirty_bytes: DIRTY_BYTES_DEFAULT,
            compress: None,
            discard: false,
            file_flags: InodeFlags::empty(),
            cache_bytes: CACHE_BYTES_DEFAULT,
            workers: 0,
            writes_ahead: false,
            inherits_data_flags: false,
            is_reproducible: false,
            verify_data: true,
            backup_roots: false,
            degraded: false,
            resync: false,
            leaves_parity: None,
            env: Env::default(),
            owner: (0, 0),
        }
    }
}

impl VolumeOptions {
    /// Options with their defaults: read-write, the default subvolume.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the volume for reading only: nothing is written to the devices, not even repairs.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Whether a log that a crash left is replayed: only in memory for a read-only volume. Without it a read-only
    /// volume shows the last commit, and a volume with a log cannot be written to.
    #[must_use]
    pub fn replay_log(mut self, replay_log: bool) -> Self {
        self.replay_log = replay_log;
        self
    }

    /// Whether data is verified against its checksums when it is read. Only a read-only volume can disable it: reads
    /// then return damaged data, too, as the kernel's do with `rescue=ignoredatacsums`.
    #[must_use]
    pub fn verify_data(mut self, verify_data: bool) -> Self {
        self.verify_data = verify_data;
        self
    }

    /// Whether a volume whose last commit is too damaged to open is opened at the newest intact backup root; read-only
    /// volumes only. The kernel's name is `rescue=usebackuproot`.
    #[must_use]
    pub fn backup_roots(mut self, backup_roots: bool) -> Self {
        self.backup_roots = backup_roots;
        self
    }

    /// Whether some devices of a volume may be missing. Data without a copy on the other devices cannot be read, and
    /// the volume cannot be written if there is any. The kernel's name is `degraded`.
    #[must_use]
    pub fn degraded(mut self, degraded: bool) -> Self {
        self.degraded = degraded;
        self
    }

    /// Whether devices that missed commits are put aside, if the volume can be written without them, instead of being
    /// refused: [`Volume::resync_stale_device`](super::Volume::resync_stale_device) then brings them up to date. All
    /// devices have to be given, unless others may be missing, too ([`Self::degraded`]).
    #[must_use]
    pub fn resync(mut self, resync: bool) -> Self {
        self.resync = resync;
        self
    }

    /// Opens a volume with RAID5 or RAID6 block groups for writing, if this balance converts all of them: they are
    /// emptied by it, and never written. Without this option such a volume is only read.
    #[must_use]
    pub fn leave_parity(mut self, balance: &BalanceSpec) -> Self {
        self.leaves_parity = Some(balance.new_profiles());
        self
    }

    /// Uses this copy of the superblock, 0 for the primary, and no other. Without this option the primary is used;
    /// where that is damaged, a read-only volume uses the newest valid copy. The first commit of a writable volume
    /// overwrites the other copies.
    #[must_use]
    pub fn superblock(mut self, copy: usize) -> Self {
        self.superblock = Some(copy);
        self
    }

    /// Opens a truncated volume for writing, if no chunk lies beyond its end; the next resize records its real size.
    /// Read-only volumes are opened in any case.
    #[must_use]
    pub fn cut_to_device(mut self, is_cut: bool) -> Self {
        self.too_short = if is_cut { TooShort::Cut } else { TooShort::Refused };
        self
    }

    /// Opens the state that this transaction committed, instead of the last one; for reading only. A superblock lists
    /// the last four, see [`crate::Volume::generations`]. Blocks of an earlier state may have been overwritten since:
    /// reading them fails as damage does. Later syncs are not shown.
    #[must_use]
    pub fn generation(mut self, generation: Option<Generation>) -> Self {
        self.generation = generation;
        self
    }

    /// Byte in the image where the file system starts (a partition).
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> Self {
        self.offset = bytes;
        self
    }

    /// The subvolume that is the root of all paths, by its path from the top-level subvolume.
    #[must_use]
    pub fn subvolume(mut self, path: impl AsRef<Path>) -> Self {
        self.subvolume = Some(SubvolumeChoice::Path(path.as_ref().to_owned()));
        self
    }

    /// The subvolume that is the root of all paths, by its number.
    #[must_use]
    pub fn subvolume_id(mut self, id: TreeId) -> Self {
        self.subvolume = Some(SubvolumeChoice::Id(id));
        self
    }

    /// Files up to this many bytes are stored inside a leaf.
    #[must_use]
    pub fn max_inline(mut self, bytes: u32) -> Self {
        self.max_inline = bytes;
        self
    }

    /// How new data is compressed. Flags and the property of a file (`btrfs.compression`) have precedence; without
    /// this, new data is compressed where they ask for it. Existing data does not change.
    #[must_use]
    pub fn compress(mut self, compression: Option<Compression>) -> Self {
        self.compress = compression;
        self
    }

    /// New files have no checksums, and are overwritten in place unless their data is shared.
    #[must_use]
    pub fn nodatacow(mut self, on: bool) -> Self {
        self.file_flags.set(InodeFlags::NODATACOW, on);
        self.file_flags |= match on {
            true => InodeFlags::NODATASUM,
            false => InodeFlags::empty(),
        };
        self
    }

    /// New files have no checksums.
    #[must_use]
    pub fn nodatasum(mut self, on: bool) -> Self {
        self.file_flags.set(InodeFlags::NODATASUM, on);
        self
    }

    /// Bytes of dirty file data kept in memory before writers have to wait for the device.
    #[must_use]
    pub fn dirty_bytes(mut self, bytes: usize) -> Self {
        self.dirty_bytes = bytes;
        self
    }

    /// Each commit discards the space it freed: a sparse image returns it to the host. Older roots that a superblock
    /// lists are unusable then.
    #[must_use]
    pub fn discard(mut self, on: bool) -> Self {
        self.discard = on;
        self
    }

    /// Tree blocks kept in memory.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Threads for checksums and compression; 0 for as many as there are processors.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count;
        self
    }

    /// Whether a background thread writes data back once half of the permitted dirty bytes are in use. Useful for a
    /// caller that writes with one thread; with several threads it is faster when they write back themselves.
    #[must_use]
    pub fn writes_ahead(mut self, on: bool) -> Self {
        self.writes_ahead = on;
        self
    }

    /// Whether new files and directories inherit `NODATASUM`, too, from their directory; `NODATACOW` they always do.
    /// The kernel does not, `mkfs.btrfs --inode-flags` does.
    #[must_use]
    pub fn inherits_data_flags(mut self, on: bool) -> Self {
        self.inherits_data_flags = on;
        self
    }

    /// Whether the same calls, by one thread and with the same [`VolumeOptions::env`], give the same image byte for
    /// byte, however many workers compress and make checksums: no background thread writes data back then.
    #[must_use]
    pub fn reproducible(mut self, on: bool) -> Self {
        self.is_reproducible = on;
        self
    }

    /// The source of times and random numbers.
    #[must_use]
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Owner and group of new inodes without an explicit one: 0 and 0 by default.
    #[must_use]
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }
}
