//! Walks every tree block of images and verifies each, without the store.
//!
//! `verify_image [--dump] IMAGE...` follows the superblock's system chunks to the chunk tree, the
//! root tree, every tree it names and the log trees. Both copies of a DUP block are verified. It
//! prints one line an image, one line for each corruption, and with `--dump` every item. The exit
//! code is 1 if anything was wrong. Images have one device; striped profiles are refused.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;

use btrfs_disk::convert::usize_from;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::{ChunkItem, RootItem, ShowItem};
use btrfs_disk::key::item_type;
use btrfs_disk::node::{LeafView, NodeView, header};
use btrfs_disk::superblock::{SUPERBLOCK_SIZE, Superblock, UncheckedSuperblock, mirror_offsets};
use btrfs_disk::verify::{self, Expect, Format};
use btrfs_disk::{Generation, Key, Logical, TreeId};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let mut is_dump = false;
    let mut is_clean = true;
    for argument in std::env::args().skip(1) {
        if argument == "--dump" {
            is_dump = true;
            continue;
        }
        match verify_image(&argument, is_dump) {
            Ok(0) => {}
            Ok(_) => is_clean = false,
            Err(error) => {
                println!("{argument}: {error}");
                is_clean = false;
            }
        }
    }
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Number of corruptions found.
fn verify_image(path: &str, is_dump: bool) -> Result<usize> {
    let file = File::open(path)?;
    let superblock = read_superblock(&file, 65536)?;
    if is_dump {
        println!("{superblock}");
        superblock.fields().super_roots.iter().for_each(|backup| println!("{backup}"));
    }
    let format = Format::of(superblock.fields()).ok_or("unknown checksum type")?;
    let mut walk = Walk {
        file: &file,
        format,
        generation_max: Generation(superblock.generation().0 + 1),
        chunks: BTreeMap::new(),
        seen: HashSet::new(),
        roots: Vec::new(),
        is_dump,
        blocks: 0,
        items: 0,
        corruptions: 0,
    };
    walk.check_mirrors()?;
    for entry in superblock.system_chunks() {
        let (key, item) = entry?;
        walk.add_chunk(key, &item)?;
    }
    walk.all_trees(&superblock)?;
    println!("{path}: {} blocks, {} items, {} corruptions", walk.blocks, walk.items, walk.corruptions);
    Ok(walk.corruptions)
}

fn read_superblock(file: &File, offset: u64) -> Result<Superblock> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(UncheckedSuperblock::new(&bytes)?.verify(offset)?)
}

/// A pointer to a block, and the properties that the block must have.
#[derive(Clone, Copy)]
struct Child {
    at: Logical,
    generation: Option<Generation>,
    level: u8,
    key: Option<Key>,
    /// An interrupted deletion has freed everything before this key.
    from: Key,
}

struct Walk<'a> {
    file: &'a File,
    format: Format,
    generation_max: Generation,
    /// Start to length and device offsets of the copies.
    chunks: BTreeMap<u64, (u64, Vec<u64>)>,
    /// Blocks already visited: snapshots share them, and corrupt trees may loop.
    seen: HashSet<Logical>,
    roots: Vec<(Key, RootItem)>,
    is_dump: bool,
    blocks: usize,
    items: usize,
    corruptions: usize,
}

