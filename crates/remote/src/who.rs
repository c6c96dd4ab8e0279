//! Who asks.

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// Its number; 0 may do anything.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Other groups that it is in.
    pub groups: Vec<u32>,
    /// What is mounted is its own: it started the server.
    pub serves: bool,
}

impl Who {
    pub(crate) const fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub(crate) fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }
}

/// What a job does, which decides who may ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Tells what everybody may know of a file system that is mounted.
    Tells,
    /// Reads what it names, whatever the permissions are: for root and who serves.
    Reads,
    /// Changes something: for the same, where the mount may be written to.
    Changes,
}
