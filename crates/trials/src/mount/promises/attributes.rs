//! Draws, sets and compares attributes of a file: mode, owner, times, flags, extended attributes, an access control
//! list. `writer` changes them, `ledger` compares them.

use super::trees::{FLAGS, Found, LIST, NAMES, VALUE_BYTES_MAX};
use rustix::fs::{IFlags, XattrFlags};
use std::collections::BTreeMap;
use std::fs::{File as Open, FileTimes};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::{Duration, SystemTime};
use testkit::Random;

/// Numbers of the first owner and of the last one.
const OWNERS: (u64, u64) = (0, 5000);

/// Permission bits of the entries of a list: owner, one named user, group, mask, others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct List {
    user: u32,
    owner: u32,
    named: u32,
    group: u32,
    mask: u32,
    other: u32,
}

impl List {
    fn bytes(&self) -> Vec<u8> {
        const NOBODY: u32 = u32::MAX;
        let entries = [
            (1_u16, self.owner, NOBODY),
            (2, self.named, self.user),
            (4, self.group, NOBODY),
            (16, self.mask, NOBODY),
            (32, self.other, NOBODY),
        ];
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, bits, user) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(u16::try_from(bits).unwrap_or_default().to_le_bytes());
            bytes.extend(user.to_le_bytes());
        }
        bytes
    }

    fn permissions(&self) -> u32 {
        self.owner << 6 | self.mask << 3 | self.other
    }

    fn chmod(&mut self, permissions: u32) {
        (self.owner, self.mask, self.other) = (permissions >> 6 & 7, permissions >> 3 & 7, permissions & 7);
    }
}

/// Attributes of a file. A time is unknown if the file was used since it was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mount) struct Attributes {
    permissions: u32,
    owner: (u32, u32),
    atime: Option<i64>,
    mtime: Option<i64>,
    flags: IFlags,
    named: BTreeMap<String, Vec<u8>>,
    list: Option<List>,
}

/// A change of attributes.
#[derive(Debug, Clone)]
pub(in crate::mount) enum Change {
    Permissions(u32),
    Owner(u32, u32),
    Times(i64, i64),
    Flags(IFlags),
    Named(&'static str, Option<Vec<u8>>),
    List(Vec<u32>),
}

impl Change {
    /// A random change.
    pub(super) fn draw(random: &mut Random) -> Self {
        let mut number = |end: u64| u32::try_from(random.below(end)).unwrap_or_default();
        match number(6) {
            0 => Self::Permissions(number(0o1000)),
            1 => {
                let owner = |number: u32| number.saturating_add(u32::try_from(OWNERS.0).unwrap_or_default());
                Self::Owner(owner(number(OWNERS.1)), owner(number(OWNERS.1)))
            }
            2 => Self::Times(i64::from(number(2_000_000_000)), i64::from(number(2_000_000_000))),
            3 => {
                let flags = FLAGS.iter().filter(|_| number(2) == 1);
                Self::Flags(flags.fold(IFlags::empty(), |all, flag| all | *flag))
            }
            4 => {
                let name = NAMES.get(random.index(NAMES.len())).copied().unwrap_or_default();
                let len = usize::try_from(random.skewed(VALUE_BYTES_MAX)).unwrap_or_default();
                Self::Named(name, (!random.one_in(4)).then(|| random.noise(len)))
            }
            _ => Self::List((0..6).map(|index| if index == 0 { 1 + number(1000) } else { number(8) }).collect()),
        }
    }

    /// Makes the change.
    pub(super) fn make(&self, open: &Open) -> io::Result<()> {
        let time = |seconds: &i64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs());
        match self {
            Self::Permissions(bits) => open.set_permissions(std::fs::Permissions::from_mode(*bits)),
            Self::Owner(user, group) => std::os::unix::fs::fchown(open, Some(*user), Some(*group)),
            Self::Times(atime, mtime) => {
                open.set_times(FileTimes::new().set_accessed(time(atime)).set_modified(time(mtime)))
            }
            Self::Flags(flags) => Ok(rustix::fs::ioctl_setflags(open, *flags)?),
            Self::Named(name, Some(value)) => Ok(rustix::fs::fsetxattr(open, *name, value, XattrFlags::empty())?),
            Self::Named(name, None) => match rustix::fs::fremovexattr(open, *name) {
                Err(rustix::io::Errno::NODATA) => Ok(()),
                done => Ok(done?),
            },
            Self::List(bits) => {
                let list = list_of(bits);
                Ok(rustix::fs::fsetxattr(open, LIST, &list.bytes(), XattrFlags::empty())?)
            }
        }
    }
}

