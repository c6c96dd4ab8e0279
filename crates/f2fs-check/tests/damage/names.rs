//! Damage of directories.

use f2fs_check::Code;
use f2fs_disk::bits::{set_bit_le, test_bit_le};
use f2fs_disk::dentry::Slots;
use f2fs_disk::inode::fields_mut;
use f2fs_disk::{Block, BlockAddr};

use crate::Plant;
use crate::image::Editor;

/// Where entries begin in a block, and their length; where names begin, and their length.
const ENTRIES: (usize, usize) = (30, 11);
const NAMES: (usize, usize) = (30 + 214 * 11, 8);

/// A block of names, and the first slots of two of them that are neither `.` nor `..`.
fn names(editor: &Editor) -> Option<(BlockAddr, usize, usize)> {
    let ino = editor.ino("/many")?;
    (0..8).map(|index| editor.address(ino, index)).filter(|at| at.is_block()).find_map(|at| {
        let block = editor.read(at);
        let entries = Slots::of_block(&block).entries_from(0).map(Result::unwrap);
        let slots: Vec<_> = entries.filter(|entry| entry.name.len() > 8).map(|entry| entry.slot).collect();
        Some((at, *slots.first()?, *slots.get(1)?))
    })
}

fn entry(block: &mut Block, slot: usize) -> &mut [u8] {
    &mut block[ENTRIES.0 + slot * ENTRIES.1..][..ENTRIES.1]
}

/// Changes the entry of a name: four bytes of hash, four of inode, two of length, one of type.
fn edit(editor: &Editor, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let (at, slot, _) = names(editor)?;
    editor.edit(at, |block| change(entry(block, slot)));
    Some(())
}

pub const PLANTS: &[Plant] = &[
    (Code::DirEntry, "length", |editor| edit(editor, |entry| entry[8..10].fill(0xff))),
    (Code::DirEntry, "slash", |editor| {
        let (at, slot, _) = names(editor)?;
        editor.edit(at, |block| block[NAMES.0 + slot * NAMES.1] = b'/');
        Some(())
    }),
    (Code::DirSlots, "no name", |editor| {
        let (ino, is_free) = (editor.ino("/many")?, |block: &Block, slot| !test_bit_le(&block[..27], slot));
        let blocks = (0..8).map(|index| editor.address(ino, index)).filter(|at| at.is_block());
        let mut free = blocks.filter_map(|at| Some((at, (0..214).find(|slot| is_free(&editor.read(at), *slot))?)));
        let (at, slot) = free.next()?;
        editor.edit(at, |block| {
            set_bit_le(&mut block[..27], slot);
            entry(block, slot).fill(0);
        });
        Some(())
    }),
    (Code::DirSlots, "free within", |editor| {
        let (at, slot, _) = names(editor)?;
        editor.edit(at, |block| f2fs_disk::bits::clear_bit_le(&mut block[..27], slot + 1));
        Some(())
    }),
    (Code::DirHash, "hash", |editor| edit(editor, |entry| entry[0] ^= 1)),
    (Code::DirHash, "of the name as it is, where case is ignored", |editor| {
        let ino = editor.ino("/folded")?;
        let (inode, block) = editor.inode(ino);
        if !inode.flags().contains(f2fs_disk::flags::InodeFlags::CASEFOLD) {
            return None;
        }
        let entries = Slots::inline(inode.inline_area(&block)).entries_from(0).map(Result::unwrap);
        let slot = entries.into_iter().find(|entry| entry.name == b"SIZE")?.slot;
        editor.edit_node(ino, |block| {
            let mut slots = f2fs_disk::dentry::SlotsMut::inline(inode.inline_area_mut(block));
            let (name, kind) = (&b"SIZE"[..], f2fs_disk::inode::Kind::File);
            slots.put(slot, &f2fs_disk::dentry::New { name, hash: f2fs_disk::hash::of_name(name), ino, kind });
        });
        Some(())
    }),
    (Code::DirPlace, "depth", |editor| {
        let ino = editor.ino("/many")?;
        editor.edit_node(ino, |block| fields_mut(block).i_current_depth = 0.into());
        Some(())
    }),
    (Code::DirPlace, "first level", |editor| {
        let ino = editor.ino("/many")?;
        editor.edit_node(ino, |block| fields_mut(block).i_dir_level = 9);
        Some(())
    }),
    (Code::DirPlace, "size", |editor| {
        let ino = editor.ino("/many")?;
        editor.edit_node(ino, |block| fields_mut(block).i_size = 4096.into());
        Some(())
    }),
    (Code::DirDouble, "the same name", |editor| {
        let (at, first, second) = names(editor)?;
        editor.edit(at, |block| {
            let slots = entry(block, first)[8].div_ceil(8).min(entry(block, second)[8].div_ceil(8));
            let (own, len) = (entry(block, first).to_vec(), usize::from(slots) * 8);
            entry(block, second).copy_from_slice(&own);
            let name = block[NAMES.0 + first * 8..][..len].to_vec();
            block[NAMES.0 + second * 8..][..len].copy_from_slice(&name);
        });
        Some(())
    }),
    (Code::DirTarget, "free", |editor| {
        let nid = editor.free_nid();
        edit(editor, |entry| entry[4..8].copy_from_slice(&nid.0.to_le_bytes()))
    }),
    (Code::DirTarget, "reserved", |editor| edit(editor, |entry| entry[4..8].copy_from_slice(&[2, 0, 0, 0]))),
    (Code::DirTarget, "too high", |editor| edit(editor, |entry| entry[4..8].fill(0xff))),
    (Code::DirType, "pipe", |editor| edit(editor, |entry| entry[10] = 5)),
    (Code::DirType, "no type", |editor| edit(editor, |entry| entry[10] = 99)),
    (Code::DirDots, "parent", |editor| {
        let ino = editor.ino("/deep/er")?;
        editor.edit_node(ino, |block| {
            let at = find(block, b"..").unwrap();
            block[at..at + 4].copy_from_slice(&3_u32.to_le_bytes());
        });
        Some(())
    }),
    (Code::DirTwice, "below itself", |editor| {
        let top = editor.ino("/deep")?;
        edit(editor, |entry| {
            entry[4..8].copy_from_slice(&top.0.to_le_bytes());
            entry[10] = 2;
        })
    }),
    (Code::DirLinks, "links", |editor| {
        let ino = editor.ino("/deep")?;
        editor.edit_node(ino, |block| fields_mut(block).i_links = 7.into());
        Some(())
    }),
];

/// Where the number of the inode stands that a name of two bytes leads to: `.` and `..` are the first names inline.
fn find(block: &Block, name: &[u8]) -> Option<usize> {
    let len = u16::try_from(name.len()).unwrap().to_le_bytes();
    (360..3900)
        .find(|at| block[*at..*at + 4] == [0; 4] && block[*at + 8..*at + 11] == [len[0], len[1], 2])
        .map(|at| at + 4)
}
