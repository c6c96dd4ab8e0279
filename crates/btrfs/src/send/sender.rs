//! [`Sender`]: the options, state and output of a stream in the making. Used by the modules that send names, contents
//! and attributes.

use std::collections::BTreeSet;
use std::io::{self, Write};

use btrfs_disk::flags::RootFlags;
use btrfs_disk::items::RootItem;
use btrfs_disk::{Generation, Logical, TreeId};
use btrfs_store::Store;
use btrfs_stream::{Command, Encoder, ResumePoint, Time, Uuid, Version};

use super::places::{Pair, Places};
use super::view::{Facts, View};
use crate::error::{CallerError, Error, Result as VolumeResult};
use crate::inode::{Core, Timestamp};
use crate::subvol::changed_since_receipt;

/// Directories whose times are set together, after the changes in them.
const TOUCHED_MAX: usize = 1 << 16;

/// Most data of one command, as in the kernel.
const WRITE_BYTES_V1: usize = 48 << 10;
const WRITE_BYTES_V2: usize = 128 << 10;

/// How a stream is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendOptions {
    /// The version of the stream, 1 or 2.
    pub version: u32,
    /// Sends compressed extents as they are on disk. Needs version 2.
    pub compressed_data: bool,
    /// Sends which bytes differ, without their contents.
    pub no_data: bool,
    /// Writes only the rest of the same stream, from where its receipt was cut short.
    pub rest_from: Option<ResumePoint>,
    /// Sends subvolumes that were changed after they were received, under their received UUIDs.
    pub takes_changed: bool,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self { version: 1, compressed_data: false, no_data: false, rest_from: None, takes_changed: false }
    }
}

/// Why a stream could not be made.
///
/// To do: send a read-only snapshot that was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// An error of the volume, or of the request.
    #[error(transparent)]
    Volume(#[from] vfs::Error),
    /// The subvolume is not read-only, so it has no fixed state.
    ///
    /// To do: take a snapshot with `-r` and send that.
    #[error("the subvolume {path} can be changed: only read-only ones are sent")]
    Writable {
        /// Its path from the top level.
        path: String,
    },
    /// The subvolume was changed after it was received: its received UUID names another state for every receiver.
    #[error(
        "the subvolume {path} was received in transaction {received} and changed in transaction {changed}: for a \
         receiver its UUID {} names the unchanged state",
        btrfs_disk::Uuid(*uuid)
    )]
    Changed {
        /// Its path from the top level.
        path: String,
        /// Its received UUID.
        uuid: Uuid,
        /// The transaction that received it.
        received: u64,
        /// The transaction of its last change.
        changed: u64,
    },
    /// The point to resume at is of another stream.
    #[error(
        "the token is of subvolume {} in transaction {} and a stream of version {}; this is {}, {ctransid}, version \
         {version}",
        btrfs_disk::Uuid(point.uuid), point.ctransid, point.version, btrfs_disk::Uuid(*uuid)
    )]
    OtherPoint {
        /// The given point.
        point: ResumePoint,
        /// The UUID of the subvolume.
        uuid: Uuid,
        /// Transaction of its last change.
        ctransid: u64,
        /// The version of its stream.
        version: u32,
    },
    /// The stream cannot be written to its output.
    ///
    /// To do: see the cause: a full disk, or a reader that ended.
    #[error("the stream: {0}")]
    Output(#[source] io::Error),
    /// The stream cannot represent it.
    #[error(transparent)]
    Stream(btrfs_stream::Error),
}

impl From<btrfs_stream::Error> for SendError {
    fn from(error: btrfs_stream::Error) -> Self {
        match error {
            btrfs_stream::Error::Write(source) => Self::Output(source),
            error => Self::Stream(error),
        }
    }
}

impl From<Error> for SendError {
    fn from(error: Error) -> Self {
        Self::Volume(error.into())
    }
}

impl From<btrfs_store::Error> for SendError {
    fn from(error: btrfs_store::Error) -> Self {
        Error::from(error).into()
    }
}

pub(super) type Result<T> = std::result::Result<T, SendError>;

/// A subvolume that a receiver has, or is to have.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(super) id: TreeId,
    pub(super) uuid: Uuid,
    pub(super) ctransid: u64,
    /// It was itself received; `uuid` is its received UUID then.
    pub(super) is_received: bool,
}