impl Walk<'_> {
    fn check_mirrors(&mut self) -> Result<()> {
        for offset in mirror_offsets(self.file.metadata()?.len()) {
            if let Err(error) = read_superblock(self.file, offset) {
                self.complain(error.as_ref());
            }
        }
        Ok(())
    }

    fn complain(&mut self, error: &dyn Error) {
        println!("  {error}");
        self.corruptions += 1;
    }

    fn add_chunk(&mut self, key: Key, item: &ChunkItem<'_>) -> Result<()> {
        let profile = item.chunk.flags() & BlockGroupFlags::PROFILE_MASK;
        if !(profile.is_empty() || profile == BlockGroupFlags::DUP) {
            return Err(format!("chunk at {} has the profile {profile}", key.offset).into());
        }
        let copies = item.stripes.iter().map(|stripe| stripe.offset.get()).collect();
        self.chunks.insert(key.offset, (item.chunk.length.get(), copies));
        Ok(())
    }

    /// Device offsets of the copies of a block.
    fn locate(&self, at: Logical) -> Result<Vec<u64>> {
        let end = at.0.checked_add(u64::from(self.format.nodesize)).ok_or("address wraps")?;
        let (start, (len, copies)) =
            self.chunks.range(..=at.0).next_back().ok_or_else(|| format!("no chunk has {at}"))?;
        if end > start + len {
            return Err(format!("no chunk has {at}").into());
        }
        Ok(copies.iter().map(|copy| copy + (at.0 - start)).collect())
    }

    /// Verifies the chunk tree, the root tree and every tree that they and the log name.
    fn all_trees(&mut self, superblock: &Superblock) -> Result<()> {
        let roots = [(TreeId::CHUNK, superblock.chunk_root()), (TreeId::ROOT, superblock.root())];
        for (owner, (at, generation, level)) in roots {
            let child = Child { at, generation: Some(generation), level, key: None, from: Key::MIN };
            self.tree(Some(owner), child)?;
        }
        let log_root = superblock.fields().log_root.get();
        if log_root != 0 {
            let level = superblock.fields().log_root_level;
            let child = Child { at: Logical(log_root), generation: None, level, key: None, from: Key::MIN };
            self.tree(Some(TreeId::TREE_LOG), child)?;
        }
        while let Some((key, root)) = self.roots.pop() {
            let (at, generation) = root.root_block();
            let child = Child {
                at,
                generation: Some(generation),
                level: root.level,
                key: None,
                from: root.drop_progress.get(),
            };
            self.tree(Some(TreeId(key.objectid)), child)?;
        }
        Ok(())
    }

    /// Verifies a block and everything under it.
    fn tree(&mut self, owner: Option<TreeId>, root: Child) -> Result<()> {
        let mut todo = vec![root];
        while let Some(child) = todo.pop() {
            if !self.seen.insert(child.at) {
                continue;
            }
            match self.read(owner, child) {
                Ok(Some(bytes)) => self.visit(&bytes, child.from, &mut todo)?,
                Ok(None) => {}
                Err(error) => self.complain(error.as_ref()),
            }
        }
        Ok(())
    }

    /// The bytes of the last good copy.
    fn read(&mut self, owner: Option<TreeId>, child: Child) -> Result<Option<Vec<u8>>> {
        let format = self.format;
        let expect = Expect {
            level: Some(child.level),
            owner,
            generation: child.generation,
            first_key: child.key,
            ..Expect::at(&format, child.at, self.generation_max)
        };
        let mut good = None;
        for copy in self.locate(child.at)? {
            let mut bytes = vec![0; usize_from(format.nodesize)];
            self.file.read_exact_at(&mut bytes, copy)?;
            match verify::block(&bytes, &expect) {
                Ok(()) => good = Some(bytes),
                Err(error) => self.complain(&error),
            }
        }
        Ok(good)
    }

    fn visit(&mut self, bytes: &[u8], from: Key, todo: &mut Vec<Child>) -> Result<()> {
        let header = header(bytes).ok_or("short block")?;
        self.blocks += 1;
        if self.is_dump {
            println!("{header}");
        }
        let Some(level) = header.level.checked_sub(1) else {
            return self.visit_leaf(LeafView::new(bytes));
        };
        let view = NodeView::new(bytes);
        self.items += view.nritems();
        for slot in (0..view.nritems()).rev().take_while(|slot| view.key(slot + 1) > from) {
            let (at, generation) = view.ptr(slot);
            let key = Some(view.key(slot));
            todo.push(Child { at, generation: Some(generation), level, key, from });
        }
        Ok(())
    }

    fn visit_leaf(&mut self, leaf: LeafView<'_>) -> Result<()> {
        self.items += leaf.nritems();
        for (key, data) in leaf.iter() {
            if self.is_dump {
                println!("  {key} {}", ShowItem(key, data));
            }
            match key.item_type {
                item_type::CHUNK_ITEM => self.add_chunk(key, &ChunkItem::parse(data)?)?,
                item_type::ROOT_ITEM => self.roots.push((key, RootItem::read(data)?)),
                _ => {}
            }
        }
        Ok(())
    }
}
