//! Procedures on names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.
//!
//! Each change is durable before its reply. For a new node the server syncs the node, which also makes its names
//! durable; for a removed name it syncs the directory.

use std::ops::Deref;

use vfs::FileSystem as _;
use vfs::NodeId;
use vfs::file_system::{Attr, Entry, Errno, NewNode, NodeKind, RenameFlags, SetAttr, SetTime, SyncWhat, Time};

use super::session::{Held, Outcome, PERMISSIONS, Session, Wcc, put_status};
use crate::wire::{CREATE_VERIFIER_BYTES, DirOp, How, SetAttributes, Status, Writer};

/// Permission bits of a new node if the client sends none. After an exclusive CREATE it sets them with SETATTR.
const PERMISSIONS_DEFAULT: u32 = 0o600;
/// The largest device numbers that fit into 32 bits.
const MAJOR_MAX: u32 = 0xfff;
const MINOR_MAX: u32 = 0xf_ffff;

/// Directories on the way up from one to the exported directory; more are taken for a loop.
const DEPTH_MAX: u32 = 4096;

/// Procedures on names.
pub(super) struct Names<'s, 'a>(pub(super) &'s Session<'a>);

impl<'a> Deref for Names<'_, 'a> {
    type Target = Session<'a>;

    fn deref(&self) -> &Session<'a> {
        self.0
    }
}

