//! The store: what the file system is written against.

use std::sync::Arc;

use btrfs_disk::{Generation, Key, Logical, TreeId};
use btrfs_disk::items::RootItem;
use codec::checksum::ChecksumType;

use crate::tree::{EditItem, Tree};
use crate::RefChange;
use crate::{Env, Error, Result};

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// No byte is written, not even a repair.
    pub read_only: bool,
    /// Bound on idle tree blocks kept in memory.
    pub cache_bytes: usize,
    /// Threads for checksums; 0: as many as processors.
    pub worker_count: usize,
    /// Bytes of changed tree blocks after which a reservation commits.
    pub dirty_bytes_max: u64,
    /// Clock and randomness.
    pub env: Env,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { read_only: false, cache_bytes: 64 << 20, worker_count: 0, dirty_bytes_max: 128 << 20, env: Env::system() }
    }
}

/// What an operation may need at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Items inserted, changed or removed.
    pub items: u32,
    /// Bytes of data.
    pub data: u64,
}

/// Sizes fixed when the file system was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a tree block.
    pub node: u32,
    /// Bytes of a data sector.
    pub sector: u32,
    /// Bytes of a checksum.
    pub csum: usize,
}

/// A run of allocated data space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataExtent {
    /// First byte.
    pub at: Logical,
    /// Bytes.
    pub len: u64,
}

/// How data that is read is checked.
#[derive(Clone, Copy, Debug)]
pub enum Expect<'a> {
    /// One checksum per sector, one after the other.
    Csums(&'a [u8]),
    /// Nothing is known of the data (`NODATASUM`).
    Unchecked,
}

/// How far the removal of a deleted subvolume's tree has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropProgress {
    /// Call again.
    More,
    /// The tree and its root item are gone.
    Done,
}

/// Room that was promised. Dropping it returns what is left.
#[derive(Debug)]
#[must_use = "dropping a reservation returns it"]
pub struct Reservation(());

/// An open store. Clones share it.
#[derive(Clone, Debug)]
pub struct Store(Arc<()>);

/// A handle on the running transaction; it ends when dropped.
#[derive(Debug)]
#[must_use = "a handle keeps the transaction from committing"]
pub struct Txn(());

impl Reservation {
    /// Takes over what `other` has: dirty data of one file is reserved write by write, and used at once.
    pub fn absorb(&mut self, _other: Self) {}
}

fn later<T>() -> Result<T> {
    Err(Error::unsupported("not built yet"))
}

#[expect(missing_docs, clippy::missing_errors_doc, clippy::unused_self, reason = "signatures first")]
impl Store {
    pub fn open(_devices: Vec<Arc<dyn blockdev::Device>>, _options: &StoreOptions) -> Result<Self> { later() }
    pub fn make(_devices: Vec<Arc<dyn blockdev::Device>>, _make: &MakeOptions, _options: &StoreOptions) -> Result<Self> { later() }
    pub fn sizes(&self) -> Sizes { Sizes { node: 0, sector: 0, csum: 0 } }
    pub fn csum_type(&self) -> ChecksumType { ChecksumType::Crc32c }

