//! Procedures on attributes of a node and of the volume: GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF.

use std::ops::Deref;

use access::Right;
use vfs::file_system::{SyncWhat, VolumeStatus};

use super::session::{Held, Outcome, Session, Wcc, put_status};
use crate::wire::{Access, DATA_BYTES_MAX, NfsTime, SetAttributes, Status, Writer, put_attributes};

const ANY_EXECUTE: u32 = 0o111;
/// Preferred size of a READDIR request (`dtpref`).
const LISTING_BYTES: u32 = 64 << 10;
/// Suggested multiple of transfer sizes (`rtmult`, `wtmult`).
const UNIT_BYTES: u32 = 4096;
/// Largest file size: clients have signed 64-bit offsets.
const FILE_BYTES_MAX: u64 = i64::MAX.cast_unsigned();
/// As good as no limit. Each format has a limit of its own, and fails with MLINK.
const LINKS_MAX: u32 = 65_535;

/// Properties of the export (`FSF3_*`): hard links, symbolic links, the same PATHCONF everywhere, SETATTR of times.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;

/// Procedures on attributes.
pub(super) struct Attributes<'s, 'a>(pub(super) &'s Session<'a>);

impl<'a> Deref for Attributes<'_, 'a> {
    type Target = Session<'a>;

    fn deref(&self) -> &Session<'a> {
        self.0
    }
}

impl Attributes<'_, '_> {
    pub(super) fn get_attr(&self, node: &[u8], out: &mut Writer) {
        if let Some(node) = put_status(out, self.node(node)) {
            put_attributes(out, &node.attr, self.shared.handles.volume());
        }
    }

    pub(super) fn set_attr(&self, node: &[u8], changes: &SetAttributes, guard: Option<NfsTime>, out: &mut Writer) {
        let mut wcc = Wcc::default();
        let done = self.node(node).and_then(|node| {
            self.change(&node, changes, guard, &mut wcc)?;
            self.sync(&[node.node], SyncWhat::All)
        });
        let _ = put_status(out, done);
        self.put_wcc(out, &wcc);
    }

    fn change(&self, node: &Held<'_>, changes: &SetAttributes, guard: Option<NfsTime>, wcc: &mut Wcc) -> Outcome<()> {
        let _turn = self.shared.order.lock(node.node);
        let before = self.shared.fs.attr(node.node)?;
        (wcc.before, wcc.after) = (Some(before), Some(before));
        if guard.is_some_and(|guard| guard != NfsTime::from(before.ctime)) {
            return Err(Status::NOT_SYNC);
        }
        if changes.size.is_some() && !before.is_file() {
            return Err(if before.is_dir() { Status::ISDIR } else { Status::INVAL });
        }
        let done = self.apply(node.node, &before, changes);
        wcc.after = self.attr(node.node);
        done
    }

    pub(super) fn access(&self, node: &[u8], wanted: Access, out: &mut Writer) {
        let (mut attr, mut granted) = (None, Access::empty());
        let done = self.node(node).and_then(|node| {
            attr = Some(node.attr);
            granted = self.granted(&node)?;
            Ok(())
        });
        let is_done = put_status(out, done).is_some();
        self.put_attr(out, attr.as_ref());
        if is_done {
            out.u32((granted & wanted).bits());
        }
    }

    /// All access rights that the user has on a node.
    fn granted(&self, node: &Held<'_>) -> Outcome<Access> {
        let may = |right| self.view.grants(node.node, &node.attr, right);
        let (reads, searches) = (may(Right::Read)?, may(Right::Search)?);
        let writes = may(Right::Write)? && !self.shared.read_only;
        let mut granted = Access::empty();
        granted.set(Access::READ, reads);
        if node.attr.is_dir() {
            granted.set(Access::LOOKUP, searches);
            granted.set(Access::MODIFY | Access::EXTEND | Access::DELETE, writes && searches);
        } else {
            granted.set(Access::MODIFY | Access::EXTEND, writes);
            // Root too needs an execute bit in the mode.
            granted.set(Access::EXECUTE, searches && node.attr.permissions & ANY_EXECUTE != 0);
        }
        Ok(granted)
    }

    pub(super) fn fs_stat(&self, node: &[u8], out: &mut Writer) {
        let mut attr = None;
        let done = self.node(node).and_then(|node| {
            attr = Some(node.attr);
            Ok(self.shared.fs.status()?)
        });
        let status = put_status(out, done);
        self.put_attr(out, attr.as_ref());
        if let Some(VolumeStatus { block_bytes, blocks, blocks_free, blocks_available, nodes, nodes_free, .. }) = status
        {
            for count in [blocks, blocks_free, blocks_available] {
                out.u64(count.saturating_mul(u64::from(block_bytes)));
            }
            for count in [nodes, nodes_free, nodes_free] {
                out.u64(count);
            }
            // `invarsec` 0: the numbers may change at any time.
            out.u32(0);
        }
    }

    pub(super) fn fs_info(&self, node: &[u8], out: &mut Writer) {
        let node = put_status(out, self.node(node));
        self.put_attr(out, node.as_ref().map(|node| &node.attr));
        if node.is_none() {
            return;
        }
        // For READ, then for WRITE: maximum, preferred size, multiple.
        for number in [DATA_BYTES_MAX, DATA_BYTES_MAX, UNIT_BYTES, DATA_BYTES_MAX, DATA_BYTES_MAX, UNIT_BYTES] {
            out.u32(number);
        }
        out.u32(LISTING_BYTES);
        out.u64(FILE_BYTES_MAX);
        // `time_delta`: one nanosecond.
        out.u32(0);
        out.u32(1);
        out.u32(PROPERTIES);
    }

    pub(super) fn path_conf(&self, node: &[u8], out: &mut Writer) {
        let mut attr = None;
        let done = self.node(node).and_then(|node| {
            attr = Some(node.attr);
            Ok(self.shared.fs.status()?.name_bytes_max)
        });
        let name_bytes_max = put_status(out, done);
        self.put_attr(out, attr.as_ref());
        if let Some(name_bytes_max) = name_bytes_max {
            out.u32(LINKS_MAX);
            out.u32(name_bytes_max);
            // `no_trunc`, `chown_restricted`; then `case_insensitive`, `case_preserving`.
            out.bool(true);
            out.bool(true);
            out.bool(self.shared.fs.ignores_case());
            out.bool(true);
        }
    }
}