fn list_of(bits: &[u32]) -> List {
    let at = |index: usize| bits.get(index).copied().unwrap_or_default();
    List { user: at(0), owner: at(1), named: at(2), group: at(3), mask: at(4), other: at(5) }
}

impl Attributes {
    /// The attributes of a new file.
    pub(super) fn of_new(open: &Open) -> io::Result<Self> {
        let metadata = open.metadata()?;
        Ok(Self {
            permissions: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            atime: None,
            mtime: None,
            flags: IFlags::empty(),
            named: BTreeMap::new(),
            list: None,
        })
    }

    /// The attributes after a change.
    pub(super) fn changed(&self, change: &Change) -> Self {
        let mut new = self.clone();
        match change {
            Change::Permissions(bits) => {
                new.permissions = *bits;
                if let Some(list) = &mut new.list {
                    list.chmod(*bits);
                }
            }
            Change::Owner(user, group) => new.owner = (*user, *group),
            Change::Times(atime, mtime) => (new.atime, new.mtime) = (Some(*atime), Some(*mtime)),
            Change::Flags(flags) => new.flags = *flags,
            Change::Named(name, Some(value)) => {
                new.named.insert((*name).to_owned(), value.clone());
            }
            Change::Named(name, None) => {
                new.named.remove(*name);
            }
            Change::List(bits) => {
                let list = list_of(bits);
                new.permissions = list.permissions();
                new.list = Some(list);
            }
        }
        new
    }

    /// Forgets the times, since the file is written or read.
    pub(super) fn forget_times(&mut self) {
        (self.atime, self.mtime) = (None, None);
    }

    /// The difference from the found attributes; an unknown time may have any value.
    pub(super) fn difference(&self, found: &Found) -> Option<String> {
        let times = [("atime", self.atime, found.atime), ("mtime", self.mtime, found.mtime)];
        let wrong_time = times.iter().find(|(_, known, found)| known.is_some_and(|known| known != *found));
        if let Some((name, known, found)) = wrong_time {
            return Some(format!("{name} {found}, promised {known:?}"));
        }
        let list = self.list.as_ref().map(List::bytes);
        let parts = [
            ("mode", format!("{:o}", self.permissions), format!("{:o}", found.permissions)),
            ("owner", format!("{:?}", self.owner), format!("{:?}", found.owner)),
            ("flags", format!("{:?}", self.flags), format!("{:?}", found.flags)),
            ("access list", format!("{list:?}"), format!("{:?}", found.list)),
        ];
        if let Some((name, known, found)) = parts.iter().find(|(_, known, found)| known != found) {
            return Some(format!("{name} {found}, promised {known}"));
        }
        (self.named != found.named).then(|| {
            let names = |named: &BTreeMap<String, Vec<u8>>| {
                let sizes = named.iter().map(|(name, value)| format!("{name} of {} bytes", value.len()));
                sizes.collect::<Vec<_>>().join(", ")
            };
            format!("attributes {}; promised {}", names(&found.named), names(&self.named))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_what_the_mode_is() {
        let new = Attributes {
            permissions: 0o644,
            owner: (0, 0),
            atime: None,
            mtime: Some(7),
            flags: IFlags::empty(),
            named: BTreeMap::new(),
            list: None,
        };
        let listed = new.changed(&Change::List(vec![9, 7, 6, 5, 4, 0]));
        assert_eq!(listed.permissions, 0o740);
        let narrowed = listed.changed(&Change::Permissions(0o611));
        assert_eq!(narrowed.list.as_ref().map(|list| (list.owner, list.mask, list.other)), Some((6, 1, 1)));
        assert_eq!(narrowed.list.as_ref().map(|list| list.group), Some(5));
        assert_ne!(listed, narrowed);
    }
}