impl<'a> Names<'_, 'a> {
    pub(super) fn lookup(&self, at: DirOp<'_>, out: &mut Writer) {
        let mut dir_attr = None;
        let done = self.dir(at.dir).and_then(|dir| {
            dir_attr = Some(dir.attr);
            check_name(at.name)?;
            if at.name == b".." && !self.is_exported(dir.node)? {
                return Err(Status::NOENT);
            }
            let found = self.hold(self.view.lookup(dir.node, at.name)?);
            Ok(found)
        });
        if let Some(found) = put_status(out, done) {
            out.opaque(&self.handle_of(found.node, &found.attr));
            self.put_attr(out, Some(&found.attr));
        }
        self.put_attr(out, dir_attr.as_ref());
    }

    /// True for the exported directory and those below it: the handle of another one outlived its move out of there.
    fn is_exported(&self, dir: NodeId) -> Outcome<bool> {
        let (fs, base) = (&self.shared.fs, self.shared.base);
        if base == NodeId::ROOT {
            return Ok(true);
        }
        let mut at = self.hold(fs.lookup(dir, b".")?);
        for _ in 0..DEPTH_MAX {
            if at.node == base || at.node == NodeId::ROOT {
                return Ok(at.node == base);
            }
            at = self.hold(fs.lookup(at.node, b"..")?);
        }
        Ok(false)
    }

    pub(super) fn create(&self, at: DirOp<'_>, how: &How, out: &mut Writer) {
        self.reply_made(at, out, |dir| match how {
            How::Guarded(attributes) => self.make(dir, at.name, NodeKind::File, attributes, (0, b"")),
            // First look for an existing file: taking it needs no write permission on the directory.
            How::Unchecked(attributes) => match self.take_existing(dir, at.name, attributes) {
                Err(Status::NOENT) => self.make(dir, at.name, NodeKind::File, attributes, (0, b"")),
                taken => taken,
            },
            How::Exclusive(verifier) => self.create_exclusive(dir, at.name, *verifier),
        });
    }

    pub(super) fn make_dir(&self, at: DirOp<'_>, attributes: &SetAttributes, out: &mut Writer) {
        self.reply_made(at, out, |dir| self.make(dir, at.name, NodeKind::Directory, attributes, (0, b"")));
    }

    pub(super) fn make_link(&self, at: DirOp<'_>, attributes: &SetAttributes, target: &[u8], out: &mut Writer) {
        // Symbolic links have no mode.
        let attributes = SetAttributes { mode: None, size: None, ..*attributes };
        self.reply_made(at, out, |dir| match target.contains(&0) || target.is_empty() {
            true => Err(Status::INVAL),
            false => self.make(dir, at.name, NodeKind::Symlink, &attributes, (0, target)),
        });
    }

    pub(super) fn make_node(
        &self,
        at: DirOp<'_>,
        kind: Option<NodeKind>,
        attributes: &SetAttributes,
        device: (u32, u32),
        out: &mut Writer,
    ) {
        self.reply_made(at, out, |dir| {
            let (major, minor) = device;
            if major > MAJOR_MAX || minor > MINOR_MAX {
                return Err(Status::INVAL);
            }
            let rdev = (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
            self.make(dir, at.name, kind.ok_or(Status::BADTYPE)?, attributes, (rdev, b""))
        });
    }

    /// Makes a node in a directory, durably, and writes the reply.
    fn reply_made(&self, at: DirOp<'_>, out: &mut Writer, make: impl FnOnce(NodeId) -> Outcome<Held<'a>>) {
        let mut wcc = Wcc::default();
        let done = self.dir(at.dir).and_then(|dir| {
            let made = self.in_turn(dir.node, &mut wcc, || {
                check_new_name(at.name)?;
                make(dir.node)
            })?;
            self.sync(&[made.node], SyncWhat::All)?;
            Ok(made)
        });
        if let Some(made) = put_status(out, done) {
            let attr = self.attr(made.node).unwrap_or(made.attr);
            self.put_handle(out, Some((made.node, &attr)));
            self.put_attr(out, Some(&attr));
        }
        self.put_wcc(out, &wcc);
    }

    /// Runs a change under the lock of its directory, and records the attributes before and after.
    fn in_turn<T>(&self, dir: NodeId, wcc: &mut Wcc, change: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let _turn = self.shared.order.lock(dir);
        wcc.before = self.attr(dir);
        let done = change();
        wcc.after = self.attr(dir);
        done
    }

    fn make(
        &self,
        dir: NodeId,
        name: &[u8],
        kind: NodeKind,
        attributes: &SetAttributes,
        (rdev, target): (u32, &[u8]),
    ) -> Outcome<Held<'a>> {
        // The client has already applied its umask.
        let permissions = attributes.mode.unwrap_or(PERMISSIONS_DEFAULT) & PERMISSIONS;
        let new = NewNode { kind, permissions, umask: 0, rdev, target };
        let made = self.hold(self.view.create(&self.caller, dir, name, &new)?);
        // Some clients send an owner with every CREATE. Only root may give files away, so others' values are ignored.
        let gives = self.is_root();
        let rest = SetAttributes {
            mode: None,
            uid: attributes.uid.filter(|uid| gives && *uid != made.attr.uid),
            gid: attributes.gid.filter(|gid| gives && *gid != made.attr.gid),
            size: attributes.size.filter(|size| *size != 0 && kind.is_file()),
            ..*attributes
        };
        self.apply(made.node, &made.attr, &rest)?;
        Ok(made)
    }

    /// Takes the existing file for an unchecked CREATE, and sets its size only.
    fn take_existing(&self, dir: NodeId, name: &[u8], attributes: &SetAttributes) -> Outcome<Held<'a>> {
        let found = self.hold(self.view.lookup(dir, name)?);
        if !found.attr.is_file() {
            return Err(Status::EXIST);
        }
        self.apply(found.node, &found.attr, &SetAttributes { size: attributes.size, ..SetAttributes::default() })?;
        Ok(found)
    }

    /// Exclusive CREATE: stores the verifier in the times of the new file, until the client sets them. If the client
    /// repeats the call, even after a restart of the server, the verifier shows that the existing file is its own.
    fn create_exclusive(&self, dir: NodeId, name: &[u8], verifier: [u8; CREATE_VERIFIER_BYTES]) -> Outcome<Held<'a>> {
        let (atime, mtime) = times_of(verifier);
        match self.make(dir, name, NodeKind::File, &SetAttributes::default(), (0, b"")) {
            Ok(made) => {
                let set =
                    SetAttr { atime: Some(SetTime::To(atime)), mtime: Some(SetTime::To(mtime)), ..SetAttr::default() };
                self.shared.fs.set_attr(&self.caller, made.node, &set)?;
                Ok(made)
            }
            Err(Status::EXIST) => {
                let found = self.hold(self.view.lookup(dir, name)?);
                let Attr { size, atime: was_read, mtime: was_changed, .. } = found.attr;
                match found.attr.is_file() && size == 0 && (was_read, was_changed) == (atime, mtime) {
                    true => Ok(found),
                    false => Err(Status::EXIST),
                }
            }
            Err(status) => Err(status),
        }
    }

    pub(super) fn remove(&self, at: DirOp<'_>, out: &mut Writer) {
        self.reply_removed(at, out, |dir| Ok(self.view.unlink(dir, at.name)?));
    }

    pub(super) fn remove_dir(&self, at: DirOp<'_>, out: &mut Writer) {
        self.reply_removed(at, out, |dir| Ok(self.view.remove_dir(dir, at.name)?));
    }

    fn reply_removed(&self, at: DirOp<'_>, out: &mut Writer, remove: impl FnOnce(NodeId) -> Outcome<()>) {
        let mut wcc = Wcc::default();
        let done = self.dir(at.dir).and_then(|dir| {
            self.in_turn(dir.node, &mut wcc, || {
                check_old_name(at.name)?;
                remove(dir.node)
            })?;
            self.sync(&[dir.node], SyncWhat::All)
        });
        let _ = put_status(out, done);
        self.put_wcc(out, &wcc);
    }

    pub(super) fn rename(&self, from: DirOp<'_>, to: DirOp<'_>, out: &mut Writer) {
        let (mut from_wcc, mut to_wcc) = (Wcc::default(), Wcc::default());
        let done = self.move_name(from, to, &mut from_wcc, &mut to_wcc);
        let _ = put_status(out, done);
        self.put_wcc(out, &from_wcc);
        self.put_wcc(out, &to_wcc);
    }

    fn move_name(&self, from: DirOp<'_>, to: DirOp<'_>, from_wcc: &mut Wcc, to_wcc: &mut Wcc) -> Outcome<()> {
        let (old_dir, new_dir) = (self.dir(from.dir)?, self.dir(to.dir)?);
        let moved = {
            let _turns = self.shared.order.lock_two(old_dir.node, new_dir.node);
            (from_wcc.before, to_wcc.before) = (self.attr(old_dir.node), self.attr(new_dir.node));
            let done = self.move_between(&old_dir, from.name, &new_dir, to.name);
            (from_wcc.after, to_wcc.after) = (self.attr(old_dir.node), self.attr(new_dir.node));
            done?
        };
        // The moved node first, because its sync makes the new name durable: a crash before the next one keeps the
        // file.
        match old_dir.node == new_dir.node {
            true => self.sync(&[moved.node, new_dir.node], SyncWhat::All),
            false => self.sync(&[moved.node, new_dir.node, old_dir.node], SyncWhat::All),
        }
    }

    fn move_between(&self, from: &Held<'_>, old: &[u8], to: &Held<'_>, new: &[u8]) -> Outcome<Held<'a>> {
        check_old_name(old)?;
        check_new_name(new)?;
        let moved = self.hold(self.view.lookup(from.node, old)?);
        self.view.rename(&self.caller, (from.node, old), (to.node, new), RenameFlags::empty())?;
        Ok(moved)
    }

    pub(super) fn link(&self, node: &[u8], at: DirOp<'_>, out: &mut Writer) {
        let (mut attr, mut wcc) = (None, Wcc::default());
        let done = self.node(node).and_then(|node| {
            attr = Some(node.attr);
            let dir = self.dir(at.dir)?;
            let linked = self.in_turn(dir.node, &mut wcc, || {
                check_new_name(at.name)?;
                let linked: Entry = self.view.link(node.node, dir.node, at.name)?;
                Ok(self.hold(linked))
            })?;
            attr = Some(linked.attr);
            self.sync(&[linked.node], SyncWhat::All)
        });
        let _ = put_status(out, done);
        self.put_attr(out, attr.as_ref());
        self.put_wcc(out, &wcc);
    }
}

/// Encodes a verifier as two times.
fn times_of(verifier: [u8; CREATE_VERIFIER_BYTES]) -> (Time, Time) {
    let number = u64::from_be_bytes(verifier);
    // 31 bits each: every format can store such a number as seconds.
    let half = |shift: u32| Time::new((number >> shift & 0x7fff_ffff).cast_signed(), 0);
    (half(32), half(0))
}

/// Checks that a name is valid for a lookup.
fn check_name(name: &[u8]) -> Outcome<()> {
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}

fn check_new_name(name: &[u8]) -> Outcome<()> {
    check_name(name)?;
    if matches!(name, b"." | b"..") { Err(Status::EXIST) } else { Ok(()) }
}

fn check_old_name(name: &[u8]) -> Outcome<()> {
    check_name(name)?;
    match name {
        b"." => Err(Status::INVAL),
        b".." => Err(Status::EXIST),
        _ => Ok(()),
    }
}
