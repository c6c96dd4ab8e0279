//! Damage of superblocks, checkpoints, tables and counters.

use f2fs_check::Code;
use f2fs_disk::nat::NatEntry;
use f2fs_disk::node::Footer;
use f2fs_disk::summary::SummaryBlock;
use f2fs_disk::{BlockAddr, Nid};

use crate::Plant;
use crate::image::Editor;

/// A segment that is not being written, with blocks of a large file.
fn full_segment(editor: &Editor) -> Option<u32> {
    let ino = editor.ino("/big")?;
    let fields = editor.checkpoint.fields();
    let current: Vec<u32> =
        fields.cur_data_segno.iter().chain(&fields.cur_node_segno).map(|found| found.get()).collect();
    let (inode, block) = editor.inode(ino);
    let mut segments = inode.addresses(&block).iter().map(|at| editor.segment_of(BlockAddr(at.get())));
    // The first block of the segment is the file's as well, or another one's in use.
    segments.find(|segment| !current.contains(segment))
}

/// The place of a block of the large file within that segment.
fn within(editor: &Editor, segment: u32) -> Option<usize> {
    let (inode, block) = editor.inode(editor.ino("/big")?);
    let at =
        inode.addresses(&block).iter().map(|at| BlockAddr(at.get())).find(|at| editor.segment_of(*at) == segment)?;
    Some(usize::try_from((at.0 - editor.geometry().main.0) % 512).unwrap())
}

/// The first node of the chain behind the checkpoint.
fn first_fsynced(editor: &Editor) -> Option<BlockAddr> {
    let fields = editor.checkpoint.fields();
    let (segment, next) = (fields.cur_node_segno[1].get(), u32::from(fields.cur_node_blkoff[1].get()));
    let at = editor.geometry().segment_block(segment, next);
    let footer = Footer::of(&editor.read(at));
    editor.checkpoint.is_of_next(footer.cp_ver.get()).then_some(at)
}

