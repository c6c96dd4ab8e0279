//! Procedures on the contents of files: READLINK, READ, WRITE, COMMIT.

use std::ops::Deref;

use access::Right;
use vfs::FileSystem as _;
use vfs::file_system::{Attr, Handle, SyncWhat, WriteFlags};

use super::session::{Held, Outcome, Session, Wcc, put_status};
use crate::number::{to_u32, to_u64, to_usize};
use crate::wire::{DATA_BYTES_MAX, Stability, Status, Writer};

/// Most clients and file systems have signed offsets.
const OFFSET_MAX: u64 = i64::MAX.cast_unsigned();

/// The result of a WRITE.
struct Done {
    count: usize,
    verifier: u64,
}

/// Procedures on contents.
pub(super) struct Contents<'s, 'a>(pub(super) &'s Session<'a>);

impl<'a> Deref for Contents<'_, 'a> {
    type Target = Session<'a>;

    fn deref(&self) -> &Session<'a> {
        self.0
    }
}

impl Contents<'_, '_> {
    pub(super) fn read_link(&self, node: &[u8], out: &mut Writer) {
        let mut attr = None;
        let done = self.node(node).and_then(|node| {
            attr = Some(node.attr);
            if !node.attr.is_symlink() {
                return Err(Status::INVAL);
            }
            Ok(self.view.read_link(node.node)?)
        });
        let target = put_status(out, done);
        self.put_attr(out, attr.as_ref());
        if let Some(target) = target {
            out.opaque(&target);
        }
    }

    pub(super) fn read(&self, node: &[u8], offset: u64, count: u32, out: &mut Writer) {
        let start = out.len();
        let mut attr = None;
        let done = self.node(node).and_then(|node| {
            attr = Some(node.attr);
            self.may_read(&node)?;
            out.u32(Status::OK.0);
            self.put_attr(out, Some(&node.attr));
            let facts = out.len();
            out.u32(0);
            out.bool(false);
            let len = to_usize(count.min(DATA_BYTES_MAX));
            // Allocates no more than the rest of the file needs.
            let left = node.attr.size.saturating_sub(offset);
            let len = usize::try_from(left).map_or(len, |left| len.min(left));
            let fill = |buf: &mut [u8]| match buf.is_empty() {
                true => Ok(0),
                false => self.view.read(node.node, Handle::default(), offset, buf),
            };
            let read = out.filled(len, fill)?;
            let is_end = offset.saturating_add(to_u64(read)) >= node.attr.size;
            out.set_u32(facts, to_u32(read));
            out.set_u32(facts + 4, u32::from(is_end));
            Ok(())
        });
        if let Err(status) = done {
            out.truncate(start);
            out.u32(status.0);
            self.put_attr(out, attr.as_ref());
        }
    }

    /// Execute permission is enough: a client reads a program to run it. An owner may always read: the file may be
    /// open, and its mode may have changed since.
    fn may_read(&self, node: &Held<'_>) -> Outcome<()> {
        check_is_file(&node.attr)?;
        let may = |right| self.view.grants(node.node, &node.attr, right);
        if self.owns(&node.attr) || may(Right::Read)? || may(Right::Search)? { Ok(()) } else { Err(Status::ACCES) }
    }

    pub(super) fn write(&self, node: &[u8], offset: u64, stability: Stability, data: &[u8], out: &mut Writer) {
        let mut wcc = Wcc::default();
        let done = self.node(node).and_then(|node| self.write_to(&node, offset, stability, data, &mut wcc));
        let done = put_status(out, done);
        self.put_wcc(out, &wcc);
        if let Some(Done { count, verifier }) = done {
            out.u32(to_u32(count));
            out.u32(stability.number());
            out.u64(verifier);
        }
    }

    fn write_to(
        &self,
        node: &Held<'_>,
        offset: u64,
        stability: Stability,
        data: &[u8],
        wcc: &mut Wcc,
    ) -> Outcome<Done> {
        check_is_file(&node.attr)?;
        if offset.checked_add(to_u64(data.len())).is_none_or(|end| end > OFFSET_MAX) {
            return Err(Status::FBIG);
        }
        // Before the write: if data is lost after this point, the COMMIT has to return another verifier.
        let verifier = self.shared.verifier();
        let count = {
            let _turn = self.shared.order.lock(node.node);
            let before = self.shared.fs.attr(node.node)?;
            (wcc.before, wcc.after) = (Some(before), Some(before));
            if !self.owns(&before) && !self.view.grants(node.node, &before, Right::Write)? {
                return Err(Status::ACCES);
            }
            let written = self.view.write(node.node, Handle::default(), offset, data, WriteFlags::empty());
            wcc.after = self.attr(node.node);
            let written = written.inspect_err(|error| {
                if Status::from(error.errno()) == Status::IO {
                    self.shared.change_verifier();
                }
            })?;
            data.len().saturating_sub(written.missing)
        };
        match stability {
            Stability::Unstable => {}
            Stability::DataSync => self.sync(&[node.node], SyncWhat::Data)?,
            Stability::FileSync => self.sync(&[node.node], SyncWhat::All)?,
        }
        Ok(Done { count, verifier })
    }

    /// Syncs the whole file: the range that the client names is only a hint.
    pub(super) fn commit(&self, node: &[u8], out: &mut Writer) {
        let mut wcc = Wcc::default();
        let verifier = self.shared.verifier();
        let done = self.node(node).and_then(|node| {
            (wcc.before, wcc.after) = (Some(node.attr), Some(node.attr));
            check_is_file(&node.attr)?;
            self.view.may_change()?;
            self.sync(&[node.node], SyncWhat::All)
        });
        let is_done = put_status(out, done).is_some();
        self.put_wcc(out, &wcc);
        if is_done {
            out.u64(verifier);
        }
    }
}

fn check_is_file(attr: &Attr) -> Outcome<()> {
    match attr {
        attr if attr.is_file() => Ok(()),
        attr if attr.is_dir() => Err(Status::ISDIR),
        _ => Err(Status::INVAL),
    }
}
