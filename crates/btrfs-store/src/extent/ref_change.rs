//! Describes one change of the references to an extent, as a value. Tree edits and file operations push them to the
//! queue.

use btrfs_disk::{Generation, InodeNo, Logical, TreeId};

/// The content of an extent, and what the format records about it besides its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// A tree block; its length is the node size.
    Tree {
        /// Height above the leaves.
        level: u8,
    },
    /// File data.
    Data {
        /// Bytes on disk.
        len: u64,
    },
}

/// The holder of a reference to an extent. The order is that of the backref types on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefKey {
    /// The tree that owns the parent block (`TREE_BLOCK_REF`).
    TreeRef {
        /// The tree that owns the parent block, or whose root this is.
        owner: TreeId,
    },
    /// A file extent item in a leaf that belongs to its tree alone (`EXTENT_DATA_REF`).
    DataRef {
        /// Subvolume of the file.
        root: TreeId,
        /// The file.
        inode: InodeNo,
        /// File offset minus offset within the extent, wrapping: bytes.
        offset: u64,
    },
    /// A block whose pointers are counted by its address (`SHARED_BLOCK_REF`).
    SharedTree {
        /// The block that points here.
        parent: Logical,
    },
    /// A leaf whose pointers are counted by its address (`SHARED_DATA_REF`).
    SharedData {
        /// The leaf that points here.
        parent: Logical,
    },
}

impl RefKey {
    /// References of this kind always count one.
    #[must_use]
    pub fn is_tree(self) -> bool {
        matches!(self, Self::TreeRef { .. } | Self::SharedTree { .. })
    }

    /// The tree that made an extent of which this is the first reference; unknown where it is counted by address.
    fn maker(self) -> Option<TreeId> {
        match self {
            Self::TreeRef { owner } => Some(owner),
            Self::DataRef { root, .. } => Some(root),
            Self::SharedTree { .. } | Self::SharedData { .. } => None,
        }
    }
}

/// A reference gained or lost. Changes to one extent commute, apart from the one that makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefChange {
    /// A tree block is pointed at once more.
    AddTree {
        /// The block.
        at: Logical,
        /// Its level.
        level: u8,
        /// The tree that points at it.
        owner: TreeId,
        /// The block that points at it, where that one counts by address.
        parent: Option<Logical>,
        /// The block was allocated in this transaction, and this is its first reference.
        new: bool,
    },
    /// A tree block is pointed at once less.
    DropTree {
        /// The block.
        at: Logical,
        /// Its level.
        level: u8,
        /// The tree that pointed at it.
        owner: TreeId,
        /// The block that pointed at it, where that one counts by address.
        parent: Option<Logical>,
    },
    /// A file extent item points at a data extent.
    AddData {
        /// First byte of the extent.
        at: Logical,
        /// Bytes on disk.
        len: u64,
        /// Subvolume of the file.
        root: TreeId,
        /// The file.
        inode: InodeNo,
        /// File offset minus offset within the extent, wrapping.
        offset: u64,
        /// The leaf, where that one counts by address. Only the store itself says so.
        parent: Option<Logical>,
        /// The extent was allocated in this transaction, and this is its first reference.
        new: bool,
    },
    /// A file extent item points there no more.
    DropData {
        /// First byte of the extent.
        at: Logical,
        /// Bytes on disk.
        len: u64,
        /// Subvolume of the file.
        root: TreeId,
        /// The file.
        inode: InodeNo,
        /// File offset minus offset within the extent, wrapping.
        offset: u64,
        /// The leaf, where that one counts by address. Only the store itself says so.
        parent: Option<Logical>,
    },
    /// From now on the pointers of this tree block are counted by its address.
    SetFullBackref {
        /// The block.
        at: Logical,
        /// Its level.
        level: u8,
    },
    /// The new extent at this address keeps the age of the one it was moved from.
    SetGeneration {
        /// First byte of the extent.
        at: Logical,
        /// Tree block or data.
        kind: ExtentKind,
        /// The transaction that wrote it first.
        generation: Generation,
        /// The tree that allocated it, for simple quotas, where that is known.
        owner: Option<TreeId>,
    },
}

