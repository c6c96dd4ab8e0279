//! Follows the chain of node blocks that fsyncs wrote after the checkpoint, and which the next mount replays; reports
//! blocks that cannot be read, a chain that loops, and its length. Called by `run`.

use std::collections::BTreeSet;

use f2fs_disk::checkpoint::WARM_NODE;
use f2fs_disk::node::Footer;
use f2fs_disk::{BlockAddr, Nid};

use crate::bitmap::Bitmap;
use crate::code::Code;
use crate::finding::{Findings, Place};
use crate::volume::Volume;

/// Follows the chain of nodes after the checkpoint, and notes its length.
pub(crate) fn follow(volume: &mut Volume<'_>, findings: &Findings) {
    let geometry = *volume.geometry();
    let fields = volume.checkpoint.fields();
    let segment = fields.cur_node_segno.get(WARM_NODE).map_or(0, |segment| segment.get());
    let offset = fields.cur_node_blkoff.get(WARM_NODE).map_or(0, |offset| u32::from(offset.get()));
    let mut at = geometry.segment_block(segment, offset);
    let mut seen = Bitmap::new(geometry.main_blocks);
    let (mut nodes, mut fsynced) = (0_u64, BTreeSet::<Nid>::new());
    while geometry.is_main(at) {
        let block = match volume.media.read(at) {
            Ok(block) => block,
            Err(error) => {
                findings.add(Code::LogRead, Place::block(at), "a node", error);
                break;
            }
        };
        let footer = Footer::of(&block);
        if !volume.checkpoint.is_of_next(footer.cp_ver.get()) {
            break;
        }
        if !seen.set(at.0.saturating_sub(geometry.main.0)) {
            findings.add(Code::LogLoop, Place::block(at), "a node that is not in the chain yet", "one that is");
            break;
        }
        nodes = nodes.saturating_add(1);
        if footer.is_fsync() {
            fsynced.insert(footer.ino());
        }
        at = BlockAddr(footer.next_blkaddr.get());
    }
    if nodes > 0 {
        let what = match fsynced.len() {
            0 => "without an fsync: the next mount ignores them".to_owned(),
            files => format!("with fsyncs of {files} files: the next mount for writing makes these part of the volume"),
        };
        findings.note(format!("{nodes} nodes were written after the checkpoint, {what}"));
    }
}
