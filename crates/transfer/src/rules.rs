//! Makes the decisions of a transfer, independent of source and target: omitted files, and owner, permissions and
//! attributes of a copy. `walk` asks for each name; callers of a transfer set the rules.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use portable::OsStrExt as _;
use vfs::Metadata;
use vfs::file_system::{KnownNode, NodeKind, Time};
use vfs::privileges::CAPABILITY_NAME;

use crate::error::{Cause, Result};

/// The bits with which a program acts for the owner and for the group of its file.
pub const SET_ID: u32 = 0o4000 | SET_GROUP;
const SET_GROUP: u32 = 0o2000;

/// Device and inode number on the host, subvolume and inode number in a volume.
pub type FileId = (u64, u64);

/// The identity of a file within its source.
#[must_use]
pub const fn file_id(found: &Metadata) -> FileId {
    (found.home.subvolume, found.home.ino)
}

/// The rules of a copy: which nodes it has, and their owners and attributes. The default keeps everything.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Owner and group of all copies, instead of those of the source.
    pub owner: Option<(u32, u32)>,
    /// The copy may do what needs root. Without it, attributes of `security.` and `trusted.` are left out; a file that
    /// gets another owner loses its set-user and set-group bits and capability, and one that only gets another group
    /// its set-group bit.
    pub keeps_privileged: bool,
    /// Make character and block devices. Without it they are left out, and each is reported as
    /// [`crate::Loss::WithheldDevice`].
    pub makes_devices: bool,
    /// Files keep set-user and set-group bits and capabilities. Turn it off for an image that is not trusted: if root
    /// copies it, its set-user programs run with the rights of the owners that the image names.
    pub keeps_setid: bool,
    /// Directories on another file system than the top of the transfer are made, but stay empty.
    pub one_file_system: bool,
    /// No copy is newer: its modification time is this at most, and its other times are the modification time, since
    /// they depend on the machine that the source is on.
    pub latest: Option<Time>,
    /// A file to leave out: the image that is written.
    pub skip: Option<FileId>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            owner: None,
            keeps_privileged: true,
            makes_devices: true,
            keeps_setid: true,
            one_file_system: false,
            latest: None,
            skip: None,
        }
    }
}

impl Rules {
    /// The rules for copying out of an image that may be another user's: no device nodes, set-user bits, set-group bits
    /// or capabilities.
    #[must_use]
    pub fn untrusted() -> Self {
        Self { makes_devices: false, keeps_setid: false, ..Self::default() }
    }
}

/// Whether a name is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Make,
    /// A device node that the rules leave out.
    LeaveDevice,
    /// The file to skip.
    Skip,
}

/// The attributes that the rules took from a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Set-user or set-group bits, or the capability.
    pub(crate) power: bool,
    /// The copy has another owner or group than the source.
    pub(crate) is_disowned: bool,
    /// Privileged attributes.
    pub(crate) xattrs: usize,
}

impl Rules {
    pub(crate) fn decide(&self, found: &Metadata) -> Decision {
        if self.skip == Some(file_id(found)) {
            Decision::Skip
        } else if is_device(found.kind) && !self.makes_devices {
            Decision::LeaveDevice
        } else {
            Decision::Make
        }
    }

    /// Changes owner, permissions, times and attributes of a node to those that its copy gets.
    pub fn change(&self, node: &mut KnownNode) {
        self.apply(node);
    }

    /// As [`Rules::change`]; returns what was taken.
    pub(crate) fn apply(&self, node: &mut KnownNode) -> Taken {
        let found = &mut node.attr;
        let owner = self.owner.unwrap_or((found.uid, found.gid));
        let is_disowned = !self.keeps_privileged && owner != (found.uid, found.gid);
        let lost_bits = if found.is_dir() {
            0
        } else if !self.keeps_setid || (is_disowned && owner.0 != found.uid) {
            SET_ID
        } else if is_disowned {
            SET_GROUP
        } else {
            0
        };
        let mut taken = Taken { power: found.permissions & lost_bits != 0, is_disowned, xattrs: 0 };
        if let Some(latest) = self.latest {
            let time = found.mtime.min(latest);
            (found.mtime, found.atime, found.ctime, found.btime) = (time, time, time, time);
        }
        (found.uid, found.gid) = owner;
        found.permissions &= !lost_bits;
        if let Some(xattrs) = &mut node.xattrs {
            xattrs.retain(|(name, _)| {
                if lost_bits == SET_ID && name == CAPABILITY_NAME {
                    taken.power = true;
                    return false;
                }
                let is_kept = self.keeps_xattr(name);
                taken.xattrs = taken.xattrs.saturating_add(usize::from(!is_kept));
                is_kept
            });
        }
        taken
    }

