//! Sends owners, permissions and extended attributes. Called by `stream`.

use std::collections::BTreeMap;

use btrfs_disk::items::FileKind;
use btrfs_stream::Command;

use super::sender::{Result, Sender};
use super::view::Facts;

/// The attribute that writing to a file, and changing its owner, remove.
const CAPABILITY: &[u8] = b"security.capability";
/// Prefix of attributes that affect how contents are stored.
const PROPERTIES: &[u8] = b"btrfs.";
/// Set-user and set-group bits, which the same operations clear.
const SET_ID_BITS: u32 = 0o6000;

/// The attributes that an inode has at the receiver, and its new ones, as far as they may differ.
#[derive(Debug, Default)]
pub(super) struct Xattrs {
    old: BTreeMap<Vec<u8>, Vec<u8>>,
    new: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Xattrs {
    /// The attributes of an inode that both trees have, or only the new one.
    pub(super) fn of(sender: &Sender<'_>, ino: u64, is_same: bool) -> Result<Self> {
        let old = match &sender.pair.old {
            Some(old) if is_same => old.xattrs(ino)?,
            _ => BTreeMap::new(),
        };
        Ok(Self { old, new: sender.pair.new.xattrs(ino)? })
    }
}

/// Sets the attributes that must be there before contents are written.
pub(super) fn before_contents(sender: &mut Sender<'_>, path: &[u8], xattrs: &Xattrs) -> Result<()> {
    put_xattrs(sender, path, xattrs, |name| name.starts_with(PROPERTIES))
}

/// Sets the rest, but for the times.
pub(super) fn after_contents(
    sender: &mut Sender<'_>,
    (ino, path): (u64, &[u8]),
    (old, new): (Option<&Facts>, &Facts),
    (mut xattrs, is_written): (Xattrs, bool),
) -> Result<()> {
    let is_given = old.is_none_or(|old| (old.uid, old.gid) != (new.uid, new.gid));
    if is_given {
        let (uid, gid) = (new.uid.into(), new.gid.into());
        sender.put(&Command::Chown { path, uid, gid })?;
    }
    let takes_away = (is_given && old.is_some()) || is_written;
    let is_changed = old.is_none_or(|old| old.mode != new.mode) || (takes_away && new.mode & SET_ID_BITS != 0);
    if is_changed && new.kind != FileKind::Symlink {
        sender.put(&Command::Chmod { path, mode: new.mode.into() })?;
    }
    if takes_away && old.is_some() && new.kind == FileKind::File {
        again(sender, (ino, path), &mut xattrs)?;
    }
    put_xattrs(sender, path, &xattrs, |name| !name.starts_with(PROPERTIES))
}

/// Sends the capabilities of a file again that may have lost them.
fn again(sender: &mut Sender<'_>, (ino, path): (u64, &[u8]), xattrs: &mut Xattrs) -> Result<()> {
    if let Some(value) = sender.pair.new.xattr(ino, CAPABILITY)? {
        xattrs.old.remove(CAPABILITY);
        xattrs.new.insert(CAPABILITY.to_vec(), value);
    } else if let Some(value) = xattrs.old.get(CAPABILITY) {
        // The receiver may have kept or removed it: set for certain, it can be removed.
        sender.put(&Command::SetXattr { path, name: CAPABILITY, value })?;
    }
    Ok(())
}

fn put_xattrs(
    sender: &mut Sender<'_>,
    path: &[u8],
    Xattrs { old, new }: &Xattrs,
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
