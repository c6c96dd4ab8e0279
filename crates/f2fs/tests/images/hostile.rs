//! Hostile images: fields of a small real image are changed, with corrected checksums, and everything is read. Each
//! read ends soon, with a result or an error.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blockdev::Device as _;
use blockdev::backends::MemoryDevice;
use f2fs::{F2fs, OpenOptions};
use f2fs_disk::{Block, BlockAddr, Nid};
use vfs::file_system::{DirEntry, DirSink, Entry, FileSystem, Handle, NodeId, Seek};

use crate::edit::{Image, seal_checkpoint, seal_inode, seal_superblock};
use crate::tool::Bench;

/// Mutations of a run; `SPINNEY_F2FS_MUTATIONS` sets another number.
const MUTATIONS: u64 = 3000;
/// Most names that are followed in an image: directories may hold each other.
const NAMES_MAX: usize = 400;
/// Bytes read from each end of a file.
const READ_BYTES: usize = 64 << 10;
/// Longest time to read a mutated image.
const TIME_MAX: Duration = Duration::from_secs(20);

/// Numbers that look random and are the same each time (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }
}

/// A mutable block, and how its checksum is corrected.
#[derive(Clone, Copy)]
enum Target {
    Superblock,
    Checkpoint(BlockAddr),
    Inode(BlockAddr, Nid),
    Plain(BlockAddr),
}

/// All blocks that reading a small tree reaches.
fn targets(image: &Image) -> Vec<Target> {
    let geometry = image.superblock.geometry();
    let mut targets = vec![Target::Superblock, Target::Checkpoint(image.checkpoint.at())];
    let mut plain = BTreeSet::new();
    plain.extend([image.checkpoint.data_summary(0), image.checkpoint.compact_summaries()]);
    for number in 3..60 {
        plain.insert(geometry.nat_block(Nid(number), image.checkpoint.nat_bitmap()).0);
    }
    // Only non-empty blocks of nodes and data.
    for index in 0..geometry.main_blocks {
        let at = geometry.main.plus(index);
        let found = image.block(at);
        let footer = f2fs_disk::node::Footer::of(found);
        if footer.is_inode() && footer.ino().0 >= 3 && image_has(image, footer.ino(), at) {
            targets.extend([Target::Inode(at, footer.ino()); 3]);
        } else if found.iter().any(|byte| *byte != 0) {
            plain.insert(at);
        }
    }
    targets.extend(plain.into_iter().map(Target::Plain));
    targets
}

fn image_has(image: &Image, ino: Nid, at: BlockAddr) -> bool {
    ino.0 < image.superblock.geometry().nid_count && image.node_at(ino) == at
}

/// Changes a few fields of a block: random bits, or values at which sums overflow.
fn mutate(random: &mut Random, bytes: &mut [u8], is_head_likely: bool) {
    for _ in 0..=random.below(3) {
        let end = if is_head_likely && random.below(2) == 0 { 420.min(bytes.len()) } else { bytes.len() };
        let width = [1, 2, 4, 8][random.below(4)];
        let at = random.below(end - width) / width * width;
        let field = &mut bytes[at..at + width];
        match random.below(5) {
            0 => field.fill(0),
            1 => field.fill(0xff),
            2 => field[0] ^= 1 << random.below(8),
            3 => field.copy_from_slice(&random.next().to_le_bytes()[..width]),
            _ => field[width - 1] ^= 0x80,
        }
    }
}

