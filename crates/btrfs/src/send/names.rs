//! Sends the changes of names: first removes old names and renames inodes out of the way, then creates inodes and gives
//! them their new names. Called by `stream`.

use btrfs_disk::items::FileKind;
use btrfs_stream::{Command, Special};

use super::places::{Links, Pair};
use super::sender::{Inherited, Result, Sender};
use super::view::{Facts, Name, join};
use crate::error::Result as VolumeResult;
use crate::inode::ROOT_DIR_INO;

/// Attributes that a new node may inherit from its directory. The sender sets each to a value that removes it, whether
/// it is there or not: an access list that equals the permissions, an empty default list, an empty compression.
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const COMPRESSION: &[u8] = b"btrfs.compression";
/// The head of an access list without entries.
const NO_ACL: &[u8] = &[2, 0, 0, 0];

/// Removes the old names of an inode, or sets it aside (renames it to a temporary name), unless it keeps its place.
pub(super) fn clear(sender: &mut Sender<'_>, ino: u64) -> Result<()> {
    let Some(old) = sender.pair.old_facts(ino)?.filter(|_| ino != ROOT_DIR_INO.0) else { return Ok(()) };
    let new = sender.pair.new.facts(ino)?;
    let stays = new.is_some_and(|new| new.is_same_as(&old));
    if old.is_dir() {
        if sender.pair.loses_place(ino)? {
            let Some(name) = sender.pair.old.as_ref().map(|view| view.name_of_dir(ino)).transpose()? else {
                return Ok(());
            };
            set_aside(sender, ino, &old, &name)?;
        }
        return Ok(());
    }
    let Links { kept, mut removed, added } = sender.pair.links(ino)?;
    if !stays {
        // Another inode has the number now.
        removed.extend(kept);
    } else if kept.is_empty() && !removed.is_empty() && !added.is_empty() {
        let first = removed.remove(0);
        set_aside(sender, ino, &old, &first)?;
    }
    for name in removed {
        let path = old_path(sender, &name)?;
        sender.put(&Command::Unlink { path: &path })?;
    }
    Ok(())
}

fn set_aside(sender: &mut Sender<'_>, ino: u64, old: &Facts, name: &Name) -> Result<()> {
    let path = old_path(sender, name)?;
    let to = sender.pair.aside(ino, old.generation)?;
    sender.put(&Command::Rename { path: &path, to: &to })
}

fn old_path(sender: &Sender<'_>, name: &Name) -> VolumeResult<Vec<u8>> {
    let pair = &sender.pair;
    let Some(old) = &pair.old else { return Ok(name.name.clone()) };
    Ok(join(&sender.places.while_clearing(pair, old, name.dir)?, &name.name))
}

/// Removes a directory that was set aside, and is empty by now.
pub(super) fn remove_aside(sender: &mut Sender<'_>, ino: u64, old: &Facts) -> Result<()> {
    let path = sender.pair.aside(ino, old.generation)?;
    sender.put(&Command::Rmdir { path: &path })
}

/// Creates an inode of the new tree, or moves it to its place, and adds all its names; returns one path.
pub(super) fn place(sender: &mut Sender<'_>, ino: u64, new: &Facts, is_same: bool) -> Result<Option<Vec<u8>>> {
    if ino == ROOT_DIR_INO.0 {
        sender.places.note_placed(ino, false);
        return Ok(Some(Vec::new()));
    }
    let mut moved = false;
    if new.is_dir() {
        let name = sender.pair.new.name_of_dir(ino)?;
        if is_same && sender.pair.loses_place(ino)? {
            let path = sender.pair.aside(ino, new.generation)?;
            bring(sender, &path, &name)?;
            moved = true;
        } else if !is_same && !sender.places.is_early(ino) {
            make(sender, ino, new, &name)?;
        }
    } else {
        place_file(sender, ino, new, is_same)?;
    }
    sender.places.note_placed(ino, moved);
    let Some(name) = sender.pair.new.names(ino)?.into_iter().next() else { return Ok(None) };
    Ok(Some(sender.places.of(&sender.pair, &name)?))
}

fn place_file(sender: &mut Sender<'_>, ino: u64, new: &Facts, is_same: bool) -> Result<()> {
    let Links { mut kept, removed, mut added } = match is_same {
        true => sender.pair.links(ino)?,
        false => Links { added: sender.pair.new.names(ino)?, ..Links::default() },
    };
    if kept.is_empty() && !added.is_empty() {
        let first = added.remove(0);
        if removed.is_empty() {
            make(sender, ino, new, &first)?;
        } else {
            let path = sender.pair.aside(ino, new.generation)?;
            bring(sender, &path, &first)?;
        }
        kept.push(first);
    }
    let Some(existing) = kept.first() else { return Ok(()) };
    for name in added {
        make_missing(sender, name.dir)?;
        let existing = sender.places.of(&sender.pair, existing)?;
        let path = sender.places.of(&sender.pair, &name)?;
        sender.put(&Command::Link { path: &path, existing: &existing })?;
        sender.touch(name.dir)?;
    }
    Ok(())
}

