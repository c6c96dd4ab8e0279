//! Lists all reasons for which an operation is impossible. The order in which several are checked is not defined, so a
//! volume may return any of them; but each has to hold. Called by `apply`, `property/run` and `property/generate`.

use super::{Kind, Model, Node, NodeId, Operation, Place, Role, names_of};
use std::path::Path;
use vfs::Errno;
use vfs::file_system::RenameFlags;

impl Model {
    /// Errors that a volume may return for an operation that [`Model::apply`] refused, besides the one returned there.
    #[must_use]
    pub fn reasons(&self, operation: &Operation) -> Vec<Errno> {
        use Operation as O;
        match operation {
            O::Create { path }
            | O::CreateDir { path }
            | O::Symlink { path, .. }
            | O::Node { path, .. }
            | O::CreateSubvolume { path } => self.against_new(path),
            O::Link { original, path } => self.against_link(original, path),
            O::Snapshot { source, path, .. } => {
                let mut reasons = self.against_new(path);
                if !self.found(source).is_some_and(|(_, id)| self.is_subvolume(id)) {
                    reasons.push(Errno::EINVAL);
                }
                reasons
            }
            O::Rename { from, to, flags } => self.against_rename(from, to, *flags),
            O::Remove { path } => self.against_removal(path, false),
            O::RemoveDir { path } => self.against_removal(path, true),
            O::Write { path, .. } | O::SetLen { path, .. } | O::Allocate { path, .. } => self.against_contents(path),
            O::Defragment { path, .. } => {
                let reasons = self.against_contents(path).into_iter();
                reasons.map(|reason| if reason == Errno::EOPNOTSUPP { Errno::EINVAL } else { reason }).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The place and node of a path; `None` if there is none.
    fn found(&self, path: &Path) -> Option<(Place, NodeId)> {
        let place = self.place(path).ok()?;
        let id = place.node?;
        Some((place, id))
    }

    fn is_directory(&self, id: NodeId) -> bool {
        self.node(id).and_then(Node::directory).is_some()
    }

    pub(super) fn is_subvolume(&self, id: NodeId) -> bool {
        matches!(self.role(id), Role::Subvolume | Role::Frozen)
    }

    fn is_frozen(&self, place: &Place) -> bool {
        self.role(place.subvolume) == Role::Frozen
    }

    /// A name that is to be made.
    fn against_new(&self, path: &Path) -> Vec<Errno> {
        let mut reasons = Vec::new();
        // The root has no name.
        if names_of(path).next().is_none() {
            reasons.push(Errno::EINVAL);
        }
        match self.place(path) {
            Err(error) => reasons.push(error),
            Ok(place) => {
                reasons.extend(place.node.map(|_| Errno::EEXIST));
                reasons.extend(self.is_frozen(&place).then_some(Errno::EROFS));
            }
        }
        reasons
    }

    fn against_link(&self, original: &Path, path: &Path) -> Vec<Errno> {
        let mut reasons = self.against_new(path);
        let (source, target) = (self.place(original), self.place(path));
        match &source {
            Err(error) => reasons.push(*error),
            Ok(Place { node: None, .. }) => reasons.push(Errno::ENOENT),
            Ok(Place { node: Some(id), .. }) if self.is_directory(*id) => reasons.push(Errno::EPERM),
            Ok(_) => {}
        }
        if let (Ok(source), Ok(target)) = (source, target)
            && source.subvolume != target.subvolume
        {
            reasons.push(Errno::EXDEV);
        }
        reasons
    }

    fn against_rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> Vec<Errno> {
        let mut reasons = Vec::new();
        let (source, target) = match (self.place(from), self.place(to)) {
            (Ok(source), Ok(target)) => (source, target),
            (source, target) => {
                reasons.extend(source.err());
                reasons.extend(target.err());
                return reasons;
            }
        };
        if self.is_frozen(&source) || self.is_frozen(&target) {
            reasons.push(Errno::EROFS);
        }
        if source.subvolume != target.subvolume {
            reasons.push(Errno::EXDEV);
        }
        // Neither the root nor a directory on the way to the other name can be moved there.
        let is_above = |node: Option<NodeId>, place: &Place| node.is_some_and(|id| place.trail.contains(&id));
        let is_exchange = flags == RenameFlags::EXCHANGE;
        if is_above(source.node, &target) || is_exchange && is_above(target.node, &source) {
            reasons.push(Errno::EINVAL);
        }
        match (source.node, target.node) {
            (None, _) => reasons.push(Errno::ENOENT),
            (_, None) if is_exchange => reasons.push(Errno::ENOENT),
            (_, Some(_)) if flags.contains(RenameFlags::NO_REPLACE) => {
                reasons.push(Errno::EEXIST);
            }
            (Some(new), Some(old)) if !is_exchange => reasons.extend(self.against_replacing(new, old)),
            _ => {}
        }
        reasons
    }

    fn against_replacing(&self, new: NodeId, old: NodeId) -> Vec<Errno> {
        let mut reasons = Vec::new();
        match (self.is_directory(new), self.is_directory(old)) {
            (true, false) => reasons.push(Errno::ENOTDIR),
            (false, true) => reasons.push(Errno::EISDIR),
            _ => {}
        }
        let entries = self.node(old).and_then(Node::directory).map_or(0, |directory| directory.entries.len());
        if entries > 0 {
            reasons.push(Errno::ENOTEMPTY);
        }
        reasons
    }

    fn against_removal(&self, path: &Path, wants_directory: bool) -> Vec<Errno> {
        let Some((place, id)) = self.found(path) else { return Vec::new() };
        let mut reasons = Vec::new();
        match (self.is_directory(id), wants_directory) {
            (true, false) => reasons.push(Errno::EISDIR),
            (false, true) => reasons.push(Errno::ENOTDIR),
            _ => {}
        }
        if self.is_frozen(&place) {
            reasons.push(Errno::EROFS);
        }
        reasons
    }

    fn against_contents(&self, path: &Path) -> Vec<Errno> {
        let Some((place, id)) = self.found(path) else { return Vec::new() };
        let mut reasons = Vec::new();
        match self.node(id).map(|node| &node.kind) {
            Some(Kind::Directory(_)) => reasons.push(Errno::EISDIR),
            Some(Kind::Symlink(_) | Kind::Special(..)) => reasons.push(Errno::EOPNOTSUPP),
            _ => {}
        }
        if self.is_frozen(&place) || self.role(id) == Role::Frozen {
            reasons.push(Errno::EROFS);
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn path(path: &str) -> PathBuf {
        PathBuf::from(path)
    }

    #[test]
    fn only_what_holds_is_a_reason() {
        let mut model = Model::new();
        model.apply(&Operation::CreateDir { path: path("/dir") }).unwrap();
        model.apply(&Operation::Create { path: path("/file") }).unwrap();
        let link = |original: &str, to: &str| Operation::Link { original: path(original), path: path(to) };
        assert_eq!(model.reasons(&link("/dir", "/new")), [Errno::EPERM]);
        assert_eq!(model.reasons(&link("/dir", "/file")), [Errno::EEXIST, Errno::EPERM]);
        assert_eq!(model.reasons(&link("/file", "/dir")), [Errno::EEXIST]);
        assert_eq!(model.reasons(&link("/file", "/new")), []);
        let rename =
            |from: &str, to: &str| Operation::Rename { from: path(from), to: path(to), flags: RenameFlags::empty() };
        assert_eq!(model.reasons(&rename("/dir", "/dir/below")), [Errno::EINVAL]);
        assert_eq!(model.reasons(&rename("/file", "/dir")), [Errno::EISDIR]);
        assert_eq!(model.reasons(&rename("/file", "/other")), []);
        assert_eq!(model.reasons(&Operation::Remove { path: path("/dir") }), [Errno::EISDIR]);
        assert_eq!(model.reasons(&Operation::RemoveDir { path: path("/dir") }), []);
    }
}
