//! Parses and encodes POSIX access control lists, as Linux keeps them in `system.posix_acl_access` and
//! `system.posix_acl_default` (version 2, little endian).
//!
//! Pure functions: a file system stores the bytes, and asks here for the permission bits that a list implies. The
//! kernel decides about access. Callers: the engines' `vfs_impl` modules, and `access`.
//!
//! Invariants of an [`Acl`]: exactly one entry each for the owner, the owning group and all
//! others; entries for named users stand behind the owner's, those for named groups behind the
//! owning group's, the mask and the others last; with named entries there is a mask.

use crate::file_system::{Errno, Result};

/// Attribute that holds the list that guards a node.
pub const ACCESS_NAME: &[u8] = b"system.posix_acl_access";
/// Attribute that holds the list that new nodes of a directory get.
pub const DEFAULT_NAME: &[u8] = b"system.posix_acl_default";

/// Version of the attribute's value: its first four bytes.
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// Id in entries without a user or group, and never the id of one.
const NO_ID: u32 = u32::MAX;
const PERMISSION_MASK: u16 = 0o7;
/// The bits of a mode that a list stands for.
const MODE_MASK: u32 = 0o777;

const TAG_OWNER: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_OWNING_GROUP: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHERS: u16 = 0x20;

/// A valid access control list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    who: Who,
    permissions: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Others,
}

/// Permission bits and access lists that a new node inherits from its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inherited {
    /// The permission bits, with set-user, set-group and sticky as they were asked for.
    pub permissions: u32,
    /// The list that guards the new node; `None` when the bits say it all.
    pub access: Option<Acl>,
}

