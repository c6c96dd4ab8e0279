//! The log of fsyncs: its blocks can be read, and each part is for a subvolume that exists.

use std::io;

use btrfs_disk::items::RootItem;
use btrfs_disk::key::item_type;
use btrfs_disk::node::LeafView;
use btrfs_disk::{Key, TreeId};

use crate::code::Code;
use crate::collect::Collector;
use crate::context::Context;
use crate::finding::Place;
use crate::order;
use crate::pointer::{Class, Pointer};
use crate::sort::lock;
use crate::walk::Walk;

/// Walks the log, if there is one.
///
/// # Errors
/// The host's, where records did not fit into memory.
pub(crate) fn walk(cx: &Context<'_>, collector: &Collector) -> io::Result<()> {
    let at = cx.fields.log_root.get();
    if at == 0 {
        return Ok(());
    }
    // What an fsync writes belongs to the transaction that never was committed.
    let generation = cx.fields.generation.get().saturating_add(1);
    let root = Pointer::root(TreeId::TREE_LOG.0, at, cx.fields.log_root_level, generation);
    let walk = Walk::new(cx, collector, Class::Log);
    walk.push(&root);
    walk.run()?;
    let known: Vec<u64> = lock(&collector.facts).roots.iter().map(|(key, _)| key.objectid).collect();
    let walk = Walk::new(cx, collector, Class::Log);
    for (key, item) in logs(cx, at, cx.fields.log_root_level) {
        if !known.contains(&key.offset) {
            let place = Place::tree(TreeId::TREE_LOG.0).key(key);
            cx.findings.add(Code::LogRoot, place, "a subvolume that exists", key.offset);
        }
        let (at, generation) = item.root_block();
        walk.push(&Pointer::root(TreeId::TREE_LOG.0, at.0, item.level, generation.0));
    }
    walk.run()
}

fn logs(cx: &Context<'_>, at: u64, level: u8) -> Vec<(Key, RootItem)> {
    let mut logs = Vec::new();
    for run in order::runs(&cx.media, at, level) {
        for leaf in run.leaves {
            let Some(block) = cx.media.read_block(leaf) else { continue };
            let items = LeafView::new(&block);
            let roots = items.iter().filter(|(key, _)| key.item_type == item_type::ROOT_ITEM);
            logs.extend(roots.filter_map(|(key, data)| RootItem::read(data).ok().map(|item| (key, item))));
        }
    }
    logs
}
