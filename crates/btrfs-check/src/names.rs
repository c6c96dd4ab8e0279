//! Finds the paths of findings: of an inode or a subvolume, from the top level. Called by `run` at the end, and by the
//! data pass.

use std::collections::HashMap;

use btrfs_disk::Key;
use btrfs_disk::TreeId;
use btrfs_disk::items::{FileExtent, InodeExtrefEntry, RootItem, RootRefEntry};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::node::{LeafView, header};
use btrfs_disk::superblock::DiskSuperblock;

use crate::finding::{Finding, Place};
use crate::media::Media;
use crate::order::at_or_after;

/// Directories above an inode, and subvolumes above a subvolume, that are followed.
const DEPTH_MAX: usize = 256;

/// Adds paths to all findings that name an inode or a subvolume.
pub(crate) fn add_paths(media: &Media, fields: &DiskSuperblock, findings: &mut [Finding]) {
    let mut names = Names { media, root: (fields.root.get(), fields.root_level), trees: HashMap::new() };
    let mut known: HashMap<(u64, Option<u64>), Option<String>> = HashMap::new();
    for finding in findings {
        let Some(tree) = finding.place.tree.filter(|tree| TreeId(*tree).is_subvolume()) else { continue };
        let inode = finding.place.inode;
        let path = known.entry((tree, inode)).or_insert_with(|| names.path(tree, inode));
        finding.place.path.clone_from(path);
    }
}

struct Names<'a> {
    media: &'a Media,
    root: (u64, u8),
    trees: HashMap<u64, Option<(u64, u8)>>,
}

impl Names<'_> {
    fn tree(&mut self, tree: u64) -> Option<(u64, u8)> {
        let (media, root) = (self.media, self.root);
        *self.trees.entry(tree).or_insert_with(|| {
            let (key, data) = at_or_after(media, root, &Key::new(tree, item_type::ROOT_ITEM, 0))?;
            let item = RootItem::read(&data).ok().filter(|_| key.objectid == tree)?;
            Some((item.bytenr.get(), item.level))
        })
    }

    fn path(&mut self, tree: u64, inode: Option<u64>) -> Option<String> {
        let mut parts: Vec<String> = Vec::new();
        let mut at = (tree, inode.unwrap_or(objectid::FIRST_FREE));
        for _ in 0..DEPTH_MAX {
            if at.1 == objectid::FIRST_FREE {
                if at.0 == TreeId::FS.0 {
                    parts.reverse();
                    return Some(format!("/{}", parts.join("/")));
                }
                let (key, data) = at_or_after(self.media, self.root, &Key::new(at.0, item_type::ROOT_BACKREF, 0))?;
                let entry = RootRefEntry::parse(&data).ok();
                let entry = entry.filter(|_| key.objectid == at.0 && key.item_type == item_type::ROOT_BACKREF)?;
                parts.push(shown(entry.name));
                at = (key.offset, entry.dir.0);
                continue;
            }
            let root = self.tree(at.0)?;
            let (key, data) = at_or_after(self.media, root, &Key::new(at.1, item_type::INODE_REF, 0))?;
            let is_name =
                key.objectid == at.1 && matches!(key.item_type, item_type::INODE_REF | item_type::INODE_EXTREF);
            let entry = InodeExtrefEntry::iter_either(&key, &data).next()?.ok().filter(|_| is_name)?;
            parts.push(shown(entry.name));
            at = (at.0, entry.parent.0);
        }
        None
    }
}

/// A name with control characters escaped.
fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// The first file of a leaf that refers to the data extent with this address in it.
pub(crate) fn holder_of_leaf(media: &Media, leaf: u64, at: u64) -> Option<Place> {
    let block = media.read_block(leaf)?;
    let tree = header(&block)?.owner.get();
    let items = LeafView::new(&block);
    let mut extents = items.iter().filter(|(key, _)| key.item_type == item_type::EXTENT_DATA);
    let holder = extents.find(|(_, data)| match FileExtent::parse(data) {
        Ok(FileExtent::Extent(extent)) => {
            let start = extent.disk_bytenr.get();
            (start..start.saturating_add(extent.disk_num_bytes.get())).contains(&at)
        }
        _ => false,
    });
    holder.map(|(key, _)| Place::inode(tree, key.objectid))
}
