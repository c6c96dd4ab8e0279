//! Maps node numbers, as [`NodeId`], to inodes of subvolumes. Used by `names`, `list` and the other modules of
//! `vfs_impl` for each node of a request.
//!
//! The number contains both, so that no table is needed: the mounted subvolume's root directory is 1, all other inodes
//! are their own numbers with the subvolume's number above them, that of the mounted one too, so that a number means
//! the same file in every mount of the image: the kernel makes file handles of it, which outlive a mount. (`stat` shows
//! the inodes of the mounted subvolume without it.) Other numbers are kept in a table: very large ones, and the empty
//! directories that stand for nested subvolumes in a snapshot, which all share one inode number. Only the mounted
//! subvolume needs no table even where its number is too large: its inodes have zero above them, which is not valid in
//! another mount, see [`Nodes::lasting`].

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use btrfs_disk::{InodeNo, TreeId};
use vfs::NodeId;

use crate::dir::Found;
use crate::inode::{EMPTY_SUBVOL_INO, ROOT_DIR_INO};
use crate::locks::{Mutex, Rank};

/// Bits of the inode number in a node's number.
const INO_BITS: u32 = 44;
/// The inode number in a node's number.
const INO_MASK: u64 = (1 << INO_BITS) - 1;
/// Subvolumes with numbers below this fit above the inode number.
const TREES_END: u64 = 1 << 19;
/// Marks numbers from the table.
const ODD_BIT: u64 = 1 << 63;

/// The place of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// An inode of a subvolume.
    Inode(TreeId, InodeNo),
    /// The stand-in of a nested subvolume, by the directory that it is in and its name there.
    StandIn(TreeId, InodeNo, Box<[u8]>),
}

/// All numbers that were given out.
#[derive(Debug)]
pub(super) struct Nodes {
    top: TreeId,
    /// Keys every hash, since images choose the places and must not choose their numbers.
    secret: u64,
    odd: Mutex<HashMap<u64, Odd>>,
}

#[derive(Debug)]
struct Odd {
    place: Place,
    known_count: u64,
}

impl Place {
    /// The place of the inode found by `name` in the directory (tree, dir).
    pub(super) fn of(found: Found, tree: TreeId, dir: InodeNo, name: &[u8]) -> Self {
        if found.ino == EMPTY_SUBVOL_INO {
            Self::StandIn(tree, dir, name.into())
        } else {
            Self::Inode(found.tree, found.ino)
        }
    }

    /// The inode in memory for the place.
    pub(super) fn inode(&self) -> (TreeId, InodeNo) {
        match self {
            Self::Inode(tree, ino) => (*tree, *ino),
            Self::StandIn(tree, ..) => (*tree, EMPTY_SUBVOL_INO),
        }
    }
}

impl Nodes {
    pub(super) fn new(top: TreeId, secret: u64) -> Self {
        Self { top, secret, odd: Mutex::new(Rank::Lists, HashMap::new()) }
    }

    /// The subvolume with the root directory [`NodeId::ROOT`].
    pub(super) fn top(&self) -> TreeId {
        self.top
    }

    /// The number of an inode, when it needs no table.
    pub(super) fn number(&self, tree: TreeId, ino: InodeNo) -> Option<u64> {
        if ino.0 >> INO_BITS != 0 || ino == EMPTY_SUBVOL_INO {
            return None;
        }
        match tree {
            tree if tree == self.top && ino == ROOT_DIR_INO => Some(NodeId::ROOT.0),
            tree if tree.0 < TREES_END => Some((tree.0 << INO_BITS) | ino.0),
            tree => (tree == self.top).then_some(ino.0),
        }
    }

    /// The inode of a number that needs no table, and that every server of the image, earlier and later ones too, gives
    /// to the same inode. The number may be made up.
    pub(super) fn lasting(&self, node: NodeId) -> Option<(TreeId, InodeNo)> {
        let (tree, ino) = self.inode(node)?;
        let is_lasting = node == NodeId::ROOT || tree.0 < TREES_END;
        let is_own = ino.0 >= ROOT_DIR_INO.0 && self.number(tree, ino) == Some(node.0);
        (is_lasting && is_own).then_some((tree, ino))
    }

    /// The number of a node that `stat` shows.
    pub(super) fn shown(&self, node: NodeId) -> u64 {
        match node.0 {
            1 => ROOT_DIR_INO.0,
            number if number >> INO_BITS == self.top.0 => number & INO_MASK,
            number => number,
        }
    }

    /// The number of a place in a directory listing.
    pub(super) fn shown_place(&self, place: &Place) -> u64 {
        let number = match place {
            Place::Inode(tree, ino) => self.number(*tree, *ino),
            Place::StandIn(..) => None,
        };
        self.shown(NodeId(number.unwrap_or_else(|| self.odd_number(place))))
    }

    /// The number of a place to which a server gets a reference; [`Nodes::forget_odd`] drops it.
    pub(super) fn take(&self, place: Place) -> NodeId {
        if let Place::Inode(tree, ino) = place
            && let Some(number) = self.number(tree, ino)
        {
            return NodeId(number);
        }
        let mut number = self.odd_number(&place);
        let mut odd = self.odd.lock();
        while odd.get(&number).is_some_and(|odd| odd.place != place) {
            number = number.wrapping_add(1) | ODD_BIT;
        }
        let odd = odd.entry(number).or_insert(Odd { place, known_count: 0 });
        odd.known_count += 1;
        NodeId(number)
    }

