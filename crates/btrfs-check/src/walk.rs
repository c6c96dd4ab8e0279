//! Walks tree blocks, each once, on all mirrors: level by level from the top, within a level in the order of addresses.
//!
//! Since pointers lead downwards by one level, all pointers to a block are known when its level's turn comes: sorted by
//! address, they are adjacent, and each is compared with the block. Called by `run`.

use std::io;
use std::iter::Peekable;
use std::sync::Mutex;

use btrfs_disk::node::{BlockView, LEVELS_MAX, NodeView, header};
use btrfs_disk::verify::{self, Expect, may_own};
use btrfs_disk::{Corrupt, Generation, Key, Logical, TreeId};

use crate::code::Code;
use crate::collect::{Collector, Local, Seen};
use crate::context::Context;
use crate::finding::Place;
use crate::pointer::{Class, Pointer};
use crate::sort::{Iter, Sorter, lock};
use crate::threads::in_threads;

/// Blocks that a thread takes at a time.
const BATCH_BLOCKS: usize = 64;

/// A walk from several roots.
pub(crate) struct Walk<'a> {
    cx: &'a Context<'a>,
    collector: &'a Collector,
    class: Class,
    levels: Vec<Sorter<9>>,
}

type Source<'s> = Mutex<Peekable<Iter<'s, 9>>>;

impl<'a> Walk<'a> {
    pub(crate) fn new(cx: &'a Context<'a>, collector: &'a Collector, class: Class) -> Self {
        let levels = (0..LEVELS_MAX).map(|_| cx.sorter()).collect();
        Self { cx, collector, class, levels }
    }

    /// Adds a root, or another pointer to read.
    pub(crate) fn push(&self, pointer: &Pointer) {
        if let Some(level) = self.levels.get(usize::from(pointer.level)) {
            level.add(pointer.encode());
        }
    }

    /// Reads all blocks below the roots.
    ///
    /// # Errors
    /// The host's, where records do not fit into memory.
    pub(crate) fn run(mut self) -> io::Result<()> {
        for level in (0..self.levels.len()).rev() {
            let Some(sorter) = self.levels.get_mut(level) else { break };
            let sorted = std::mem::replace(sorter, self.cx.sorter()).finish()?;
            if sorted.is_empty() {
                continue;
            }
            let source = Mutex::new(sorted.iter().peekable());
            in_threads(self.cx.threads, || self.work(&source));
        }
        Ok(())
    }

    fn work(&self, source: &Source<'_>) {
        let mut local = Local::default();
        let mut blocks = (vec![0; self.cx.media.node_bytes()], vec![0; self.cx.media.node_bytes()]);
        loop {
            let batch = next_batch(source);
            if batch.is_empty() {
                return;
            }
            for group in batch.chunk_by(|a, b| a.at == b.at) {
                self.visit(group, &mut blocks, &mut local);
            }
            if let Some(below) =
                batch.first().and_then(|first| self.levels.get(usize::from(first.level).checked_sub(1)?))
            {
                below.take(&mut local.pointers);
            }
            self.collector.take(&mut local);
        }
    }

    fn visit(&self, group: &[Pointer], (block, other): &mut (Vec<u8>, Vec<u8>), local: &mut Local) {
        let Some(first) = group.first() else { return };
        if !self.read(first, block, other) {
            self.lose(first);
            return;
        }
        let Some(header) = header(block) else { return };
        for pointer in group {
            self.compare(pointer, header.generation.get(), TreeId(header.owner.get()), block);
        }
        let next = group.iter().filter_map(|pointer| pointer.next).min();
        let seen = Seen { at: first.at, class: self.class, header, block, pointers: group };
        let set = self.collector.block(self.cx, local, &seen);
        if header.level > 0 {
            self.descend(&seen, next, set, local);
        }
    }

