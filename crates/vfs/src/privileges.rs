//! What a node loses when somebody writes to it or its owner changes.
//!
//! A program that runs as its owner must not be altered by another and keep that right. What goes
//! with the bits is [`CAPABILITY_NAME`], on every write, change of size and change of owner,
//! whoever makes it.

use crate::file_system::NodeKind;

/// Attribute with the capabilities that a program gets.
pub const CAPABILITY_NAME: &[u8] = b"security.capability";

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The permission bits that are left. Set-group without group execution is no privilege: it once
/// marked files for mandatory locks. On a directory both bits mean something else.
#[must_use]
pub const fn cleared(kind: NodeKind, permissions: u32) -> u32 {
    if matches!(kind, NodeKind::Directory) {
        return permissions;
    }
    let left = permissions & !SET_USER;
    if left & GROUP_EXECUTE == 0 {
        left
    } else {
        left & !SET_GROUP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_group_goes_with_group_execution_only() {
        assert_eq!(cleared(NodeKind::File, 0o6777), 0o777);
        assert_eq!(cleared(NodeKind::File, 0o6767), 0o2767);
        assert_eq!(cleared(NodeKind::File, 0o1777), 0o1777);
        assert_eq!(cleared(NodeKind::Directory, 0o6777), 0o6777);
    }
}