/// The image with one target changed.
fn mutated(image: &Image, base: &MemoryDevice, targets: &[Target], random: &mut Random) -> MemoryDevice {
    let device = base.duplicate();
    let write = |at: u64, bytes: &[u8]| device.write_at(at, &[bytes]).unwrap();
    match targets[random.below(targets.len())] {
        Target::Superblock => {
            let mut bytes = image.bytes[1024..1024 + 3072].to_vec();
            mutate(random, &mut bytes[4..], true);
            seal_superblock(&mut bytes);
            write(1024, &bytes);
            write(5120, &bytes);
        }
        Target::Checkpoint(at) => {
            let mut bytes = *image.block(at);
            mutate(random, &mut bytes, true);
            seal_checkpoint(&mut bytes);
            let total = u32::from_le_bytes(*bytes[136..].first_chunk().unwrap());
            write(at.byte(), &bytes);
            write(at.plus(total.clamp(1, 512) - 1).byte(), &bytes);
        }
        Target::Inode(at, ino) => {
            let mut bytes = *image.block(at);
            mutate(random, &mut bytes, true);
            seal_inode(&image.superblock, ino, &mut bytes);
            write(at.byte(), &bytes);
        }
        Target::Plain(at) => {
            let mut bytes = *image.block(at);
            mutate(random, &mut bytes, false);
            write(at.byte(), &bytes);
        }
    }
    device
}

/// Takes a limited number of names with their nodes.
#[derive(Default)]
struct Names {
    nodes: Vec<(Vec<u8>, NodeId)>,
    plain: usize,
}

impl DirSink for Names {
    fn add(&mut self, _entry: &DirEntry<'_>) -> bool {
        self.plain += 1;
        self.plain < NAMES_MAX
    }

    fn add_with_node(&mut self, entry: &DirEntry<'_>, node: Option<&Entry>) -> bool {
        if let Some(node) = node {
            self.nodes.push((entry.name.to_vec(), node.node));
        }
        self.nodes.len() < NAMES_MAX
    }
}

/// Reads all properties of every node; returns the number of successful reads.
fn read_all(fs: &F2fs) -> usize {
    let (mut answers, mut left, mut seen) = (0, vec![NodeId::ROOT], BTreeSet::new());
    let _ = (fs.info(), fs.status());
    while let Some(node) = left.pop() {
        if !seen.insert(node) || seen.len() > NAMES_MAX {
            continue;
        }
        let mut names = Names::default();
        let _ = (fs.read_dir(node, 0, false, &mut names), fs.read_dir(node, 0, true, &mut names));
        for (name, child) in names.nodes {
            answers += usize::from(fs.lookup(node, &name).is_ok());
            left.push(child);
        }
        let _ = (fs.lookup(node, b".."), fs.lookup(node, b"no such name"), fs.flags(node), fs.read_link(node));
        for name in fs.list_xattrs(node).unwrap_or_default() {
            answers += usize::from(fs.get_xattr(node, &name).is_ok());
        }
        let Ok(attr) = fs.attr(node) else { continue };
        let mut buf = vec![0; READ_BYTES];
        for offset in [0, attr.size / 2, attr.size.saturating_sub(100), u64::MAX - 1] {
            answers += usize::from(fs.read(node, Handle(0), offset, &mut buf).is_ok());
            let _ = (fs.seek(node, Seek::Data, offset), fs.seek(node, Seek::Hole, offset), fs.extents(node, offset));
        }
    }
    answers
}

/// A tree with every kind of contents.
fn sample(bench: &Bench) -> PathBuf {
    let source = bench.path("source");
    std::fs::create_dir_all(source.join("dir/sub")).unwrap();
    for number in 0..60 {
        std::fs::write(source.join(format!("dir/a name that takes several slots {number}")), "x").unwrap();
    }
    std::fs::write(source.join("inline"), "inline").unwrap();
    std::fs::write(source.join("file"), vec![7; 50_000]).unwrap();
    std::fs::write(source.join("large"), vec![9; 5 << 20]).unwrap();
    std::os::unix::fs::symlink("inline", source.join("link")).unwrap();
    let features = "extra_attr,inode_checksum,sb_checksum,inode_crtime,flexible_inline_xattr,compression";
    let image = bench.load(&source, 64, &["-O", features]);
    let mut edited = Image::read(&image);
    // `sload.f2fs` stores no attributes.
    let ino = crate::tool::open(&image).1.metadata("inline").unwrap().ino;
    edited.change_inode(Nid(u32::try_from(ino).unwrap()), |block| {
        let words = usize::from(u16::from_le_bytes([block[362], block[363]]));
        let at = 360 + (923 - words) * 4;
        block[3] |= 1;
        block[at..at + 4].copy_from_slice(&0xf2f5_2011_u32.to_le_bytes());
        block[at + 24..at + 36].copy_from_slice(&[1, 1, 3, 0, b'a', b'x', b'y', b'z', 2, 0, 4, 0]);
    });
    std::fs::write(&image, &edited.bytes).unwrap();
    image
}