impl RefChange {
    /// `holder` refers to an extent once more: its first reference, where it was allocated in this transaction and that
    /// is `new`. `None` for a holder of something else than `kind`.
    pub(crate) fn gain(at: Logical, kind: ExtentKind, holder: RefKey, new: bool) -> Option<Self> {
        Some(match (kind, holder) {
            (ExtentKind::Tree { level }, RefKey::TreeRef { owner }) => {
                Self::AddTree { at, level, owner, parent: None, new }
            }
            // Counted by address: the owner of the parent is not part of the reference.
            (ExtentKind::Tree { level }, RefKey::SharedTree { parent }) => {
                Self::AddTree { at, level, owner: TreeId(0), parent: Some(parent), new }
            }
            (ExtentKind::Data { len }, RefKey::DataRef { root, inode, offset }) => {
                Self::AddData { at, len, root, inode, offset, parent: None, new }
            }
            (ExtentKind::Data { len }, RefKey::SharedData { parent }) => {
                let (root, inode) = (TreeId(0), InodeNo(0));
                Self::AddData { at, len, root, inode, offset: 0, parent: Some(parent), new }
            }
            _ => return None,
        })
    }

    /// `holder` refers to an extent once less. `None` as of [`Self::gain`].
    pub(crate) fn lose(at: Logical, kind: ExtentKind, holder: RefKey) -> Option<Self> {
        Some(match Self::gain(at, kind, holder, false)? {
            Self::AddTree { at, level, owner, parent, .. } => Self::DropTree { at, level, owner, parent },
            Self::AddData { at, len, root, inode, offset, parent, .. } => {
                Self::DropData { at, len, root, inode, offset, parent }
            }
            other => other,
        })
    }

    /// The address of the extent that changes.
    pub(crate) const fn at(&self) -> Logical {
        match *self {
            Self::AddTree { at, .. }
            | Self::DropTree { at, .. }
            | Self::AddData { at, .. }
            | Self::DropData { at, .. }
            | Self::SetFullBackref { at, .. }
            | Self::SetGeneration { at, .. } => at,
        }
    }

    /// Tree block or data.
    pub(crate) const fn kind(&self) -> ExtentKind {
        match *self {
            Self::AddTree { level, .. } | Self::DropTree { level, .. } | Self::SetFullBackref { level, .. } => {
                ExtentKind::Tree { level }
            }
            Self::AddData { len, .. } | Self::DropData { len, .. } => ExtentKind::Data { len },
            Self::SetGeneration { kind, .. } => kind,
        }
    }
}

/// A change taken apart into the fields that the queue merges by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) at: Logical,
    pub(super) kind: ExtentKind,
    /// The holder, and +1 or -1; `None` when only flags change.
    pub(super) delta: Option<(RefKey, i64)>,
    pub(super) is_new: bool,
    pub(super) full_backref: bool,
    pub(super) generation: Option<Generation>,
    /// The tree that allocated the extent.
    pub(super) owner: Option<TreeId>,
}

impl RefChange {
    pub(super) fn parts(self) -> Parts {
        match self {
            Self::AddTree { at, level, owner, parent, new } => {
                Parts::tree(at, level, Some((tree_key(owner, parent), 1)), new)
            }
            Self::DropTree { at, level, owner, parent } => {
                Parts::tree(at, level, Some((tree_key(owner, parent), -1)), false)
            }
            Self::AddData { at, len, root, inode, offset, parent, new } => {
                Parts::data(at, len, (data_key(root, inode, offset, parent), 1), new)
            }
            Self::DropData { at, len, root, inode, offset, parent } => {
                Parts::data(at, len, (data_key(root, inode, offset, parent), -1), false)
            }
            Self::SetFullBackref { at, level } => Parts { full_backref: true, ..Parts::tree(at, level, None, false) },
            Self::SetGeneration { at, kind, generation, owner } => {
                let generation = Some(generation);
                Parts { at, kind, delta: None, is_new: false, full_backref: false, generation, owner }
            }
        }
    }
}

impl Parts {
    fn tree(at: Logical, level: u8, delta: Option<(RefKey, i64)>, is_new: bool) -> Self {
        let owner = delta.and_then(|(key, _)| key.maker()).filter(|_| is_new);
        Self { at, kind: ExtentKind::Tree { level }, delta, is_new, full_backref: false, generation: None, owner }
    }

    fn data(at: Logical, len: u64, delta: (RefKey, i64), is_new: bool) -> Self {
        let owner = delta.0.maker().filter(|_| is_new);
        let kind = ExtentKind::Data { len };
        Self { at, kind, delta: Some(delta), is_new, full_backref: false, generation: None, owner }
    }
}

fn tree_key(owner: TreeId, parent: Option<Logical>) -> RefKey {
    match parent {
        Some(parent) => RefKey::SharedTree { parent },
        None => RefKey::TreeRef { owner },
    }
}

fn data_key(root: TreeId, inode: InodeNo, offset: u64, parent: Option<Logical>) -> RefKey {
    match parent {
        Some(parent) => RefKey::SharedData { parent },
        None => RefKey::DataRef { root, inode, offset },
    }
}
