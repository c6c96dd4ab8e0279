//! Lists all nodes of a source by their paths, for a comparison. `difference` calls it.
//!
//! Memory is a few hundred bytes for each node, as for a tree. Sockets are left out, since a layer cannot have them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use transfer::{Cause, FileId, Loss, NODE_COUNT_MAX, Observer, Source, file_id};
use vfs::file_system::{KnownNode, NodeKind};

use crate::error::{Error, Result};
use crate::listing;

/// A node at a path.
pub(super) struct Item {
    /// Attributes are in the order of their names.
    pub(super) node: KnownNode,
    /// The first path of a node that has several, in the order of paths.
    pub(super) first: Option<PathBuf>,
}

/// All nodes of a source by their paths; each directory comes before what is in it.
pub(super) type Inventory = BTreeMap<PathBuf, Item>;

/// Lists the nodes of a source. Sockets are reported to `watch`.
///
/// # Errors
/// Those of the source and of `watch`; a directory that contains itself; too many nodes.
pub(super) fn list<S: Source>(source: &S, watch: &dyn Observer) -> Result<Inventory> {
    let mut inventory = Inventory::new();
    let mut groups: HashMap<FileId, Vec<PathBuf>> = HashMap::new();
    let mut top = source.top(Path::new(""))?;
    top.xattrs = Some(listing::sorted_xattrs(&top));
    let mut waiting = vec![(PathBuf::new(), vec![file_id(&top.attr)])];
    inventory.insert(PathBuf::new(), Item { node: top, first: None });
    while let Some((dir, above)) = waiting.pop() {
        let open = source.open_dir(&dir)?;
        for name in listing::names(source, &open)? {
            watch.check()?;
            let path = dir.join(&name.name);
            let mut node = listing::look(source, &open, &name, &path)?.node;
            if node.attr.kind == NodeKind::Socket {
                watch.lost(Loss::Socket);
                continue;
            }
            let id = file_id(&node.attr);
            if node.attr.is_dir() {
                if above.contains(&id) {
                    return Err(transfer::Error::from(Cause::Cycle).about(&path).into());
                }
                waiting.push((path.clone(), above.iter().copied().chain([id]).collect()));
            } else if let Some(id) = listing::shared_id(&node) {
                groups.entry(id).or_default().push(path.clone());
            }
            node.xattrs = Some(listing::sorted_xattrs(&node));
            inventory.insert(path, Item { node, first: None });
            if inventory.len() > NODE_COUNT_MAX {
                let (place, limit) = (dir.display().to_string(), 16 << 20);
                return Err(Error::Limit { place, what: "nodes of a tree", limit });
            }
        }
    }
    for paths in groups.into_values().filter(|paths| paths.len() > 1) {
        let first = paths.iter().min().cloned();
        for path in paths {
            if let Some(item) = inventory.get_mut(&path) {
                item.first.clone_from(&first);
            }
        }
    }
    Ok(inventory)
}
