//! Locks the names of several inodes at once, in a fixed order against deadlocks. Called by rename, link and unlink.

use std::cmp::Ordering;

use super::{DirState, Inode};
use crate::locks::WriteGuard;

/// Inodes that one operation locks at most: two directories and two children.
const LOCKED_MAX: usize = 4;

/// Write locks on the names of several inodes.
pub(crate) struct NameLocks<'a> {
    held: [Option<(&'a Inode, WriteGuard<'a, DirState>)>; LOCKED_MAX],
}

/// Locks the names of several inodes in the order that all threads use: ascending by tree and number. An inode that
/// occurs twice is locked once.
///
/// Names that led to these inodes may have changed before the locks were taken: look them up again.
pub(crate) fn lock_all<'a>(inodes: [Option<&'a Inode>; LOCKED_MAX]) -> NameLocks<'a> {
    let mut order = inodes;
    order.sort_unstable_by(|a, b| match (a, b) {
        (Some(a), Some(b)) => (a.tree_id(), a.ino()).cmp(&(b.tree_id(), b.ino())),
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
    });
    let mut locks = NameLocks { held: [const { None }; LOCKED_MAX] };
    let mut last: Option<&Inode> = None;
    for (slot, inode) in locks.held.iter_mut().zip(order) {
        let Some(inode) = inode else { break };
        if last.is_none_or(|last| !std::ptr::eq(last, inode)) {
            *slot = Some((inode, inode.lock_names()));
        }
        last = Some(inode);
    }
    locks
}

impl NameLocks<'_> {
    /// The state of `inode`, which must be one of those locked.
    pub(crate) fn of(&mut self, inode: &Inode) -> &mut DirState {
        self.held
            .iter_mut()
            .flatten()
            .find_map(|(held, guard)| std::ptr::eq(*held, inode).then_some(&mut **guard))
            .expect("callers ask for inodes they locked")
    }
}
