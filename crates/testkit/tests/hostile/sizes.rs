//! A superblock with a right checksum and wrong fields was mistaken for one torn by a power cut, and the next write
//! replaced it by its mirror; a wrong feature bit put data among tree blocks.

use super::{Image, reason};
use btrfs_disk::TreeId;
use btrfs_disk::flags::Incompat;
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_OFFSET};

fn refusal(image: &Image) -> String {
    let before = image.bytes();
    let opened = image.open().and_then(|volume| {
        volume.write("/new", [3; 100_000])?;
        volume.close()
    });
    let error = reason(&opened.unwrap_err());
    assert!(image.bytes() == before, "nothing is written: {error}");
    error
}

fn primary(change: impl Fn(&mut DiskSuperblock)) -> String {
    let image = Image::new(|volume| volume.write("/file", "contents").unwrap());
    image.edit().change_superblock_at(SUPERBLOCK_OFFSET, change).unwrap();
    refusal(&image)
}

#[test]
fn a_primary_superblock_that_lies_is_not_mended() {
    let error = primary(|fields| fields.total_bytes = 0.into());
    assert!(error.contains("total bytes"), "{error}");
    let error = primary(|fields| fields.stripesize = 3.into());
    assert!(error.contains("stripe size"), "{error}");
}

#[test]
fn groups_are_mixed_or_the_bit_is_a_lie() {
    let image = Image::new(|volume| volume.write("/file", "contents").unwrap());
    let mixed = Incompat::MIXED_GROUPS.bits();
    let change = |fields: &mut DiskSuperblock| {
        fields.incompat_flags = (fields.incompat_flags.get() | mixed).into();
    };
    image.edit().change_superblock(change).unwrap();
    let error = refusal(&image);
    assert!(error.contains("mixed_groups"), "{error}");
    assert_eq!(image.read_only().read("/file").unwrap(), b"contents");
}

#[test]
fn the_sizes_of_trees_may_be_anything() {
    for bytes in [0, u64::MAX, u64::MAX - 4095] {
        let image = Image::new(|volume| {
            for number in 0..500 {
                volume.write(format!("/file{number}"), [7; 3000]).unwrap();
            }
        });
        for tree in [TreeId::EXTENT, TreeId::CSUM, TreeId::FREE_SPACE] {
            image.change_root_item(tree, |item| item.bytes_used = bytes.into());
        }
        let volume = image.open().unwrap();
        for number in 0..500 {
            volume.remove_file(format!("/file{number}")).unwrap();
        }
        volume.write("/new", "contents").unwrap();
        volume.close().unwrap();
        assert_eq!(image.read_only().read("/new").unwrap(), b"contents");
    }
}