    /// False for an attribute that only root may set, where that is not kept.
    pub(crate) fn keeps_xattr(&self, name: &[u8]) -> bool {
        self.keeps_privileged || !(name.starts_with(b"security.") || name.starts_with(b"trusted."))
    }
}

/// Refuses a name that would lead out of its directory.
pub(crate) fn check_name(name: &OsStr) -> Result<()> {
    let bytes = name.as_bytes();
    let is_plain = !bytes.is_empty() && bytes != b"." && bytes != b"..";
    if is_plain && !bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Ok(());
    }
    Err(Cause::BadName(name.to_string_lossy().escape_debug().to_string()).into())
}

pub(crate) const fn is_device(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice)
}

/// A path below `base`; the empty path is `base` itself.
pub(crate) fn joined(base: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { base.to_owned() } else { base.join(path) }
}

#[cfg(test)]
mod tests {
    use vfs::file_system::{Home, NodeFlags, Time};

    use super::*;

    fn program(uid: u32, gid: u32) -> KnownNode {
        let time = Time::default();
        let xattrs = [CAPABILITY_NAME, b"user.note"].map(|name| (name.to_vec(), b"x".to_vec())).to_vec();
        let attr = Metadata {
            ino: 7,
            kind: NodeKind::File,
            permissions: 0o6755,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            size: 0,
            blocks: 0,
            block_bytes: 4096,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            flags: NodeFlags::empty(),
            home: Home { subvolume: 5, ino: 7, generation: 0 },
        };
        KnownNode { attr, target: None, xattrs: Some(xattrs), data: None }
    }

    fn applied(rules: &Rules, mut node: KnownNode) -> (u32, usize, Taken) {
        let taken = rules.apply(&mut node);
        (node.attr.permissions, node.xattrs.map_or(0, |xattrs| xattrs.len()), taken)
    }

    #[test]
    fn power_goes_with_trust_and_with_the_owner() {
        let all = Rules::default();
        assert_eq!(applied(&all, program(1, 1)), (0o6755, 2, Taken::default()));
        let untrusted = Rules { keeps_setid: false, ..Rules::default() };
        let taken = Taken { power: true, ..Taken::default() };
        assert_eq!(applied(&untrusted, program(1, 1)), (0o755, 1, taken));
        // Root gives everything another owner, and means it.
        let given = Rules { owner: Some((2, 2)), ..Rules::default() };
        assert_eq!(applied(&given, program(1, 1)), (0o6755, 2, Taken::default()));
        // A user gets files of others without their power.
        let user = Rules { keeps_privileged: false, ..given };
        let taken = Taken { power: true, is_disowned: true, xattrs: 0 };
        assert_eq!(applied(&user, program(1, 2)), (0o755, 1, taken));
        let taken = Taken { xattrs: 1, ..taken };
        assert_eq!(applied(&user, program(2, 1)), (0o4755, 1, taken));
        let taken = Taken { power: false, is_disowned: false, xattrs: 1 };
        assert_eq!(applied(&user, program(2, 2)), (0o6755, 1, taken));
    }

    #[test]
    fn devices_and_one_file_are_left_out() {
        let rules = Rules { makes_devices: false, skip: Some((5, 8)), ..Rules::default() };
        let mut found = program(1, 1).attr;
        assert_eq!(rules.decide(&found), Decision::Make);
        found.kind = NodeKind::BlockDevice;
        assert_eq!(rules.decide(&found), Decision::LeaveDevice);
        found.home.ino = 8;
        assert_eq!(rules.decide(&found), Decision::Skip);
    }
}
