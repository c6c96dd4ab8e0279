//! Records the references and openings of a client, so that they can be checked, and released at its end. Called by
//! `serve`.

use std::collections::HashMap;

use vfs::file_system::{Handle, NodeId, OpenFlags};

/// Nodes that one client may hold.
const NODES_MAX: usize = 1 << 20;
/// Files that one client may have open.
const OPENINGS_MAX: usize = 1 << 14;

/// Nodes with the number of references, and openings with their flags and number.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) nodes: HashMap<NodeId, u64>,
    pub(crate) openings: HashMap<(NodeId, Handle), (OpenFlags, u32)>,
}

impl Held {
    pub(crate) fn has_node(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node) || self.openings.keys().any(|(of, _)| *of == node)
    }

    /// One more reference; false where there are too many nodes.
    pub(crate) fn add_node(&mut self, node: NodeId) -> bool {
        let has_room = self.nodes.len() < NODES_MAX || self.nodes.contains_key(&node);
        if has_room {
            *self.nodes.entry(node).or_default() += 1;
        }
        has_room
    }

    /// Takes back as many references as there are of `count`; returns how many.
    pub(crate) fn drop_node(&mut self, node: NodeId, count: u64) -> u64 {
        let Some(has) = self.nodes.get_mut(&node) else { return 0 };
        let count = count.min(*has);
        *has -= count;
        if *has == 0 {
            self.nodes.remove(&node);
        }
        count
    }

    /// One more opening; false where there are too many.
    pub(crate) fn add_opening(&mut self, node: NodeId, handle: Handle, flags: OpenFlags) -> bool {
        if self.openings.len() >= OPENINGS_MAX {
            return false;
        }
        let (has, count) = self.openings.entry((node, handle)).or_default();
        *has |= flags;
        *count += 1;
        true
    }

    /// Takes an opening back; false where there is none.
    pub(crate) fn drop_opening(&mut self, node: NodeId, handle: Handle) -> bool {
        let Some((_, count)) = self.openings.get_mut(&(node, handle)) else { return false };
        *count -= 1;
        if *count == 0 {
            self.openings.remove(&(node, handle));
        }
        true
    }

    /// The flags of an opening.
    pub(crate) fn flags_of(&self, node: NodeId, handle: Handle) -> Option<OpenFlags> {
        self.openings.get(&(node, handle)).map(|(flags, _)| *flags)
    }
}
