//! Damage of nodes and inodes.

use f2fs_check::Code;
use f2fs_disk::flags::{Features, InlineFlags};
use f2fs_disk::inode::{Inode, fields_mut, nids_mut};
use f2fs_disk::node::Footer;
use f2fs_disk::{BlockAddr, Nid};

use crate::Plant;
use crate::image::Editor;

fn edit(editor: &Editor, path: &str, change: impl FnOnce(&mut f2fs_disk::Block)) -> Option<()> {
    editor.edit_node(editor.ino(path)?, change);
    Some(())
}

fn below(editor: &Editor, path: &str) -> Option<Nid> {
    let (_, block) = editor.inode(editor.ino(path)?);
    Inode::nids(&block).iter().map(|nid| Nid(nid.get())).find(|nid| nid.0 != 0)
}

pub const PLANTS: &[Plant] = &[
    (Code::NodeNumber, "too high", |editor| edit(editor, "/big", |block| nids_mut(block)[0] = 0xffff_fff0.into())),
    (Code::NodeNumber, "reserved", |editor| edit(editor, "/big", |block| nids_mut(block)[1] = 2.into())),
    (Code::NodeMissing, "free", |editor| {
        let nid = editor.free_nid();
        edit(editor, "/big", |block| nids_mut(block)[0] = nid.0.into())
    }),
    (Code::NodeMissing, "below an indirect one", |editor| {
        let (nid, free) = (below(editor, "/sparse")?, editor.free_nid());
        editor.edit_node(nid, |block| f2fs_disk::node::entries_mut(block)[1000] = free.0.into());
        Some(())
    }),
    (Code::NodeRead, "inode", |editor| {
        let at = editor.nat(editor.ino("/small")?).at();
        editor.spoil(at);
        Some(())
    }),
    (Code::NodeRead, "names", |editor| {
        let at = editor.address(editor.ino("/many")?, 0);
        editor.spoil(at);
        Some(())
    }),
    (Code::NodeFooter, "number", |editor| {
        let nid = below(editor, "/big")?;
        editor.edit_node(nid, |block| Footer { nid: 3.into(), ..Footer::of(block) }.put(block));
        Some(())
    }),
    (Code::NodeFooter, "place", |editor| {
        let nid = below(editor, "/big")?;
        editor.edit_node(nid, |block| Footer { flag: (77 << 3).into(), ..Footer::of(block) }.put(block));
        Some(())
    }),
    (Code::NodeTwice, "two places", |editor| {
        edit(editor, "/big", |block| {
            let nids = nids_mut(block);
            nids[1] = nids[0];
        })
    }),
    (Code::NodeUnreachable, "cut off", |editor| edit(editor, "/big", |block| nids_mut(block)[0] = 0.into())),
    (Code::BlockAddress, "too low", |editor| {
        editor.set_address(editor.ino("/big")?, 5, BlockAddr(9));
        Some(())
    }),
    (Code::BlockAddress, "too high", |editor| {
        editor.set_address(editor.ino("/big")?, 5, editor.geometry().end());
        Some(())
    }),
    (Code::BlockTwice, "two places", |editor| {
        let ino = editor.ino("/big")?;
        editor.set_address(ino, 5, editor.address(ino, 6));
        Some(())
    }),
    (Code::BlockTwice, "a node as data", |editor| {
        let at = editor.nat(editor.ino("/small")?).at();
        editor.set_address(editor.ino("/big")?, 5, at);
        Some(())
    }),
    (Code::InodeInvalid, "mode", |editor| edit(editor, "/small", |block| fields_mut(block).i_mode = 0.into())),
    (Code::InodeInvalid, "extra attributes", |editor| {
        let size = if editor.superblock.features().contains(Features::EXTRA_ATTR) { 8 } else { 36 };
        edit(editor, "/link", |block| {
            fields_mut(block).i_inline |= InlineFlags::EXTRA_ATTR.bits();
            f2fs_disk::inode::extra_mut(block).unwrap().i_extra_isize = size.into();
        })
    }),
    (Code::InodeExtent, "of inline contents", |editor| {
        edit(editor, "/small", |block| fields_mut(block).i_ext.len = 7.into())
    }),
    (Code::InodeInvalid, "root", |editor| {
        editor.edit_node(Nid(3), |block| fields_mut(block).i_mode = 0o100_644.into());
        Some(())
    }),
    (Code::InodeChecksum, "generation", |editor| {
        if !editor.superblock.features().contains(Features::INODE_CHKSUM) {
            return None;
        }
        let at = editor.nat(editor.ino("/small")?).at();
        editor.edit(at, |block| fields_mut(block).i_generation = 0x55.into());
        Some(())
    }),
    (Code::InodeBlocks, "one more", |editor| {
        edit(editor, "/big", |block| {
            let fields = fields_mut(block);
            fields.i_blocks = (fields.i_blocks.get() + 1).into();
        })
    }),
    (Code::InodeBlocks, "of a directory", |editor| {
        edit(editor, "/many", |block| fields_mut(block).i_blocks = 1.into())
    }),
    (Code::InodeLinks, "too many", |editor| edit(editor, "/small", |block| fields_mut(block).i_links = 2.into())),
    (Code::InodeLinks, "too few", |editor| edit(editor, "/middle", |block| fields_mut(block).i_links = 1.into())),
    (Code::InodeLinks, "none", |editor| edit(editor, "/small", |block| fields_mut(block).i_links = 0.into())),
    (Code::InodeName, "length", |editor| edit(editor, "/small", |block| fields_mut(block).i_namelen = 300.into())),
    (Code::InodeInline, "first word", |editor| {
        let (inode, _) = editor.inode(editor.ino("/small")?);
        edit(editor, "/small", |block| inode.addresses_mut(block)[0] = 8.into())
    }),
    (Code::InodeInline, "not written", |editor| {
        edit(editor, "/small", |block| {
            let fields = fields_mut(block);
            fields.i_inline &= !InlineFlags::DATA_EXIST.bits();
        })
    }),
    (Code::InodeExtent, "length", |editor| {
        let at = editor.address(editor.ino("/big")?, 0);
        edit(editor, "/big", |block| {
            let fields = fields_mut(block);
            fields.i_ext.blk = at.0.into();
            fields.i_ext.len = 60_000.into();
        })
    }),
    (Code::InodeCompressed, "not compressed", |editor| {
        editor.set_address(editor.ino("/big")?, 4, BlockAddr::COMPRESS);
        Some(())
    }),
    (Code::InodeXattr, "node", |editor| {
        let (inode, _) = editor.inode(editor.ino("/middle")?);
        let nid = inode.xattr_nid()?;
        editor.edit_node(nid, |block| block[..4000].fill(0xff));
        Some(())
    }),
    (Code::InodeXattr, "inline", |editor| {
        let (inode, _) = editor.inode(editor.ino("/small")?);
        edit(editor, "/small", |block| inode.inline_xattrs_mut(block)[24..28].fill(0xff))
    }),
    (Code::InodeSymlink, "size", |editor| edit(editor, "/link", |block| fields_mut(block).i_size = 0.into())),
];
