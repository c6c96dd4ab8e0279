//! Caches directories that were asked for lately, so that names made in them cost one message each. Called by `client`.

use vfs::file_system::{NodeAt, NodeId};

/// How many are remembered: threads of one command work in a few at a time.
const DIRS_MAX: usize = 16;

/// A directory, and one reference to it.
#[derive(Debug)]
struct Dir {
    path: Vec<u8>,
    at: NodeAt,
    /// Callers that believe to have a reference.
    uses: u32,
    /// The path still leads here.
    is_listed: bool,
}

/// The directories that are remembered, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Dirs(Vec<Dir>);

impl Dirs {
    /// The directory that a path leads to; the caller gives it back with [`Dirs::give_back`].
    pub(crate) fn find(&mut self, path: &[u8]) -> Option<NodeAt> {
        let dir = self.0.iter_mut().find(|dir| dir.is_listed && dir.path == path)?;
        dir.uses += 1;
        Some(dir.at)
    }

    /// Remembers a directory whose reference the caller has, and uses. Returns nodes to be released.
    pub(crate) fn remember(&mut self, path: &[u8], at: NodeAt) -> Vec<NodeId> {
        self.0.push(Dir { path: path.to_vec(), at, uses: 1, is_listed: true });
        let surplus = self.0.iter().filter(|dir| dir.is_listed).count().saturating_sub(DIRS_MAX);
        self.0.iter_mut().filter(|dir| dir.is_listed).take(surplus).for_each(|dir| dir.is_listed = false);
        self.unused()
    }

    /// Takes a reference back that [`Dirs::find`] or [`Dirs::remember`] lent; false for one that is none of theirs.
    /// Returns nodes to be given back with it.
    pub(crate) fn give_back(&mut self, node: NodeId) -> Option<Vec<NodeId>> {
        let dir = self.0.iter_mut().find(|dir| dir.at.node == node && dir.uses > 0)?;
        dir.uses -= 1;
        Some(self.unused())
    }

    /// Paths may lead elsewhere now. Returns nodes to be given back.
    pub(crate) fn forget_paths(&mut self) -> Vec<NodeId> {
        self.0.iter_mut().for_each(|dir| dir.is_listed = false);
        self.unused()
    }

    fn unused(&mut self) -> Vec<NodeId> {
        let is_unused = |dir: &mut Dir| dir.uses == 0 && !dir.is_listed;
        self.0.extract_if(.., is_unused).map(|dir| dir.at.node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::file_system::NodeKind;

    fn at(node: u64) -> NodeAt {
        NodeAt { node: NodeId(node), kind: NodeKind::Directory, is_referenced: true }
    }

    #[test]
    fn a_directory_in_use_is_kept_when_its_path_is_forgotten() {
        let mut dirs = Dirs::default();
        assert!(dirs.remember(b"/a", at(7)).is_empty());
        assert_eq!(dirs.find(b"/a"), Some(at(7)));
        assert!(dirs.forget_paths().is_empty());
        assert_eq!(dirs.find(b"/a"), None);
        assert_eq!(dirs.give_back(NodeId(7)), Some(Vec::new()));
        assert_eq!(dirs.give_back(NodeId(7)), Some(vec![NodeId(7)]));
        assert_eq!(dirs.give_back(NodeId(7)), None);
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut dirs = Dirs::default();
        for node in 0..20 {
            let path = node.to_string().into_bytes();
            dirs.remember(&path, at(node));
            dirs.give_back(NodeId(node));
        }
        assert_eq!(dirs.0.len(), DIRS_MAX);
        assert_eq!(dirs.find(b"3"), None);
        assert_eq!(dirs.find(b"4"), Some(at(4)));
    }
}
