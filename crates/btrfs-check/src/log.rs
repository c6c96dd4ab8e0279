//! Checks log trees, the log pass: their blocks are readable, each log tree is of an existing subvolume, and its data
//! is recorded, to be compared with the checksums. Called by `run`.

use std::collections::BTreeSet;
use std::io;

use btrfs_disk::flags::InodeFlags;
use btrfs_disk::items::{FileExtent, InodeItem, OnDisk as _, RootItem};
use btrfs_disk::key::item_type;
use btrfs_disk::node::LeafView;
use btrfs_disk::{Key, Logical, TreeId};

use crate::code::Code;
use crate::collect::{Collector, csum_geometry};
use crate::context::Context;
use crate::finding::Place;
use crate::order;
use crate::pointer::{Class, Pointer};
use crate::sort::lock;
use crate::walk::Walk;

/// Extents, and ranges of checksums, that are recorded of a log.
const EXTENTS_MAX: usize = 1 << 20;

/// Walks the log, if there is one.
///
/// # Errors
/// The host's, where records did not fit into memory.
pub(crate) fn walk(cx: &Context<'_>, collector: &Collector) -> io::Result<()> {
    let at = cx.fields.log_root.get();
    if at == 0 {
        return Ok(());
    }
    // Blocks of an fsync have the generation of the transaction that was not committed.
    let generation = cx.fields.generation.get().saturating_add(1);
    let root = Pointer::root(TreeId::TREE_LOG.0, at, cx.fields.log_root_level, generation);
    let walk = Walk::new(cx, collector, Class::Log);
    walk.push(&root);
    walk.run()?;
    let known: Vec<u64> = lock(&collector.facts).roots.iter().map(|(key, _)| key.objectid).collect();
    let walk = Walk::new(cx, collector, Class::Log);
    let logs = logs(cx, at, cx.fields.log_root_level);
    for (key, item) in &logs {
        if !known.contains(&key.offset) {
            let place = Place::tree(TreeId::TREE_LOG.0).key(*key);
            cx.findings.add(Code::LogRoot, place, "a subvolume that exists", key.offset);
        }
        let (at, generation) = item.root_block();
        walk.push(&Pointer::root(TreeId::TREE_LOG.0, at.0, item.level, generation.0));
    }
    walk.run()?;
    // A damaged log may name one tree repeatedly.
    let mut seen = BTreeSet::new();
    for (_, item) in logs.iter().filter(|(_, item)| seen.insert(item.bytenr.get())) {
        data(cx, item);
    }
    Ok(())
}

/// Extents and checksums of one subvolume's log.
fn data(cx: &Context<'_>, root: &RootItem) {
    let geometry = csum_geometry(cx);
    let mut found = lock(&cx.log);
    let mut has_checksums = (0, true);
    for leaf in order::leaves(&cx.media, root.bytenr.get(), root.level) {
        let Some(block) = cx.media.read_block(leaf) else { continue };
        for (key, data) in LeafView::new(&block).iter() {
            if found.extents.len().max(found.csums.len()) >= EXTENTS_MAX {
                cx.note("log: only a part of its data was compared with checksums: it has too many extents");
                return;
            }
            match key.item_type {
                item_type::INODE_ITEM => {
                    let has = |item: &InodeItem| !item.inode_flags().contains(InodeFlags::NODATASUM);
                    has_checksums = (key.objectid, InodeItem::parse(data).is_ok_and(has));
                }
                item_type::EXTENT_DATA => {
                    let Ok(FileExtent::Extent(extent)) = FileExtent::parse(data) else { continue };
                    let Some((start, end)) = extent.data_range() else { continue };
                    let record = [start, end, TreeId::TREE_LOG.0, key.objectid];
                    found.extents.push(record);
                    if has_checksums == (key.objectid, true) {
                        found.needs.push(record);
                    }
                }
                item_type::EXTENT_CSUM => {
                    let end = geometry.end(Logical(key.offset), data.len());
                    found.csums.push((key.offset, end.0));
                }
                _ => {}
            }
        }
    }
}

fn logs(cx: &Context<'_>, at: u64, level: u8) -> Vec<(Key, RootItem)> {
    let mut logs = Vec::new();
    for leaf in order::leaves(&cx.media, at, level) {
        let Some(block) = cx.media.read_block(leaf) else { continue };
        let items = LeafView::new(&block);
        let roots = items.iter().filter(|(key, _)| key.item_type == item_type::ROOT_ITEM);
        logs.extend(roots.filter_map(|(key, data)| RootItem::read(data).ok().map(|item| (key, item))));
    }
    logs
}