#[test]
fn lies_end_in_answers_or_errors() {
    let Some(bench) = Bench::new() else { return };
    let image = Image::read(&sample(&bench));
    let base = MemoryDevice::from_bytes(&image.bytes);
    let all = read_all(&OpenOptions::new().open(Arc::new(base.duplicate())).unwrap());
    assert!(all > 250, "the whole tree is read where nothing was changed: {all} answers");
    let targets = targets(&image);
    let count = std::env::var("SPINNEY_F2FS_MUTATIONS").ok().and_then(|count| count.parse().ok());
    let mut random = Random(0x5eed_f2f5);
    let (mut opened, mut complete) = (0, 0);
    for number in 0..count.unwrap_or(MUTATIONS) {
        let state = random.0;
        let device = mutated(&image, &base, &targets, &mut random);
        let start = Instant::now();
        if let Ok(fs) = OpenOptions::new().open(Arc::new(device)) {
            opened += 1;
            complete += u64::from(read_all(&fs) >= all);
        }
        assert!(start.elapsed() < TIME_MAX, "mutation {number} (state {state:#x}) took {:?}", start.elapsed());
    }
    println!("{opened} images opened, {complete} of them were read as if nothing had been changed");
    assert!(opened > 0 && complete < opened, "mutations reach blocks that are read");
}

#[test]
fn a_directory_of_itself_and_a_node_in_two_places_are_no_loop() {
    let Some(bench) = Bench::new() else { return };
    let image = Image::read(&sample(&bench));
    let mut edited = image.clone();
    // Every number of a node below the root becomes the root's own.
    edited.change_inode(Nid(3), |block: &mut Block| {
        for slot in 0..5 {
            block[4052 + slot * 4..4056 + slot * 4].copy_from_slice(&3_u32.to_le_bytes());
        }
        block[16..24].copy_from_slice(&(1_u64 << 41).to_le_bytes());
        block[72..76].copy_from_slice(&63_u32.to_le_bytes());
    });
    let fs = OpenOptions::new().open(Arc::new(MemoryDevice::from_bytes(&edited.bytes))).unwrap();
    let start = Instant::now();
    read_all(&fs);
    let error = fs.lookup(NodeId::ROOT, b"no such name").unwrap_err().to_string();
    assert!(error.contains("node footer offset") || error.contains("no such file"), "{error}");
    assert!(start.elapsed() < TIME_MAX);
}

#[test]
fn what_is_cut_short_is_an_error() {
    let Some(bench) = Bench::new() else { return };
    let image = Image::read(&sample(&bench));
    for len in [0, 100, 1024, 4096, 4096 + 1024, 2 << 20, 4 << 20] {
        let device = MemoryDevice::from_bytes(&image.bytes[..len]);
        assert!(OpenOptions::new().open(Arc::new(device)).is_err(), "{len} bytes");
    }
    // With all its tables it is readable as far as it goes, and not writable.
    let device = Arc::new(MemoryDevice::from_bytes(&image.bytes[..20 << 20]));
    let fs = OpenOptions::new().open(device.clone()).unwrap();
    assert!(fs.missing_bytes() > 0);
    read_all(&fs);
    drop(fs);
    assert!(OpenOptions::new().writable(true).open(device).is_err());
}
