//! Collects the changes of each repair step as edits of items, as far as possible without touching the image: one
//! mender for each kind of damage.
//!
//! A mender reads the trees, not the findings, of which a report keeps only some: so it repairs all damage of its kind
//! at once. Items that the verifier refuses count as absent.
//!
//! A mender writes nothing: it fills [`Mending::edits`] and [`Mending::fresh`]. It fails where data cannot be read, or
//! where files contradict each other without a criterion. Caller: `round`.

pub(crate) mod checksums;
pub(crate) mod devices;
pub(crate) mod entries;
pub(crate) mod extents;
pub(crate) mod inodes;
pub(crate) mod names;
pub(crate) mod quotas;
pub(crate) mod roots;
pub(crate) mod supers;

use std::collections::BTreeMap;

use btrfs_disk::{Key, TreeId};

use crate::edit::Edits;
use crate::image::Image;
use crate::items::believed;
use crate::pack::OwnedItem;
use crate::survey::{Survey, items};

/// The input and output of menders.
pub(crate) struct Mending<'a> {
    pub(crate) image: &'a Image,
    pub(crate) survey: &'a Survey,
    /// Items to be changed.
    pub(crate) edits: Edits,
    /// Trees to be rebuilt, with all their items.
    pub(crate) fresh: BTreeMap<TreeId, Vec<OwnedItem>>,
}

impl Mending<'_> {
    /// Sets an item, or removes it.
    pub(crate) fn change(&mut self, tree: TreeId, key: Key, data: Option<Vec<u8>>) {
        self.edits.entry(tree).or_default().insert(key, data);
    }

    /// Calls `each` with the items of a tree that the verifier accepts, in order.
    pub(crate) fn each(&self, tree: TreeId, mut each: impl FnMut(&Key, &[u8])) {
        let Some(root) = self.root(tree) else { return };
        items(self.image, root, |key, data| {
            if let Some(data) = believed(self.image, tree, key, data) {
                each(key, &data);
            }
        });
    }

    /// Address and level of the root of a tree.
    pub(crate) fn root(&self, tree: TreeId) -> Option<(u64, u8)> {
        let fields = &self.image.fields;
        match tree {
            TreeId::ROOT => Some((fields.root.get(), fields.root_level)),
            TreeId::CHUNK => Some((fields.chunk_root.get(), fields.chunk_root_level)),
            _ => self.survey.root(tree).map(|root| (root.item.bytenr.get(), root.item.level)),
        }
    }

    /// True when a tree is missing, or a block of it cannot be read or is damaged.
    pub(crate) fn is_broken(&self, tree: TreeId) -> bool {
        self.root(tree).is_none()
            || self.survey.has_lost(tree)
            || self.survey.damaged.values().any(|damaged| *damaged == tree)
            || self.survey.stale.values().any(|stale| *stale == tree)
    }

    /// The subvolumes that are not being deleted.
    pub(crate) fn subvolumes(&self) -> Vec<TreeId> {
        let roots = self.survey.roots.iter().filter(|root| root.item.refs.get() > 0);
        roots.map(|root| TreeId(root.key.objectid)).filter(|tree| tree.is_subvolume()).collect()
    }
}