    /// The place of a node; `None` for a number that was never given out, or is forgotten.
    pub(super) fn place(&self, node: NodeId) -> Option<Place> {
        if node.0 & ODD_BIT != 0 {
            return Some(self.odd.lock().get(&node.0)?.place.clone());
        }
        let (tree, ino) = self.inode(node)?;
        Some(Place::Inode(tree, ino))
    }

    /// The inode of a node.
    pub(super) fn inode(&self, node: NodeId) -> Option<(TreeId, InodeNo)> {
        match node.0 {
            0 => None,
            1 => Some((self.top, ROOT_DIR_INO)),
            number if number & ODD_BIT != 0 => Some(self.odd.lock().get(&number)?.place.inode()),
            number if number >> INO_BITS == 0 => Some((self.top, InodeNo(number))),
            number => Some((TreeId(number >> INO_BITS), InodeNo(number & INO_MASK))),
        }
    }

    /// True for a number from the table, which is dropped with the last reference to it.
    pub(super) fn is_in_table(&self, node: NodeId) -> bool {
        node.0 & ODD_BIT != 0
    }

    /// Drops references to a number from the table; others are counted by the inode.
    pub(super) fn forget_odd(&self, node: NodeId, count: u64) {
        if node.0 & ODD_BIT == 0 {
            return;
        }
        let mut odd = self.odd.lock();
        if let Some(entry) = odd.get_mut(&node.0) {
            entry.known_count = entry.known_count.saturating_sub(count);
            if entry.known_count == 0 {
                odd.remove(&node.0);
            }
        }
    }

    fn odd_number(&self, place: &Place) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.secret);
        place.hash(&mut hasher);
        hasher.finish() | ODD_BIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_inodes() {
        let nodes = Nodes::new(TreeId(256), 7);
        for (tree, ino) in [
            (256, 256),
            (256, 257),
            (5, 256),
            (5, 300),
            (300, 256),
            ((1 << 19) - 1, (1 << 44) - 1),
            (1 << 19, 256),
            (256, 1 << 44),
            (5, u64::MAX - 300),
        ] {
            let place = Place::Inode(TreeId(tree), InodeNo(ino));
            let node = nodes.take(place.clone());
            assert_eq!(nodes.place(node), Some(place), "{tree} {ino}");
            assert_eq!(nodes.inode(node), Some((TreeId(tree), InodeNo(ino))));
        }
        assert_eq!(nodes.inode(NodeId::ROOT), Some((TreeId(256), ROOT_DIR_INO)));
        assert_eq!(nodes.shown(NodeId::ROOT), 256);
        let node = nodes.take(Place::Inode(TreeId(256), InodeNo(300)));
        assert_eq!(nodes.shown(node), 300);
    }

    /// A file handle of one mount, used in a mount of another subvolume, led to the file with the same number there,
    /// which in a snapshot has the same generation too.
    #[test]
    fn a_number_means_the_same_inode_whatever_is_mounted() {
        let mounts = [256, 5, 300, 1 << 20].map(|top| Nodes::new(TreeId(top), 7));
        let place = |tree: u64| Place::Inode(TreeId(tree), InodeNo(300));
        for from in &mounts {
            for tree in [5, 256, 300, (1 << 19) - 1] {
                let node = from.take(place(tree));
                for to in &mounts {
                    assert_eq!(to.lasting(node), Some((TreeId(tree), InodeNo(300))));
                }
            }
        }
        // The number of the subvolume does not fit.
        for nodes in &mounts {
            let node = nodes.take(place(1 << 20));
            assert_eq!(nodes.lasting(node), None);
            assert_eq!(nodes.inode(node), Some((TreeId(1 << 20), InodeNo(300))));
        }
    }

    #[test]
    fn numbers_that_were_never_given_out_lead_nowhere() {
        let nodes = Nodes::new(TreeId(256), 7);
        let of = |tree: u64, ino: u64| NodeId((tree << INO_BITS) | ino);
        // The root by another number, the stand-in, numbers that no file can have, and one that would be in the table.
        for node in [of(256, 256), of(0, 300), of(0, 2), of(5, 2), of(5, 0), of(5, 255), NodeId(0), NodeId(u64::MAX)] {
            assert_eq!(nodes.lasting(node), None, "{node:?}");
        }
        assert_eq!(nodes.lasting(NodeId::ROOT), Some((TreeId(256), ROOT_DIR_INO)));
        assert_eq!(nodes.lasting(of(5, 256)), Some((TreeId::FS, ROOT_DIR_INO)));
    }

    #[test]
    fn stand_ins_have_numbers_of_their_own_until_they_are_forgotten() {
        let nodes = Nodes::new(TreeId::FS, 7);
        let place = |name: &[u8]| Place::StandIn(TreeId(256), InodeNo(256), name.into());
        let (a, b) = (nodes.take(place(b"a")), nodes.take(place(b"b")));
        assert_ne!(a, b);
        assert_eq!(nodes.take(place(b"a")), a);
        assert_eq!(nodes.shown_place(&place(b"a")), a.0);
        nodes.forget_odd(a, 1);
        assert_eq!(nodes.inode(a), Some((TreeId(256), EMPTY_SUBVOL_INO)));
        nodes.forget_odd(a, 1);
        assert_eq!(nodes.inode(a), None);
        assert!(nodes.place(b).is_some());
    }
}