/// Renames an inode that was set aside to its place.
fn bring(sender: &mut Sender<'_>, path: &[u8], name: &Name) -> Result<()> {
    make_missing(sender, name.dir)?;
    let to = sender.places.of(&sender.pair, name)?;
    sender.put(&Command::Rename { path, to: &to })?;
    sender.touch(name.dir)
}

/// Creates `dir` and the directories above it, as far as the receiver does not have them yet.
fn make_missing(sender: &mut Sender<'_>, dir: u64) -> Result<()> {
    for dir in sender.places.missing(&sender.pair, dir)? {
        let name = sender.pair.new.name_of_dir(dir)?;
        let Some(facts) = sender.pair.new.facts(dir)? else { continue };
        make_in_place(sender, dir, &facts, &name)?;
        sender.places.note_early(dir);
    }
    Ok(())
}

fn make(sender: &mut Sender<'_>, ino: u64, new: &Facts, name: &Name) -> Result<()> {
    make_missing(sender, name.dir)?;
    make_in_place(sender, ino, new, name)
}

fn make_in_place(sender: &mut Sender<'_>, number: u64, new: &Facts, name: &Name) -> Result<()> {
    let path = sender.places.of(&sender.pair, name)?;
    let path = path.as_slice();
    let ino = Some(number);
    let special = Special { path, ino, mode: new.mode.into(), rdev: encoded(new.rdev) };
    match new.kind {
        FileKind::File => sender.put(&Command::Mkfile { path, ino })?,
        FileKind::Directory => sender.put(&Command::Mkdir { path, ino })?,
        FileKind::CharDevice | FileKind::BlockDevice => sender.put(&Command::Mknod(special))?,
        FileKind::Fifo => sender.put(&Command::Mkfifo(special))?,
        FileKind::Socket => sender.put(&Command::Mksock(special))?,
        FileKind::Symlink => {
            let target = sender.target(number, new)?;
            sender.put(&Command::Symlink { path, ino, target: &target })?;
        }
    }
    sender.touch(name.dir)?;
    if new.kind != FileKind::Symlink { remove_inherited(sender, name.dir, new, path) } else { Ok(()) }
}

/// Removes the inherited attributes of a new node.
fn remove_inherited(sender: &mut Sender<'_>, dir: u64, new: &Facts, path: &[u8]) -> Result<()> {
    let inherited = match sender.inherited.filter(|known| known.dir == dir) {
        Some(known) => known,
        None => {
            let pair = &sender.pair;
            let acl = may_have(pair, dir, ACL_DEFAULT)?;
            Inherited { dir, acl, compression: may_have(pair, dir, COMPRESSION)? }
        }
    };
    sender.inherited = Some(inherited);
    if inherited.acl {
        let value = plain_acl(new.mode);
        sender.put(&Command::SetXattr { path, name: ACL_ACCESS, value: &value })?;
        if new.is_dir() {
            sender.put(&Command::SetXattr { path, name: ACL_DEFAULT, value: NO_ACL })?;
        }
    }
    if inherited.compression && matches!(new.kind, FileKind::File | FileKind::Directory) {
        sender.put(&Command::SetXattr { path, name: COMPRESSION, value: b"" })?;
    }
    Ok(())
}

/// Whether a directory has an attribute in either tree.
fn may_have(pair: &Pair, dir: u64, name: &[u8]) -> VolumeResult<bool> {
    if pair.new.xattr(dir, name)?.is_some() {
        return Ok(true);
    }
    match &pair.old {
        Some(old) if pair.has_both(dir)? => Ok(old.xattr(dir, name)?.is_some()),
        _ => Ok(false),
    }
}

/// An access list that equals the permissions.
fn plain_acl(mode: u32) -> Vec<u8> {
    let mut acl = NO_ACL.to_vec();
    for (tag, shift) in [(1u16, 6), (4, 3), (0x20, 0)] {
        let permissions = u16::try_from((mode >> shift) & 7).unwrap_or(0);
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&u32::MAX.to_le_bytes());
    }
    acl
}

/// Converts a device number on disk, with the minor number in the low 20 bits, to the encoding of streams.
fn encoded(rdev: u64) -> u64 {
    let (major, minor) = (rdev >> 20, rdev & 0xf_ffff);
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_as_mknod_takes_them() {
        assert_eq!(encoded((8 << 20) | 1), 0x801);
        assert_eq!(encoded((0x123 << 20) | 0x4_5678), 0x4561_2378);
    }
}
