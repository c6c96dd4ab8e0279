//! Finds the root trees of older states, from the superblock, its backup roots and the scan. `rescue` lists them and
//! picks one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use btrfs_disk::TreeId;
use btrfs_disk::node::NodeView;
use btrfs_disk::superblock::DiskSuperblock;

use crate::blocks::{At, Blocks};
use crate::state::{Pick, State};

/// Limit on states examined, newest first.
const ROOTS_MAX: usize = 256;

/// How a root was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The root pointer of the superblock.
    Superblock,
    /// A backup root of the superblock.
    Backup,
    /// The scan.
    Scan,
}

/// A root of the root tree, and how much of its state is readable without guessing.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// The transaction that wrote it.
    pub generation: u64,
    /// Logical address of its block.
    pub at: u64,
    /// The most reliable source.
    pub source: Source,
    /// Newest time in its root items, seconds since 1970; 0 if none is readable.
    pub seconds: i64,
    /// Subvolumes that it lists, including the top level.
    pub subvolumes: usize,
    /// Subvolumes whose root block is readable.
    pub subvolumes_readable: usize,
    /// Whether the whole root tree is readable.
    pub is_whole: bool,
}

/// Root block of a root tree.
pub(crate) struct Start {
    pub(crate) at: At,
    pub(crate) level: u8,
    pub(crate) source: Source,
}

/// All known roots, newest first.
pub(crate) fn starts(blocks: &Blocks, fields: Option<&DiskSuperblock>) -> Vec<Start> {
    let mut found: BTreeMap<(u64, u64), Start> = BTreeMap::new();
    let mut add = |start: Start| {
        found.entry((start.at.generation, start.at.logical)).or_insert(start);
    };
    if let Some(fields) = fields {
        let at = At { logical: fields.root.get(), generation: fields.generation.get() };
        add(Start { at, level: fields.root_level, source: Source::Superblock });
        for backup in fields.super_roots.iter().filter(|backup| backup.tree_root.get() != 0) {
            let at = At { logical: backup.tree_root.get(), generation: backup.tree_root_gen.get() };
            add(Start { at, level: backup.tree_root_level, source: Source::Backup });
        }
    }
    let (table, owner) = (blocks.table(), TreeId::ROOT.0);
    let mut children: HashSet<At> = HashSet::new();
    for level in 1..btrfs_disk::node::LEVELS_MAX {
        for found in table.of(owner, level) {
            let at = At { logical: found.logical, generation: found.generation };
            let Some(block) = blocks.read(at, level) else { continue };
            let ptrs = NodeView::new(&block).ptrs().iter();
            children.extend(ptrs.map(|ptr| At { logical: ptr.blockptr.get(), generation: ptr.generation.get() }));
        }
    }
    for level in 0..btrfs_disk::node::LEVELS_MAX {
        for found in table.of(owner, level) {
            let at = At { logical: found.logical, generation: found.generation };
            if !children.contains(&at) {
                add(Start { at, level, source: Source::Scan });
            }
        }
    }
    found.into_values().rev().take(ROOTS_MAX).collect()
}

/// Examines the state of each root.
pub(crate) fn list(blocks: &Arc<Blocks>, fields: Option<&DiskSuperblock>) -> Vec<Root> {
    let looked = starts(blocks, fields).into_iter().filter_map(|start| {
        let Start { at, level, source } = start;
        let pick = Pick { root: Some((at, level)), generation_max: at.generation, is_strict: true };
        let state = State::open(blocks, pick);
        let subvolumes = state.subvolumes();
        if subvolumes.is_empty() && source == Source::Scan {
            return None;
        }
        let readable = subvolumes.iter().filter(|tree| {
            state.infos.get(tree).is_some_and(|info| info.root().is_some_and(|(at, level)| blocks.is_good(at, level)))
        });
        Some(Root {
            generation: at.generation,
            at: at.logical,
            source,
            seconds: state.infos.values().map(|info| info.seconds).max().unwrap_or(0),
            subvolumes: subvolumes.len(),
            subvolumes_readable: readable.count(),
            is_whole: !state.roots.is_damaged(),
        })
    });
    looked.collect()
}
