//! Files protected by fs-verity, with the trees of `fsverity` of fsverity-utils.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use blockdev::backends::{FileDevice, FileOptions};
use f2fs::{MakeOptions, OpenOptions};
use f2fs_disk::Nid;
use f2fs_disk::flags::{Advise, Features, InlineFlags};
use f2fs_disk::inode;
use vfs::file_system::Errno;
use vfs::{Blame, File, Volume};

use crate::edit::Image;
use crate::tool::{open_bytes, run};

/// Changes the attribute with the position of the descriptor.
type Change<'a> = &'a dyn Fn(&mut [u8]);

/// An image with a protected file, its inode, and the positions of tree and descriptor in it.
struct Sealed {
    image: Image,
    ino: Nid,
    data: Vec<u8>,
    tree_at: u64,
    descriptor_at: u64,
}

/// `None` where the tool is missing.
fn sealed(dir: &Path, len: usize, words: &[&str]) -> Option<Sealed> {
    if Command::new("fsverity").arg("--version").output().is_err() {
        println!("SKIPPED: fsverity is missing (Debian: fsverity)");
        return None;
    }
    let data: Vec<u8> = (0..len).map(|at| u8::try_from((at / 4096 * 7 + at % 253) % 256).unwrap()).collect();
    let path = |name: &str| dir.join(name);
    fs::write(path("data"), &data).unwrap();
    let out = |option: &str, name: &str| format!("--{option}={}", path(name).display());
    let outputs = [out("out-merkle-tree", "tree"), out("out-descriptor", "descriptor")];
    run(Command::new("fsverity").arg("digest").args(outputs).args(words).arg(path("data")));
    let (tree, descriptor) = (fs::read(path("tree")).unwrap(), fs::read(path("descriptor")).unwrap());
    let tree_at = u64::try_from(len).unwrap().next_multiple_of(65_536);
    let descriptor_at = tree_at + u64::try_from(tree.len()).unwrap();
    fs::File::create(path("image")).unwrap().set_len(100 << 20).unwrap();
    let device = Arc::new(FileDevice::open(path("image"), &FileOptions::default()).unwrap());
    let features = Features::VERITY | Features::EXTRA_ATTR | Features::INODE_CHKSUM;
    f2fs::make(&*device, &MakeOptions { features, ..MakeOptions::default() }).unwrap();
    let volume = Volume::new(Arc::new(OpenOptions::new().writable(true).open(device).unwrap()));
    let file = File::create(&volume, "file").unwrap();
    for (at, bytes) in [(0, &data), (tree_at, &tree), (descriptor_at, &descriptor)] {
        file.write_at(bytes, at).unwrap();
    }
    let ino = Nid(u32::try_from(file.metadata().unwrap().ino).unwrap());
    drop(file);
    volume.close().unwrap();
    let mut image = Image::read(&path("image"));
    // As from the kernel: the size is that of the contents, and an attribute has the position of the descriptor.
    let mut bytes = 0xf2f5_2011_u32.to_le_bytes().to_vec();
    bytes.resize(24, 0);
    bytes.extend([11, 1, 16, 0, b'v', 1, 0, 0, 0]);
    bytes.extend(u32::try_from(descriptor.len()).unwrap().to_le_bytes());
    bytes.extend(descriptor_at.to_le_bytes());
    image.change_inode(ino, |block| {
        let fields = inode::fields_mut(block);
        fields.i_size = u64::try_from(len).unwrap().into();
        fields.i_advise |= Advise::VERITY.bits();
        fields.i_inline |= InlineFlags::XATTR.bits();
        block[360 + 873 * 4..][..bytes.len()].copy_from_slice(&bytes);
    });
    Some(Sealed { image, ino, data, tree_at, descriptor_at })
}

fn open(image: &Image) -> Volume {
    open_bytes(&image.bytes, OpenOptions::new()).unwrap().1
}