    pub fn tree(&self, _id: TreeId) -> Result<Arc<Tree>> { later() }
    pub fn env(&self) -> &Env { later::<&Env>().expect("signature only") }
    pub fn is_read_only(&self) -> bool { false }
    /// True for `NO_HOLES` and the like: an incompat feature bit of the superblock.
    pub fn has_incompat(&self, _bit: u64) -> bool { false }
    pub fn poisoned(&self) -> Option<Error> { None }
    pub fn reserve(&self, _need: Need) -> Result<Reservation> { later() }
    pub fn reserve_urgent(&self, _need: Need) -> Result<Reservation> { later() }
    pub fn begin(&self, _reservation: Reservation) -> Result<Txn> { later() }
    pub fn begin_exclusive(&self, _need: Need) -> Result<Txn> { later() }
    pub fn commit(&self) -> Result<Generation> { later() }
    pub fn generation(&self) -> Generation { Generation(0) }
    /// Allocates up to `len` bytes, at least `min_len` unless free space is too fragmented.
    pub fn alloc_data(&self, _r: &Reservation, _len: u64, _min_len: u64, _hint: Option<Logical>) -> Result<DataExtent> { later() }
    pub fn free_unused(&self, _extent: DataExtent) {}
    pub fn write_data(&self, _at: Logical, _parts: &[&[u8]]) -> Result<()> { later() }
    pub fn read_data(&self, _at: Logical, _buf: &mut [u8], _expect: Expect<'_>) -> Result<()> { later() }
    pub fn data_csums(&self, _at: Logical, _len: u64) -> Result<CsumRange> { later() }
    pub fn has_any_csum(&self, _at: Logical, _len: u64) -> Result<bool> { later() }
    pub fn csum_data(&self, _data: &[u8]) -> Vec<u8> { Vec::new() }
    /// Whether a data extent has references besides this one (queued changes included).
    pub fn is_data_shared(&self, _at: Logical, _len: u64, _root: TreeId, _inode: btrfs_disk::InodeNo, _offset: u64) -> Result<bool> { later() }
    pub fn root_item(&self, _id: TreeId) -> Result<RootItem> { later() }
    pub fn drop_tree_step(&self, _id: TreeId, _block_budget: u32) -> Result<DropProgress> { later() }
}

#[expect(missing_docs, clippy::missing_errors_doc, clippy::unused_self, reason = "signatures first")]
impl Txn {
    pub fn generation(&self) -> Generation { Generation(0) }
    pub fn insert(&self, _tree: &Tree, _key: &Key, _bytes: &[u8]) -> Result<()> { later() }
    pub fn insert_batch(&self, _tree: &Tree, _items: &[(Key, &[u8])]) -> Result<()> { later() }
    pub fn put(&self, _tree: &Tree, _key: &Key, _bytes: &[u8]) -> Result<()> { later() }
    pub fn update(&self, _tree: &Tree, _key: &Key, _f: impl FnOnce(&mut [u8])) -> Result<bool> { later() }
    pub fn edit(&self, _tree: &Tree, _key: &Key, _f: impl FnMut(Option<&[u8]>) -> Result<EditItem>) -> Result<()> { later() }
    pub fn remove(&self, _tree: &Tree, _key: &Key) -> Result<bool> { later() }
    pub fn remove_range(&self, _tree: &Tree, _from: &Key, _to: &Key, _f: impl FnMut(&Key, &[u8])) -> Result<u64> { later() }
    pub fn set_key(&self, _tree: &Tree, _old: &Key, _new: &Key) -> Result<()> { later() }
    /// Stages a whole-item replacement, applied at the commit of this transaction; the last one wins.
    pub fn defer(&self, _tree: &Tree, _key: &Key, _bytes: Vec<u8>) {}
    /// Forgets a staged replacement (the item was removed).
    pub fn forget_deferred(&self, _tree: &Tree, _key: &Key) {}
    pub fn ref_change(&self, _change: RefChange) -> Result<()> { later() }
    pub fn put_csums(&self, _at: Logical, _csums: &[u8]) -> Result<()> { later() }
    /// A new empty tree with a root item; `item` gives everything but the block's place.
    pub fn create_tree(&self, _id: TreeId, _item: &RootItem) -> Result<Arc<Tree>> { later() }
    /// A snapshot of `source` under a new number (exclusive handles only). `item` as above.
    pub fn snapshot_tree(&self, _source: &Tree, _id: TreeId, _item: &RootItem) -> Result<Arc<Tree>> { later() }
    /// Changes the root item's fields other than the root block's place.
    pub fn update_root_item(&self, _id: TreeId, _f: impl FnOnce(&mut RootItem)) -> Result<()> { later() }
    /// Sets incompat feature bits in the superblock of this transaction (DEFAULT_SUBVOL, ...).
    pub fn add_incompat(&self, _bits: u64) {}
}

/// What `make` is asked for.
#[derive(Clone, Debug, Default)]
pub struct MakeOptions {
    /// Label, at most 255 bytes.
    pub label: Vec<u8>,
}

/// Checksums of a range of sectors, some of which may have none.
#[derive(Clone, Debug, Default)]
pub struct CsumRange(());

#[expect(missing_docs, clippy::unused_self, reason = "signatures first")]
impl CsumRange {
    pub fn count(&self) -> usize { 0 }
    pub fn get(&self, _index: usize) -> Option<&[u8]> { None }
    pub fn all(&self) -> Option<&[u8]> { None }
    pub fn is_empty(&self) -> bool { true }
}
