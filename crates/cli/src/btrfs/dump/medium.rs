//! Reads tree blocks as they are on the medium, valid or damaged, for `dump tree` and `dump block`.
//!
//! The devices, the superblock to use and the chunks are found by the methods of `btrfs-rescue`, so that damage to them
//! does not prevent the rest from being shown. A block is read from the first valid copy; if there is none, from a copy
//! with the right checksum, or else from any readable copy, and its fault is reported.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use spinney::btrfs::check::Media;
use spinney::btrfs::disk::items::RootItem;
use spinney::btrfs::disk::key::item_type;
use spinney::btrfs::disk::node::{self, LeafView, NodeView};
use spinney::btrfs::disk::verify::{self, Expect};
use spinney::btrfs::disk::{Generation, Key, Logical, TreeId};
use spinney::btrfs::rescue::Rescue;

use crate::commands::failure::{Failure, Status};

/// The address of a block, and the expected contents as far as they are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pointer {
    pub(super) at: Logical,
    level: Option<u8>,
    generation: Option<Generation>,
    first_key: Option<Key>,
    owner: Option<TreeId>,
}

impl Pointer {
    /// Only the address is known.
    pub(super) fn to(at: u64) -> Self {
        Self { at: Logical(at), level: None, generation: None, first_key: None, owner: None }
    }

    fn root(tree: TreeId, (at, generation): (Logical, Generation), level: u8) -> Self {
        let (level, generation) = (Some(level), Some(generation));
        Self { at, level, generation, first_key: None, owner: Some(tree) }
    }

    /// The pointers of a node, in the order of their keys; none where it should be a leaf.
    pub(super) fn children(&self, block: &[u8]) -> Vec<Self> {
        let level = self.level.or_else(|| Some(node::header(block)?.level)).unwrap_or(0);
        let is_node = node::header(block).is_some_and(|header| header.level > 0);
        let Some(level) = level.checked_sub(1).filter(|_| is_node) else { return Vec::new() };
        let view = NodeView::new(block);
        let child = |slot| {
            let (at, generation) = view.ptr(slot);
            let first_key = Some(view.key(slot));
            Self { at, level: Some(level), generation: Some(generation), first_key, owner: self.owner }
        };
        (0..view.nritems()).map(child).collect()
    }
}

/// A block as it was read.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// `None` where no copy can be read.
    pub(super) bytes: Option<Vec<u8>>,
    /// Its fault; `None` if a copy is valid.
    pub(super) problem: Option<String>,
}

/// One copy of a block: the device, the byte offset, and the fault.
pub(super) struct Copy {
    pub(super) place: Option<(u64, u64)>,
    pub(super) problem: Option<String>,
}

pub(super) struct Medium {
    rescue: Rescue,
}

impl Medium {
    pub(super) fn open(image: &Path) -> Result<Self> {
        let opened = Rescue::open(&super::open_devices(image)?, 0, Arc::new(()));
        let rescue = opened.map_err(|error| Failure::new(Status::Corrupt, format!("{}: {error}", image.display())))?;
        Ok(Self { rescue })
    }

    fn media(&self) -> &Media {
        self.rescue.media()
    }

    /// The unit of addresses.
    pub(super) fn sector(&self) -> u64 {
        u64::from(self.media().format.sectorsize)
    }

    fn problem(&self, pointer: &Pointer, bytes: &[u8]) -> Option<String> {
        let media = self.media();
        let Pointer { level, generation, first_key, owner, .. } = *pointer;
        let expect = Expect {
            level,
            generation,
            first_key,
            owner,
            ..Expect::at(&media.format, pointer.at, media.generation_max)
        };
        verify::block(bytes, &expect).err().map(|error| error.to_string())
    }

    /// Every copy, in the order of mirrors.
    pub(super) fn copies(&self, pointer: &Pointer) -> Vec<Copy> {
        let media = self.media();
        let mut bytes = vec![0; media.node_bytes()];
        let each = |mirror| Copy {
            place: media.place(pointer.at.0, mirror),
            problem: match media.read_copy(pointer.at.0, &mut bytes, mirror) {
                Ok(()) => self.problem(pointer, &bytes),
                Err(error) => Some(error),
            },
        };
        (0..media.copies(pointer.at.0)).map(each).collect()
    }

    /// The block, from the best copy.
    pub(super) fn read(&self, pointer: &Pointer) -> Found {
        let media = self.media();
        let mut best = Found { bytes: None, problem: Some("an address in no chunk".to_owned()) };
        let mut is_sound = false;
        for mirror in 0..media.copies(pointer.at.0) {
            let mut bytes = vec![0; media.node_bytes()];
            if let Err(error) = media.read_copy(pointer.at.0, &mut bytes, mirror) {
                if best.bytes.is_none() {
                    best.problem = Some(error);
                }
                continue;
            }
            let problem = self.problem(pointer, &bytes);
            if problem.is_none() {
                return Found { bytes: Some(bytes), problem };
            }
            let has_checksum = media.has_right_checksum(&bytes);
            if best.bytes.is_none() || (has_checksum && !is_sound) {
                is_sound = has_checksum;
                best = Found { bytes: Some(bytes), problem };
            }
        }
        best
    }

    /// The root block of a tree.
    ///
    /// # Errors
    /// If there is no such tree, or the superblock and root item that give its address are lost.
    pub(super) fn root(&self, tree: TreeId) -> Result<Pointer> {
        let lost = |what: &str| {
            let text = format!("{what}; `spinney rescue roots` lists the roots it finds, `dump block` shows one block");
            Failure::new(Status::Corrupt, text)
        };
        let fields = self.rescue.superblock().ok_or_else(|| lost("no superblock is left"))?;
        let root = (Logical(fields.root.get()), Generation(fields.generation.get()));
        let roots = Pointer::root(TreeId::ROOT, root, fields.root_level);
        if tree == TreeId::ROOT {
            return Ok(roots);
        }
        if tree == TreeId::CHUNK {
            let root = (Logical(fields.chunk_root.get()), Generation(fields.chunk_root_generation.get()));
            return Ok(Pointer::root(tree, root, fields.chunk_root_level));
        }
        let (mut todo, mut is_damaged) = (vec![roots], false);
        while let Some(pointer) = todo.pop() {
            let found = self.read(&pointer);
            is_damaged |= found.problem.is_some();
            let Some(bytes) = found.bytes.filter(|_| found.problem.is_none()) else { continue };
            todo.extend(pointer.children(&bytes));
            if node::header(&bytes).is_some_and(|header| header.level > 0) {
                continue;
            }
            let leaf = LeafView::new(&bytes);
            let is_wanted = |key: &Key| key.objectid == tree.0 && key.item_type == item_type::ROOT_ITEM;
            let item = leaf.iter().find(|(key, _)| is_wanted(key)).map(|(_, data)| RootItem::read(data));
            if let Some(item) = item.transpose()? {
                return Ok(Pointer::root(tree, item.root_block(), item.level));
            }
        }
        match is_damaged {
            true => Err(lost("the root tree is damaged, and what is left of it does not name this tree").into()),
            false => Err(spinney::btrfs::store::Error::NoSuchTree(tree).into()),
        }
    }
}
