//! Lists the offsets of the fields of the format, as targets of mutations. `mutate` chooses among them.

use btrfs_disk::key::item_type as key;

/// First byte and bytes of a field.
pub(super) type Field = (usize, usize);

/// Of the header of a tree block; the checksum is made right afterwards.
pub(super) const HEADER: &[Field] = &[(32, 8), (48, 8), (56, 8), (64, 8), (80, 8), (88, 8), (96, 4), (100, 1)];

/// Of an item's head in a leaf, and of a pointer in a node up to its key.
pub(super) const ITEM_HEAD: &[Field] = &[(0, 8), (8, 1), (9, 8), (17, 4), (21, 4)];

/// Of a pointer in a node.
pub(super) const POINTER: &[Field] = &[(0, 8), (8, 1), (9, 8), (17, 8), (25, 8)];

/// Of the superblock.
pub(super) const SUPERBLOCK: &[Field] = &[
    (32, 8),
    (48, 8),
    (56, 8),
    (72, 8),
    (80, 8),
    (88, 8),
    (96, 8),
    (112, 8),
    (120, 8),
    (128, 8),
    (136, 8),
    (144, 4),
    (148, 4),
    (152, 4),
    (156, 4),
    (160, 4),
    (164, 8),
    (172, 8),
    (180, 8),
    (188, 8),
    (196, 2),
    (198, 1),
    (199, 1),
    (200, 1),
    (201, 8),
    (209, 8),
    (217, 8),
    (225, 4),
    (555, 8),
    (563, 8),
    (811, 8),
    (820, 8),
    (828, 8),
    (844, 8),
    (852, 8),
    (872, 2),
    (876, 8),
    (884, 8),
];

const INODE: &[Field] = &[
    (0, 8),
    (8, 8),
    (16, 8),
    (24, 8),
    (40, 4),
    (44, 4),
    (48, 4),
    (52, 4),
    (56, 8),
    (64, 8),
    (72, 8),
    (112, 8),
    (120, 4),
];
const ROOT: &[Field] = &[
    (16, 8),
    (160, 8),
    (168, 8),
    (176, 8),
    (192, 8),
    (200, 8),
    (208, 8),
    (216, 4),
    (220, 8),
    (228, 1),
    (229, 8),
    (237, 1),
    (238, 1),
    (239, 8),
    (247, 8),
];
const EXTENT: &[Field] = &[(0, 8), (8, 8), (16, 8), (24, 1), (25, 8), (33, 8), (41, 8), (49, 4)];
const DIRECTORY: &[Field] = &[(0, 8), (8, 1), (9, 8), (17, 8), (25, 2), (27, 2), (29, 1), (30, 1)];
const FILE_EXTENT: &[Field] = &[(0, 8), (8, 8), (16, 1), (17, 1), (20, 1), (21, 8), (29, 8), (37, 8), (45, 8)];
const CHUNK: &[Field] =
    &[(0, 8), (8, 8), (16, 8), (24, 8), (40, 4), (44, 2), (46, 2), (48, 8), (56, 8), (80, 8), (88, 8)];
const THREE: &[Field] = &[(0, 8), (8, 8), (16, 8)];
const DEVICE_EXTENT: &[Field] = &[(0, 8), (8, 8), (16, 8), (24, 8)];
const DATA_REF: &[Field] = &[(0, 8), (8, 8), (16, 8), (24, 4)];
const REFERENCE: &[Field] = &[(0, 8), (8, 2), (10, 1)];
const ROOT_REFERENCE: &[Field] = &[(0, 8), (8, 8), (16, 2), (18, 1)];
const COUNT: &[Field] = &[(0, 4), (4, 4)];
const NUMBER: &[Field] = &[(0, 8)];

/// Of the data of an item; none where it is a row of bytes.
pub(super) fn of_item(item_type: u8) -> &'static [Field] {
    match item_type {
        key::INODE_ITEM => INODE,
        key::ROOT_ITEM => ROOT,
        key::EXTENT_ITEM | key::METADATA_ITEM => EXTENT,
        key::DIR_ITEM | key::DIR_INDEX | key::XATTR_ITEM => DIRECTORY,
        key::EXTENT_DATA => FILE_EXTENT,
        key::CHUNK_ITEM => CHUNK,
        key::DEV_ITEM | key::BLOCK_GROUP_ITEM => THREE,
        key::DEV_EXTENT => DEVICE_EXTENT,
        key::EXTENT_DATA_REF => DATA_REF,
        key::INODE_REF | key::INODE_EXTREF => REFERENCE,
        key::ROOT_REF | key::ROOT_BACKREF => ROOT_REFERENCE,
        key::FREE_SPACE_INFO | key::SHARED_DATA_REF => COUNT,
        key::DIR_LOG_ITEM | key::DIR_LOG_INDEX => NUMBER,
        key::UUID_KEY_SUBVOL | key::UUID_KEY_RECEIVED_SUBVOL => NUMBER,
        _ => &[],
    }
}
