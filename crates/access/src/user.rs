//! Describes the user for whom a request is made: user, groups, and whether it may act for others. The `mount` command
//! makes it from the credentials of a client of its socket; `permissions` checks against it.

/// A user, as the kernel reports it for a socket, or as a server maps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its number; 0 may do anything.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
    /// This user runs the server, and may do operations on the whole volume (trim, resize, default subvolume), but gets
    /// no rights on files beyond those of its uid and groups.
    pub serves: bool,
}

impl User {
    pub(crate) const fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub(crate) fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }
}