pub const PLANTS: &[Plant] = &[
    (Code::SuperCopy, "magic", |editor| {
        editor.super_copy(1, false, |fields| fields.magic = 0.into());
        Some(())
    }),
    (Code::SuperCopy, "first", |editor| {
        editor.super_copy(0, true, |fields| fields.segs_per_sec = 0.into());
        Some(())
    }),
    (Code::SuperMirror, "label", |editor| {
        editor.super_copy(1, true, |fields| fields.volume_name[0] = 0x41.into());
        Some(())
    }),
    (Code::SuperSize, "device", |editor| {
        editor.shorten(16 << 20);
        Some(())
    }),
    (Code::CheckpointPack, "nodes", |editor| {
        editor.checkpoint_fields(|fields| fields.valid_node_count = u32::MAX.into());
        Some(())
    }),
    (Code::CheckpointError, "flag", |editor| {
        editor.checkpoint_fields(|fields| fields.ckpt_flags = (fields.ckpt_flags.get() | 0x10).into());
        Some(())
    }),
    (Code::CheckpointSummary, "kind", |editor| {
        (!editor.is_packed()).then(|| editor.edit_summary(1, |summary| summary.footer.entry_type = 1))
    }),
    (Code::CheckpointSummary, "journal", |editor| {
        let spoil = |summary: &mut SummaryBlock| summary.journal[..2].fill(0xff);
        (!editor.is_packed()).then(|| editor.edit_summary(0, spoil))
    }),
    (Code::CheckpointSummary, "packed journal", |editor| {
        let at = editor.checkpoint.compact_summaries();
        editor.is_packed().then(|| editor.edit(at, |block| block[..2].fill(0xff)))
    }),
    (Code::CheckpointOrphans, "count", |editor| {
        let (at, count) = editor.checkpoint.orphan_blocks(0);
        (count > 0).then(|| editor.edit(at, |block| block[4088..4092].fill(0xff)))
    }),
    (Code::CheckpointCurrent, "two logs", |editor| {
        editor.checkpoint_fields(|fields| fields.cur_data_segno[0] = fields.cur_data_segno[2]);
        Some(())
    }),
    (Code::CheckpointCurrent, "next block", |editor| {
        editor.checkpoint_fields(|fields| {
            let next = fields.cur_node_blkoff[0].get();
            fields.cur_node_blkoff[0] = next.saturating_sub(1).into();
        });
        Some(())
    }),
    (Code::NatAddress, "address", |editor| {
        let ino = editor.ino("/small")?;
        editor.set_nat(ino, NatEntry::new(0, ino, BlockAddr(5)));
        Some(())
    }),
    (Code::NatInode, "none", |editor| {
        let ino = editor.ino("/small")?;
        editor.set_nat(ino, NatEntry::new(0, Nid(0), editor.nat(ino).at()));
        Some(())
    }),
    (Code::NatInode, "another", |editor| {
        let ino = editor.ino("/small")?;
        editor.set_nat(ino, NatEntry::new(0, Nid(3), editor.nat(ino).at()));
        Some(())
    }),
    (Code::TableRead, "NAT", |editor| {
        let (at, _) = editor.geometry().nat_block(Nid(3), editor.checkpoint.nat_bitmap());
        editor.spoil(at);
        Some(())
    }),
    (Code::TableRead, "SIT", |editor| {
        let (at, _) = editor.geometry().sit_block(0, editor.checkpoint.sit_bitmap());
        editor.spoil(at);
        Some(())
    }),
    (Code::SitEntry, "count", |editor| {
        let segment = full_segment(editor)?;
        // In the journal it would be the summary that is wrong.
        if editor.sit_journal().iter().any(|(found, _)| *found == segment) {
            return None;
        }
        editor.edit_sit(segment, |entry| entry.vblocks = (entry.vblocks.get() - 1).into());
        Some(())
    }),
    (Code::SitMissing, "bit", |editor| {
        let segment = full_segment(editor)?;
        let at = within(editor, segment)?;
        editor.edit_sit(segment, |entry| {
            f2fs_disk::bits::clear_bit(&mut entry.valid_map, at);
            entry.vblocks = (entry.vblocks.get() - 1).into();
        });
        Some(())
    }),
    (Code::SitExtra, "bit", |editor| {
        let segment = editor.geometry().main_blocks / 512 - 3;
        editor.edit_sit(segment, |entry| {
            entry.valid_map[60] |= 1;
            entry.vblocks = (entry.vblocks.get() + 1).into();
        });
        Some(())
    }),
    (Code::SitType, "nodes", |editor| {
        let segment = full_segment(editor)?;
        editor.edit_sit(segment, |entry| entry.vblocks = ((4 << 10) | (entry.vblocks.get() & 0x3ff)).into());
        Some(())
    }),
    (Code::SummaryOwner, "index", |editor| {
        let within = within(editor, full_segment(editor)?)?;
        let at = editor.geometry().summary_block(full_segment(editor)?);
        editor.edit_summary_at(at, |summary| summary.entries[within].ofs_in_node = 1000.into());
        Some(())
    }),
    (Code::SummaryOwner, "node", |editor| {
        let within = within(editor, full_segment(editor)?)?;
        let at = editor.geometry().summary_block(full_segment(editor)?);
        editor.edit_summary_at(at, |summary| summary.entries[within].nid = 3.into());
        Some(())
    }),
    (Code::SummaryType, "nodes", |editor| {
        let at = editor.geometry().summary_block(full_segment(editor)?);
        editor.edit_summary_at(at, |summary| summary.footer.entry_type = 1);
        Some(())
    }),
    (Code::SummaryRead, "kind", |editor| {
        let at = editor.geometry().summary_block(full_segment(editor)?);
        editor.edit_summary_at(at, |summary| summary.footer.entry_type = 7);
        Some(())
    }),
    (Code::CountBlocks, "one more", |editor| {
        editor.checkpoint_fields(|fields| fields.valid_block_count = (fields.valid_block_count.get() + 1).into());
        Some(())
    }),
    (Code::CountNodes, "one more", |editor| {
        editor.checkpoint_fields(|fields| fields.valid_node_count = (fields.valid_node_count.get() + 1).into());
        Some(())
    }),
    (Code::CountInodes, "one more", |editor| {
        editor.checkpoint_fields(|fields| fields.valid_inode_count = (fields.valid_inode_count.get() + 1).into());
        Some(())
    }),
    (Code::CountFree, "one more", |editor| {
        editor.checkpoint_fields(|fields| fields.free_segment_count = (fields.free_segment_count.get() + 1).into());
        Some(())
    }),
    (Code::LogLoop, "itself", |editor| {
        let at = first_fsynced(editor)?;
        editor.edit(at, |block| {
            let footer = Footer { next_blkaddr: at.0.into(), ..Footer::of(block) };
            footer.put(block);
        });
        Some(())
    }),
    (Code::LogRead, "first", |editor| {
        let at = first_fsynced(editor)?;
        editor.spoil(at);
        Some(())
    }),
    (Code::QuotaInode, "none", |editor| {
        for copy in 0..2 {
            let nid = editor.free_nid();
            editor.super_copy(copy, true, |fields| {
                fields.feature = (fields.feature.get() | 0x80).into();
                fields.qf_ino[0] = nid.0.into();
            });
        }
        Some(())
    }),
    (Code::QuotaFile, "magic", |editor| {
        let at = quota_file(editor)?;
        editor.edit(at, |block| block[0] ^= 1);
        Some(())
    }),
    (Code::QuotaFile, "tree", |editor| {
        let at = quota_file(editor)?;
        // The first level leads to itself.
        editor.edit(at, |block| block[2048] = 2);
        Some(())
    }),
    (Code::QuotaUsage, "inodes", |editor| {
        let at = quota_leaf(editor)?;
        editor.edit(at, |block| block[1024 + 40] ^= 1);
        Some(())
    }),
    (Code::QuotaUsage, "missing", |editor| {
        let at = quota_leaf(editor)?;
        editor.edit(at, |block| block[1024 + 16..][..72].fill(0));
        Some(())
    }),
    (Code::OrphanMissing, "number", |editor| {
        let (at, count) = editor.checkpoint.orphan_blocks(0);
        let nid = editor.free_nid();
        (count > 0).then(|| editor.edit(at, |block| block[..4].copy_from_slice(&nid.0.to_le_bytes())))
    }),
    (Code::OrphanNamed, "number", |editor| {
        let (at, count) = editor.checkpoint.orphan_blocks(0);
        let ino = editor.ino("/small")?;
        (count > 0).then(|| editor.edit(at, |block| block[..4].copy_from_slice(&ino.0.to_le_bytes())))
    }),
    (Code::OrphanLinks, "one", |editor| {
        let (at, count) = editor.checkpoint.orphan_blocks(0);
        let block = editor.read(at);
        let ino = Nid(u32::from_le_bytes(*block.first_chunk().unwrap()));
        (count > 0).then(|| editor.edit_node(ino, |block| f2fs_disk::inode::fields_mut(block).i_links = 1.into()))
    }),
];

/// The first block of a quota file, of four of its own.
fn quota_file(editor: &Editor) -> Option<BlockAddr> {
    quota_block(editor, 0)
}

/// The block with the leaf that a new quota file has, in its second quarter.
fn quota_leaf(editor: &Editor) -> Option<BlockAddr> {
    quota_block(editor, 1)
}

fn quota_block(editor: &Editor, index: usize) -> Option<BlockAddr> {
    let mut found = None;
    editor.super_copy(0, false, |fields| found = fields.qf_ino.iter().map(|ino| Nid(ino.get())).find(|ino| ino.0 != 0));
    found.map(|ino| editor.address(ino, index))
}