impl Acl {
    /// Reads the value of an attribute; `None` for a value without entries, which stands for no
    /// list: to set it is to remove the attribute.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for another version, `EINVAL` for everything else that Linux refuses.
    pub fn parse(value: &[u8]) -> Result<Option<Self>> {
        if value.is_empty() {
            return Ok(None);
        }
        let (version, entries) = value.split_first_chunk().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if entries.len() % ENTRY_BYTES != 0 {
            return Err(Errno::EINVAL);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let entries: Vec<Entry> = entries.chunks_exact(ENTRY_BYTES).map(Entry::parse).collect::<Result<_>>()?;
        check_is_valid(&entries)?;
        Ok(Some(Self { entries }))
    }

    /// The value of the attribute.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.entries.len() * ENTRY_BYTES);
        bytes.extend(VERSION.to_le_bytes());
        for entry in &self.entries {
            let (tag, id) = entry.who.tag_and_id();
            bytes.extend(tag.to_le_bytes());
            bytes.extend(entry.permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// The nine permission bits of the list, as `stat` shows them. If there is a mask, it is the group's bits.
    #[must_use]
    pub fn mode_bits(&self) -> u32 {
        let group = if self.has_mask() { Who::Mask } else { Who::OwningGroup };
        let shown = self.entries.iter().filter_map(|entry| {
            let shift = match entry.who {
                Who::Owner => 6,
                who if who == group => 3,
                Who::Others => 0,
                _ => return None,
            };
            Some(u32::from(entry.permissions) << shift)
        });
        shown.fold(0, |bits, part| bits | part)
    }

    /// `permissions` with the nine bits of the list.
    #[must_use]
    pub fn apply_to(&self, permissions: u32) -> u32 {
        (permissions & !MODE_MASK) | self.mode_bits()
    }

    /// True if the list surely grants `wanted` (read 4, write 2, search 1) on a node of the group `owning_group` to a
    /// caller who is not its owner, has no privileges, is in `group`, and may be in any other group too: FUSE does not
    /// tell a server.
    #[must_use]
    pub fn surely_grants(&self, uid: u32, group: u32, owning_group: u32, wanted: u16) -> bool {
        let mask = self.permissions_of(Who::Mask).unwrap_or(PERMISSION_MASK);
        let grants = |permissions: u16| permissions & wanted == wanted;
        if let Some(permissions) = self.permissions_of(Who::User(uid)) {
            return grants(permissions & mask);
        }
        let groups = self.entries.iter().filter_map(|entry| match entry.who {
            Who::OwningGroup => Some((owning_group, entry.permissions & mask)),
            Who::Group(id) => Some((id, entry.permissions & mask)),
            _ => None,
        });
        // One granting group is enough; without any matching group the entry for others counts.
        let mut groups = groups.map(|(id, permissions)| (id == group, grants(permissions)));
        let others = self.permissions_of(Who::Others).is_some_and(grants);
        groups.clone().any(|group| group == (true, true)) || (others && groups.all(|(_, lets_in)| lets_in))
    }

    /// True if the list grants `wanted` (read 4, write 2, search 1) on a node of the group `owning_group` to a user who
    /// is not its owner, has no privileges, and is in the groups for which `is_in` holds.
    #[must_use]
    pub fn grants(&self, uid: u32, owning_group: u32, is_in: impl Fn(u32) -> bool, wanted: u16) -> bool {
        let mask = self.permissions_of(Who::Mask).unwrap_or(PERMISSION_MASK);
        let grants = |permissions: u16| permissions & wanted == wanted;
        if let Some(permissions) = self.permissions_of(Who::User(uid)) {
            return grants(permissions & mask);
        }
        let groups = self.entries.iter().filter_map(|entry| match entry.who {
            Who::OwningGroup => Some((owning_group, entry.permissions & mask)),
            Who::Group(id) => Some((id, entry.permissions & mask)),
            _ => None,
        });
        // One granting group is enough; with any matching group the entry for others does not count.
        let mut own = groups.filter(|(id, _)| is_in(*id)).map(|(_, permissions)| grants(permissions)).peekable();
        match own.peek() {
            Some(_) => own.any(|lets_in| lets_in),
            None => self.permissions_of(Who::Others).is_some_and(grants),
        }
    }

    fn permissions_of(&self, who: Who) -> Option<u16> {
        let entry = self.entries.iter().find(|entry| entry.who == who);
        entry.map(|entry| entry.permissions)
    }

    /// True when permission bits alone say the same: the list need not be kept.
    #[must_use]
    pub fn is_mode_only(&self) -> bool {
        self.entries.iter().all(|entry| matches!(entry.who, Who::Owner | Who::OwningGroup | Who::Others))
    }

    /// The list after `chmod`: the owner's and the others' entries follow the bits, and of the
    /// group's the mask where there is one.
    #[must_use]
    pub fn chmod(&self, permissions: u32) -> Self {
        self.map_classes(|class, _| class.of(permissions))
    }

    /// The inheritance of a new node from a directory with this default list: no more than requested. The caller's
    /// umask is not applied.
    #[must_use]
    pub fn inherit(&self, requested: u32) -> Inherited {
        let access = self.map_classes(|class, own| own & class.of(requested));
        Inherited { permissions: access.apply_to(requested), access: (!access.is_mode_only()).then_some(access) }
    }

    /// Changes the three entries that permission bits show.
    fn map_classes(&self, change: impl Fn(Class, u16) -> u16) -> Self {
        let group_is_masked = self.has_mask();
        let changed = self.entries.iter().map(|entry| {
            let class = match entry.who {
                Who::Owner => Class::Owner,
                Who::Mask => Class::Group,
                Who::OwningGroup if !group_is_masked => Class::Group,
                Who::Others => Class::Others,
                _ => return *entry,
            };
            Entry { permissions: change(class, entry.permissions), ..*entry }
        });
        Self { entries: changed.collect() }
    }

    fn has_mask(&self) -> bool {
        self.entries.iter().any(|entry| entry.who == Who::Mask)
    }
}

/// The permission bits that a node gets in a directory without a default list.
#[must_use]
pub const fn without_default(requested: u32, umask: u32) -> u32 {
    requested & !(umask & MODE_MASK)
}

/// Three of the nine permission bits.
#[derive(Debug, Clone, Copy)]
enum Class {
    Owner,
    Group,
    Others,
}

impl Class {
    fn of(self, permissions: u32) -> u16 {
        let shift = match self {
            Self::Owner => 6,
            Self::Group => 3,
            Self::Others => 0,
        };
        let bits = (permissions >> shift) & u32::from(PERMISSION_MASK);
        u16::try_from(bits).expect("three bits")
    }
}

impl Entry {
    fn parse(bytes: &[u8]) -> Result<Self> {
        let bytes: [u8; ENTRY_BYTES] = bytes.try_into().map_err(|_| Errno::EINVAL)?;
        let [tag_low, tag_high, low, high, id @ ..] = bytes;
        let id = u32::from_le_bytes(id);
        let permissions = u16::from_le_bytes([low, high]);
        if permissions & !PERMISSION_MASK != 0 {
            return Err(Errno::EINVAL);
        }
        let who = match u16::from_le_bytes([tag_low, tag_high]) {
            TAG_OWNER => Who::Owner,
            TAG_USER if id != NO_ID => Who::User(id),
            TAG_OWNING_GROUP => Who::OwningGroup,
            TAG_GROUP if id != NO_ID => Who::Group(id),
            TAG_MASK => Who::Mask,
            TAG_OTHERS => Who::Others,
            _ => return Err(Errno::EINVAL),
        };
        Ok(Self { who, permissions })
    }
}

impl Who {
    const fn tag_and_id(self) -> (u16, u32) {
        match self {
            Self::Owner => (TAG_OWNER, NO_ID),
            Self::User(id) => (TAG_USER, id),
            Self::OwningGroup => (TAG_OWNING_GROUP, NO_ID),
            Self::Group(id) => (TAG_GROUP, id),
            Self::Mask => (TAG_MASK, NO_ID),
            Self::Others => (TAG_OTHERS, NO_ID),
        }
    }
}

/// Progress of parsing a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Owner,
    OwningGroup,
    Mask,
    Others,
}

fn check_is_valid(entries: &[Entry]) -> Result<()> {
    let mut seen = Seen::Nothing;
    let mut needs_mask = false;
    for entry in entries {
        seen = match (entry.who, seen) {
            (Who::Owner, Seen::Nothing) => Seen::Owner,
            (Who::User(_), Seen::Owner) | (Who::Group(_), Seen::OwningGroup) => {
                needs_mask = true;
                seen
            }
            (Who::OwningGroup, Seen::Owner) => Seen::OwningGroup,
            (Who::Mask, Seen::OwningGroup) => Seen::Mask,
            (Who::Others, Seen::Mask) => Seen::Others,
            (Who::Others, Seen::OwningGroup) if !needs_mask => Seen::Others,
            _ => return Err(Errno::EINVAL),
        };
    }
    if seen == Seen::Others { Ok(()) } else { Err(Errno::EINVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Raw = (u16, u16, u32);

    const U: u16 = TAG_OWNER;
    const NU: u16 = TAG_USER;
    const G: u16 = TAG_OWNING_GROUP;
    const NG: u16 = TAG_GROUP;
    const M: u16 = TAG_MASK;
    const O: u16 = TAG_OTHERS;
    const X: u32 = NO_ID;

    fn bytes(entries: &[Raw]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn acl(entries: &[Raw]) -> Acl {
        Acl::parse(&bytes(entries)).unwrap().unwrap()
    }

    // Every case here was tried with setxattr on Linux 6.18, with the same answer.
    #[test]
    fn what_linux_takes() {
        let valid: &[&[Raw]] = &[
            &[(U, 6, X), (G, 4, X), (O, 0, X)],
            &[(U, 6, 0), (G, 4, 7), (O, 0, 9)],
            &[(U, 6, X), (G, 4, X), (M, 7, X), (O, 0, X)],
            &[(U, 6, X), (NU, 7, 5), (G, 4, X), (M, 7, X), (O, 0, X)],
            &[(U, 6, X), (NU, 7, 9), (NU, 7, 5), (NU, 1, 5), (G, 4, X), (M, 7, X), (O, 0, X)],
            &[(U, 6, X), (G, 4, X), (NG, 3, 1), (M, 0, X), (O, 0, X)],
        ];
        for entries in valid {
            assert!(matches!(Acl::parse(&bytes(entries)), Ok(Some(_))), "{entries:?}");
        }
        assert_eq!(Acl::parse(&bytes(&[])), Ok(None));
        assert_eq!(Acl::parse(b""), Ok(None));
    }

    #[test]
    fn what_linux_refuses() {
        let invalid: &[&[Raw]] = &[
            &[(U, 6, X)],
            &[(U, 6, X), (G, 4, X)],
            &[(G, 4, X), (U, 6, X), (O, 0, X)],
            &[(U, 6, X), (O, 0, X), (G, 4, X)],
            &[(U, 8, X), (G, 4, X), (O, 0, X)],
            &[(U, 6, X), (U, 6, X), (G, 4, X), (O, 0, X)],
            &[(U, 6, X), (G, 4, X), (O, 0, X), (O, 0, X)],
            &[(U, 6, X), (G, 4, X), (O, 0, X), (M, 0, X)],
            &[(U, 6, X), (NU, 7, 5), (G, 4, X), (O, 0, X)],
            &[(U, 6, X), (G, 4, X), (NG, 4, 1), (O, 0, X)],
            &[(U, 6, X), (NU, 7, X), (G, 4, X), (M, 7, X), (O, 0, X)],
            &[(U, 6, X), (G, 4, X), (NU, 7, 5), (M, 7, X), (O, 0, X)],
            &[(U, 6, X), (NG, 7, 5), (G, 4, X), (M, 7, X), (O, 0, X)],
            &[(U, 6, X), (G, 4, X), (M, 7, X), (NG, 7, 5), (O, 0, X)],
            &[(U, 6, X), (G, 4, X), (M, 7, X), (M, 7, X), (O, 0, X)],
            &[(0x40, 6, X), (U, 6, X), (G, 4, X), (O, 0, X)],
        ];
        for entries in invalid {
            assert_eq!(Acl::parse(&bytes(entries)), Err(Errno::EINVAL), "{entries:?}");
        }
        assert_eq!(Acl::parse(b"\x02\0\0"), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(b"\x02\0\0\0\x01"), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(b"\x01\0\0\0"), Err(Errno::EOPNOTSUPP));
    }

    #[test]
    fn unused_ids_are_written_as_none() {
        let list = acl(&[(U, 6, 0), (NU, 1, 5), (G, 4, 7), (M, 7, 8), (O, 0, 9)]);
        let kept = [(U, 6, X), (NU, 1, 5), (G, 4, X), (M, 7, X), (O, 0, X)];
        assert_eq!(list.to_bytes(), bytes(&kept));
        assert_eq!(Acl::parse(&list.to_bytes()), Ok(Some(list)));
    }

    #[test]
    fn the_mask_is_the_groups_bits() {
        let plain = acl(&[(U, 7, X), (G, 5, X), (O, 1, X)]);
        assert!(plain.is_mode_only());
        assert_eq!(plain.mode_bits(), 0o751);
        let named = acl(&[(U, 6, X), (NU, 7, 5), (G, 4, X), (M, 3, X), (O, 0, X)]);
        assert!(!named.is_mode_only());
        assert_eq!(named.mode_bits(), 0o630);
        assert_eq!(named.apply_to(0o7777), 0o7630);
        let mask_only = acl(&[(U, 6, X), (G, 4, X), (M, 7, X), (O, 0, X)]);
        assert!(!mask_only.is_mode_only());
    }

    #[test]
    fn chmod_moves_the_mask() {
        let named = acl(&[(U, 6, X), (NU, 7, 5), (G, 4, X), (M, 3, X), (O, 0, X)]);
        let changed = acl(&[(U, 1, X), (NU, 7, 5), (G, 4, X), (M, 2, X), (O, 5, X)]);
        assert_eq!(named.chmod(0o4125), changed);
        let plain = acl(&[(U, 6, X), (G, 4, X), (O, 0, X)]);
        assert_eq!(plain.chmod(0o777), acl(&[(U, 7, X), (G, 7, X), (O, 7, X)]));
    }

    #[test]
    fn a_new_node_gets_no_more_than_asked_for() {
        let default = acl(&[(U, 7, X), (NU, 7, 5), (G, 5, X), (M, 7, X), (O, 5, X)]);
        let got = default.inherit(0o640);
        assert_eq!(got.permissions, 0o640);
        let access = acl(&[(U, 6, X), (NU, 7, 5), (G, 5, X), (M, 4, X), (O, 0, X)]);
        assert_eq!(got.access, Some(access));
        let plain = acl(&[(U, 7, X), (G, 5, X), (O, 0, X)]);
        let got = plain.inherit(0o4666);
        let permissions = 0o4640;
        assert_eq!(got, Inherited { permissions, access: None });
    }

    #[test]
    fn the_umask_leaves_the_special_bits() {
        assert_eq!(without_default(0o7777, 0o7022), 0o7755);
    }
}