impl Sealed {
    /// Changes a byte of the file, or behind its end.
    fn damaged(&self, at: u64) -> Image {
        let mut image = self.image.clone();
        let (inode, contents) = self.inode();
        let address = inode.addresses(&contents)[usize::try_from(at / 4096).unwrap()];
        let block = f2fs_disk::BlockAddr(address.get());
        image.block_mut(block)[usize::try_from(at % 4096).unwrap()] ^= 0x20;
        image
    }

    fn inode(&self) -> (inode::Inode, f2fs_disk::Block) {
        let contents = *self.image.block(self.image.node_at(self.ino));
        let superblock = &self.image.superblock;
        let inode =
            inode::Inode::verify(&contents, self.ino, superblock.features(), superblock.inode_checksum_seed()).unwrap();
        (inode, contents)
    }
}

#[test]
fn contents_are_compared_with_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    for words in [&["--hash-alg=sha256"][..], &["--hash-alg=sha512"], &["--salt=00112233445566778899aabbccddeeff"]] {
        for len in [1, 4096, 10_000, 300 * 4096 + 5] {
            let Some(sealed) = sealed(dir.path(), len, words) else { return };
            let volume = open(&sealed.image);
            assert!(volume.read("file").unwrap() == sealed.data, "{len} {words:?}");
            let file = File::open(&volume, "file").unwrap();
            for offset in [0, len / 2, len.saturating_sub(3)] {
                let mut buf = vec![0; 5000];
                let count = file.read_at(&mut buf, u64::try_from(offset).unwrap()).unwrap();
                assert!(buf[..count] == sealed.data[offset..(offset + 5000).min(len)]);
            }
            // Bytes of the last block behind the end are not protected.
            let last = u64::try_from(len - 1).unwrap();
            for at in [0, last / 2, last] {
                let volume = open(&sealed.damaged(at));
                let error = volume.read("file").unwrap_err();
                assert_eq!((error.errno(), error.blame()), (Errno::EIO, Blame::Image));
                let expected = format!("block {} of inode {} does not match its fs-verity hash", at / 4096, sealed.ino);
                assert!(error.to_string().contains(&expected), "{error}");
                // Other blocks can be read.
                if len > 5000 && at > 4096 {
                    let mut first = [0; 4096];
                    File::open(&volume, "file").unwrap().read_at(&mut first, 0).unwrap();
                    assert!(first == sealed.data[..4096]);
                }
            }
        }
    }
}

#[test]
fn damage_of_the_tree_and_the_descriptor_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let Some(sealed) = sealed(dir.path(), 300 * 4096, &[]) else { return };
    for at in [sealed.tree_at, sealed.tree_at + 4096] {
        let error = open(&sealed.damaged(at)).read("file").unwrap_err();
        assert!(error.to_string().contains("does not match its fs-verity hash"), "{error}");
    }
    for (byte, what) in
        [(0, "version"), (1, "hash_algorithm"), (8, "data_size"), (16, "does not match its fs-verity hash")]
    {
        let error = open(&sealed.damaged(sealed.descriptor_at + byte)).read("file").unwrap_err();
        assert!(error.errno() == Errno::EIO && error.to_string().contains(what), "{what}: {error}");
    }
    let attribute = |change: Change<'_>| {
        let mut image = sealed.image.clone();
        image.change_inode(sealed.ino, |block| change(&mut block[360 + 873 * 4 + 24..][..21]));
        open(&image).read("file").unwrap_err()
    };
    let wrong: [(Change<'_>, &str); 5] = [
        (&|value| value[4] = b'w', "verity attribute"),
        (&|value| value[5] = 2, "verity attribute version"),
        (&|value| value[9..13].fill(0xff), "verity descriptor size"),
        (&|value| value[13..21].fill(0), "verity descriptor pos"),
        (&|value| value[13..21].fill(0xff), "verity descriptor pos"),
    ];
    for (change, what) in wrong {
        let error = attribute(change);
        assert!(error.errno() == Errno::EIO && error.to_string().contains(what), "{what}: {error}");
    }
    // A descriptor behind the largest file.
    let error = attribute(&|value| value[13..21].copy_from_slice(&(1_u64 << 60).to_le_bytes()));
    assert_eq!(error.errno(), Errno::EIO, "{error}");
}