    fn descend(&self, seen: &Seen<'_>, next: Option<Key>, set: u32, local: &mut Local) {
        let Some(first) = seen.pointers.first() else { return };
        let node = NodeView::new(seen.block);
        let is_full = self.collector.is_full(seen.at);
        let drop = self.collector.dropped(first.tree);
        for (slot, ptr) in node.ptrs().iter().enumerate() {
            let behind = node.ptrs().get(slot.saturating_add(1)).map(|ptr| ptr.key.get());
            // Pointers passed by a deletion are dead: to the left of its key at its level, and children above that
            // level that end before the key.
            let is_gone = drop.is_some_and(|(level, key)| match first.level.cmp(&level) {
                std::cmp::Ordering::Less => false,
                std::cmp::Ordering::Equal => ptr.key.get() < key,
                std::cmp::Ordering::Greater => behind.is_some_and(|behind| behind <= key),
            });
            if is_gone {
                continue;
            }
            let pointer = Pointer {
                at: ptr.blockptr.get(),
                level: first.level.saturating_sub(1),
                tree: first.tree,
                generation: ptr.generation.get(),
                parent: seen.at,
                first: Some(ptr.key.get()),
                next: behind.or(next),
                set,
            };
            if self.class != Class::Log {
                local.block_ref(pointer.at, seen, is_full);
            }
            local.pointers.push(pointer.encode());
        }
    }

    /// Reads and verifies all copies, and computes the block from parity if none is good; true when `block` has one
    /// with a right checksum.
    fn read(&self, pointer: &Pointer, block: &mut [u8], other: &mut [u8]) -> bool {
        let (media, at) = (&self.cx.media, pointer.at);
        let copies = media.copies(at);
        if copies == 0 || media.chunk(at, media.node_len()).is_none() {
            self.add(Code::BlockUnmapped, pointer, None, "an address inside a chunk", at);
            return false;
        }
        let expect = Expect {
            level: Some(pointer.level),
            // The fields of pointers are compared for all pointers alike.
            ..Expect::at(&media.format, Logical(at), media.generation_max)
        };
        let mut problems: Vec<(u32, Problem)> = Vec::new();
        let mut good: Option<u32> = None;
        for mirror in media.ways(at, media.node_bytes()) {
            let is_computed = mirror >= copies;
            if is_computed && good.is_some() {
                break;
            }
            let into = if good.is_none() { &mut *block } else { &mut *other };
            let read = media.read_copy(at, into, mirror);
            self.cx.watch.add_bytes(media.node_len());
            if let Err(error) = read {
                // The faults are those of the bytes that are there.
                if is_computed {
                    continue;
                }
                problems.push((mirror, Problem::Read(error)));
                continue;
            }
            match good {
                Some(_) if other == block => {}
                Some(_) => match verify::block(other, &expect) {
                    Ok(()) => self.add(Code::BlockMirrorsDiffer, pointer, Some(mirror), "equal copies", "others"),
                    Err(error) => problems.push((mirror, Problem::Corrupt(error))),
                },
                None => match verify::block(block, &expect) {
                    Ok(()) => good = Some(mirror),
                    Err(_) if is_computed => {}
                    Err(error) => problems.push((mirror, Problem::Corrupt(error))),
                },
            }
        }
        if problems.is_empty() {
            return true;
        }
        self.report(pointer, &problems, good);
        good.is_some() || self.read_damaged(pointer, block)
    }

    /// Reads a copy with a right checksum, regardless of other defects.
    fn read_damaged(&self, pointer: &Pointer, block: &mut [u8]) -> bool {
        let media = &self.cx.media;
        let mut mirrors = media.ways(pointer.at, block.len()).into_iter();
        mirrors.any(|mirror| {
            media.read_copy(pointer.at, block, mirror).is_ok()
                && media.has_right_checksum(block)
                && header(block).is_some_and(|header| {
                    header.bytenr.get() == pointer.at
                        && header.level == pointer.level
                        && media.format.has_fsid(header.fsid)
                })
        })
    }

