//! Damage of a file that fs-verity protects.

use codec::verity::DESCRIPTOR_SIZE;
use f2fs_check::Code;
use f2fs_disk::flags::{Advise, InlineFlags};
use f2fs_disk::inode::fields_mut;

use crate::Plant;
use crate::image::{DESCRIPTOR_AT, Editor, SEALED};

/// The descriptor's block within the file.
const DESCRIPTOR_BLOCK: usize = 16;

/// Protects the file; `change` gets the attribute's value.
pub fn seal(editor: &Editor, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let ino = editor.ino("/sealed")?;
    let (inode, _) = editor.inode(ino);
    if !inode.has_inline_xattr_room() || !inode.inline().contains(InlineFlags::XATTR) {
        return None;
    }
    let mut bytes = 0xf2f5_2011_u32.to_le_bytes().to_vec();
    bytes.resize(24, 0);
    bytes.extend([11, 1, 16, 0, b'v']);
    bytes.extend([1, 0, 0, 0]);
    bytes.extend(u32::try_from(DESCRIPTOR_SIZE).unwrap().to_le_bytes());
    bytes.extend(DESCRIPTOR_AT.to_le_bytes());
    change(&mut bytes[29..]);
    editor.edit_node(ino, |block| {
        inode.inline_xattrs_mut(block)[..bytes.len()].copy_from_slice(&bytes);
        let fields = fields_mut(block);
        fields.i_advise |= Advise::VERITY.bits();
        fields.i_size = (SEALED.len() as u64).into();
    });
    Some(())
}

pub const PLANTS: &[Plant] = &[
    (Code::InodeVerity, "attribute", |editor| seal(editor, |value| value[0] = 2)),
    (Code::InodeVerity, "descriptor", |editor| {
        seal(editor, |_| ())?;
        let at = editor.address(editor.ino("/sealed")?, DESCRIPTOR_BLOCK);
        editor.edit(at, |block| block[8] ^= 1);
        Some(())
    }),
    (Code::DataVerity, "root hash", |editor| {
        seal(editor, |_| ())?;
        let at = editor.address(editor.ino("/sealed")?, DESCRIPTOR_BLOCK);
        editor.edit(at, |block| block[16] ^= 1);
        Some(())
    }),
    (Code::DataVerity, "contents", |editor| {
        seal(editor, |_| ())?;
        let at = editor.address(editor.ino("/sealed")?, 0);
        editor.edit(at, |block| block[0] ^= 1);
        Some(())
    }),
];