impl Source {
    /// The UUID and transaction by which a receiver knows the subvolume `id`. `path` is for messages.
    ///
    /// # Errors
    /// `NoSuchSubvolume`, [`SendError::Writable`]; [`SendError::Changed`] unless `takes_changed`.
    pub(crate) fn of(store: &Store, id: TreeId, path: &str, takes_changed: bool) -> Result<Self> {
        let item: RootItem = match store.root_item(id) {
            Ok(item) if item.refs.get() > 0 && id.is_subvolume() => item,
            Ok(_) | Err(btrfs_store::Error::NoSuchTree(_)) => {
                return Err(Error::from(CallerError::NoSuchSubvolume).into());
            }
            Err(error) => return Err(error.into()),
        };
        if !item.root_flags().contains(RootFlags::SUBVOL_RDONLY) {
            return Err(SendError::Writable { path: path.to_owned() });
        }
        let is_received = !item.received_uuid.is_nil();
        if is_received && !takes_changed && changed_since_receipt(store, id, &item)? {
            return Err(SendError::Changed {
                path: path.to_owned(),
                uuid: item.received_uuid.0,
                received: item.rtransid.get(),
                changed: item.ctransid.get(),
            });
        }
        let uuid = if is_received { item.received_uuid } else { item.uuid };
        Ok(Self { id, uuid: uuid.0, ctransid: item.ctransid.get(), is_received })
    }
}

/// Buffers for reading contents.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) version: Version,
    pub(super) buffer: Vec<u8>,
    /// The extent that was decompressed last.
    pub(super) decompressed: Option<(Logical, Generation, Vec<u8>)>,
}

impl Contents {
    pub(super) fn new(version: Version) -> Self {
        Self { version, buffer: Vec::new(), decompressed: None }
    }

    /// Most data of one command.
    pub(super) fn write_bytes(&self) -> usize {
        if self.version >= Version::V2 { WRITE_BYTES_V2 } else { WRITE_BYTES_V1 }
    }
}

/// The subvolumes that may be cloned from.
#[derive(Debug)]
pub(super) struct Clones {
    /// Subvolumes that the receiver has.
    pub(super) others: Vec<(View, Source)>,
    pub(super) own: Source,
}

impl Clones {
    /// The parent is one of them, unless it was itself received: `btrfs receive` before 6.10 does not find it on the
    /// volume that it came from. Sources that the caller names are always used.
    pub(super) fn new(core: &Core, from: Option<&Source>, own: &Source, sources: &[Source]) -> VolumeResult<Self> {
        let mut others: Vec<(View, Source)> = Vec::new();
        for source in from.into_iter().filter(|from| !from.is_received).chain(sources) {
            if source.id != own.id && others.iter().all(|(view, _)| view.id != source.id) {
                others.push((View::new(core.store.tree(source.id)?), source.clone()));
            }
        }
        Ok(Self { others, own: own.clone() })
    }
}

/// Attributes that new nodes may inherit from a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inherited {
    pub(super) dir: u64,
    pub(super) acl: bool,
    pub(super) compression: bool,
}

/// The making of one stream.
pub(super) struct Sender<'a> {
    pub(super) core: &'a Core,
    pub(super) pair: Pair,
    pub(super) places: Places,
    pub(super) contents: Contents,
    pub(super) clones: Clones,
    pub(super) options: SendOptions,
    pub(super) encoder: Encoder<&'a mut dyn Write>,
    /// Directories whose times have to be set.
    pub(super) touched: BTreeSet<u64>,
    /// The attributes inherited from the directory in which the last node was made.
    pub(super) inherited: Option<Inherited>,
}

impl Sender<'_> {
    pub(super) fn put(&mut self, command: &Command<'_>) -> Result<()> {
        Ok(self.encoder.command(command)?)
    }

    /// Notes that the times of a directory have to be set again.
    pub(super) fn touch(&mut self, dir: u64) -> Result<()> {
        if self.touched.len() >= TOUCHED_MAX && !self.touched.contains(&dir) {
            self.set_times_of_touched()?;
        }
        self.touched.insert(dir);
        Ok(())
    }

    /// Sets the times of directories that have changed since.
    pub(super) fn set_times_of_touched(&mut self) -> Result<()> {
        for dir in std::mem::take(&mut self.touched) {
            if let Some(facts) = self.pair.new.facts(dir)? {
                let path = self.places.of_dir(&self.pair, dir)?;
                self.set_times(&path, &facts)?;
            }
        }
        Ok(())
    }

    /// Sets the times of an inode.
    pub(super) fn set_times(&mut self, path: &[u8], facts: &Facts) -> Result<()> {
        let otime = (self.contents.version >= Version::V2).then(|| time(facts.otime));
        let [atime, mtime, ctime] = [facts.atime, facts.mtime, facts.ctime].map(time);
        self.put(&Command::Utimes { path, atime, mtime, ctime, otime })
    }
}

fn time(time: Timestamp) -> Time {
    Time { seconds: time.sec, nanoseconds: time.nsec }
}