    fn report(&self, pointer: &Pointer, problems: &[(u32, Problem)], good: Option<u32>) {
        let findings = &self.cx.findings;
        self.cx.media.distrust(pointer.at);
        if let Some(good) = good {
            for (mirror, problem) in problems {
                let place = self.place(pointer, Some(*mirror));
                let expected = match good >= self.cx.media.copies(pointer.at) {
                    true => "what its row's parity gives".to_owned(),
                    false => format!("what copy {good} has"),
                };
                findings.add_what(Code::BlockMirror, problem.what(), place, expected, problem.found());
            }
            return;
        }
        let Some((mirror, problem)) = problems.iter().find(|(_, problem)| matches!(problem, Problem::Corrupt(_)))
        else {
            let found = problems.first().map(|(_, problem)| problem.found()).unwrap_or_default();
            self.add(Code::BlockRead, pointer, Some(0), "a readable copy", found);
            return;
        };
        if let Problem::Corrupt(error) = problem {
            let place = self.place(pointer, Some(*mirror));
            let code = if self.class == Class::Log { Code::LogBlock } else { code_of(error) };
            findings.add_corrupt(code, place, error);
        }
    }

    /// Compares a pointer with the block.
    fn compare(&self, pointer: &Pointer, generation: u64, owner: TreeId, block: &[u8]) {
        if generation != pointer.generation {
            self.add(Code::BlockGeneration, pointer, None, Generation(pointer.generation), generation);
        }
        if !may_own(owner, TreeId(pointer.tree)) {
            self.add(Code::BlockOwner, pointer, None, pointer.tree, owner);
        }
        let (first, last) = BlockView::new(block).and_then(|view| view.ends()).unzip();
        if let (Some(expected), Some(found)) = (pointer.first, first)
            && expected != found
        {
            self.add(Code::BlockFirstKey, pointer, None, expected, found);
        }
        if let (Some(next), Some(found)) = (pointer.next, last)
            && found >= next
        {
            self.add(Code::BlockLastKey, pointer, None, format!("a key below {next}"), found);
        }
    }

    fn add(&self, code: Code, pointer: &Pointer, mirror: Option<u32>, expected: impl ToString, found: impl ToString) {
        let code = if self.class == Class::Log { Code::LogBlock } else { code };
        self.cx.media.distrust(pointer.at);
        self.cx.findings.add(code, self.place(pointer, mirror), expected, found);
    }

    fn place(&self, pointer: &Pointer, mirror: Option<u32>) -> Place {
        let device = mirror.and_then(|mirror| self.cx.media.place(pointer.at, mirror));
        Place { tree: Some(pointer.tree), logical: Some(pointer.at), device, ..Place::default() }
    }

    fn lose(&self, pointer: &Pointer) {
        match self.class {
            Class::System if pointer.tree == TreeId::EXTENT.0 => self.cx.lost.extents(),
            Class::System => self.cx.lost.system(),
            Class::Files => self.cx.lost.files(),
            Class::Log => {}
        }
    }
}

enum Problem {
    Read(String),
    Corrupt(Corrupt),
}

impl Problem {
    fn what(&self) -> &'static str {
        match self {
            Self::Read(_) => "reading",
            Self::Corrupt(error) => error.what,
        }
    }

    fn found(&self) -> String {
        match self {
            Self::Read(error) => error.clone(),
            Self::Corrupt(error) => format!("{} (expected {})", error.found, error.expected),
        }
    }
}

/// The code for an error of the verifier.
pub(crate) fn code_of(error: &Corrupt) -> Code {
    match error.what {
        "tree block checksum" => Code::BlockChecksum,
        "address in the tree block" => Code::BlockAddress,
        "file system UUID in the tree block" => Code::BlockUuid,
        verify::BLOCK_GENERATION => Code::BlockGeneration,
        "tree block level" => Code::BlockLevel,
        "tree block owner" => Code::BlockOwner,
        "first key of the tree block" => Code::BlockFirstKey,
        "key of a leaf" | "key of a node" => Code::BlockKeys,
        _ => Code::BlockItem,
    }
}

/// Pointers to the next blocks, all pointers to each block together.
fn next_batch(source: &Source<'_>) -> Vec<Pointer> {
    let mut source = lock(source);
    let mut batch: Vec<Pointer> = Vec::new();
    let mut blocks = 0;
    while let Some(record) = source.peek() {
        let pointer = Pointer::decode(record);
        if batch.last().is_none_or(|last| last.at != pointer.at) {
            if blocks == BATCH_BLOCKS {
                break;
            }
            blocks += 1;
        }
        batch.push(pointer);
        source.next();
    }
    batch
}
