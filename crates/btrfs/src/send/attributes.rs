//! Owners, permissions, extended attributes and times.

use std::collections::BTreeMap;

use btrfs_disk::items::FileKind;
use btrfs_stream::{Command, Time, Version};

use super::sender::{Result, Sender};
use super::view::Facts;
use crate::inode::Timestamp;

/// What writing to a file, and giving it to somebody else, take away from it.
const CAPABILITY: &[u8] = b"security.capability";
/// Attributes of this beginning say how what is written is stored.
const PROPERTIES: &[u8] = b"btrfs.";
/// Set-user and set-group bits, which the same takes away.
const SET_ID_BITS: u32 = 0o6000;

type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Sets what has to be known before anything is written.
pub(super) fn before_contents(sender: &mut Sender<'_>, (ino, path): (u64, &[u8]), is_same: bool) -> Result<()> {
    let (old, new) = xattrs(sender, ino, is_same)?;
    let is_property = |name: &[u8]| name.starts_with(PROPERTIES);
    put_xattrs(sender, path, (&old, &new), is_property)
}

/// Sets the rest, but for the times.
pub(super) fn after_contents(
    sender: &mut Sender<'_>,
    (ino, path): (u64, &[u8]),
    (old, new): (Option<&Facts>, &Facts),
    is_written: bool,
) -> Result<()> {
    let is_given = old.is_none_or(|old| (old.uid, old.gid) != (new.uid, new.gid));
    if is_given {
        let (uid, gid) = (new.uid.into(), new.gid.into());
        sender.put(&Command::Chown { path, uid, gid })?;
    }
    let takes_away = is_given || is_written;
    let is_changed = old.is_none_or(|old| old.mode != new.mode) || (takes_away && new.mode & SET_ID_BITS != 0);
    if is_changed && new.kind != FileKind::Symlink {
        sender.put(&Command::Chmod { path, mode: new.mode.into() })?;
    }
    let (mut old, new) = xattrs(sender, ino, old.is_some())?;
    if takes_away && new.contains_key(CAPABILITY) {
        old.remove(CAPABILITY);
    } else if takes_away && old.remove(CAPABILITY).is_some() {
        // Whether it is still there depends on the receiver: this one is, and can be removed.
        let value = sender.pair.old.as_ref().map_or(Ok(None), |view| view.xattr(ino, CAPABILITY))?;
        let value = value.unwrap_or_default();
        sender.put(&Command::SetXattr { path, name: CAPABILITY, value: &value })?;
        old.insert(CAPABILITY.to_vec(), value);
    }
    put_xattrs(sender, path, (&old, &new), |name| !name.starts_with(PROPERTIES))
}

/// The attributes that an inode has at the receiver, and is to have.
fn xattrs(sender: &Sender<'_>, ino: u64, is_same: bool) -> Result<(Xattrs, Xattrs)> {
    let old = match &sender.pair.old {
        Some(old) if is_same => old.xattrs(ino)?,
        _ => Xattrs::new(),
    };
    Ok((old, sender.pair.new.xattrs(ino)?))
}

fn put_xattrs(
    sender: &mut Sender<'_>,
    path: &[u8],
    (old, new): (&Xattrs, &Xattrs),
    is_wanted: impl Fn(&[u8]) -> bool,
) -> Result<()> {
    for name in old.keys().filter(|name| is_wanted(name) && !new.contains_key(*name)) {
        sender.put(&Command::RemoveXattr { path, name })?;
    }
    for (name, value) in new.iter().filter(|(name, value)| is_wanted(name) && old.get(*name) != Some(*value)) {
        sender.put(&Command::SetXattr { path, name, value })?;
    }
    Ok(())
}

/// Sets the times.
pub(super) fn set_times(sender: &mut Sender<'_>, path: &[u8], facts: &Facts) -> Result<()> {
    let otime = (sender.contents.version() >= Version::V2).then(|| time(facts.otime));
    let [atime, mtime, ctime] = [facts.atime, facts.mtime, facts.ctime].map(time);
    sender.put(&Command::Utimes { path, atime, mtime, ctime, otime })
}

fn time(time: Timestamp) -> Time {
    Time { seconds: time.sec, nanoseconds: time.nsec }
}
