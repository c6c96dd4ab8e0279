//! Draws operations that are mostly sensible for the present tree, and sometimes are not. Called by `run` and
//! `threads`.

use crate::model::{Directory, Kind, Model, NodeId, Operation, PAGE_BYTES, Role};
use crate::number::to_usize;
use crash_explorer::Random;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use vfs::SnapshotMode;
use vfs::file_system::{AllocateFlags, NodeKind, RenameFlags, Time as Timestamp, XattrMode};

/// Above this many inodes, removals become more likely than additions.
const NODES_TARGET: usize = 400;
const SUBVOLUMES_MAX: usize = 12;
/// Largest single write.
const WRITE_LEN_MAX: u64 = 256 << 10;
/// Files grow to about this by writes at random places.
const FILE_LEN_USUAL: u64 = 1 << 20;
/// Sparse files reach up to here, rarely.
const FILE_LEN_MAX: u64 = 1 << 40;

/// A source of operations below one directory.
#[derive(Debug)]
pub struct Generator {
    random: Random,
    /// Every path starts here; the directory exists.
    base: PathBuf,
}

/// The wanted kind of node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Any,
    File,
    Directory,
    Subvolume,
    /// A subvolume that may go: not the one that everything is in.
    SpareSubvolume,
    /// Any except a subvolume's root, its stub, or a directory with one.
    Movable,
}

impl Generator {
    /// A sequence of its own for each seed.
    #[must_use]
    pub fn new(seed: u64, base: impl Into<PathBuf>) -> Self {
        Self { random: Random::new(seed), base: base.into() }
    }

    /// The next operation of those that `can` be done.
    pub fn next_of(&mut self, model: &Model, can: impl Fn(&Operation) -> bool) -> Operation {
        loop {
            let operation = self.next(model);
            if can(&operation) {
                return operation;
            }
        }
    }

    /// The next operation.
    pub fn next(&mut self, model: &Model) -> Operation {
        let crowded = model.node_count() > NODES_TARGET;
        match self.random.below(100) {
            0..10 => Operation::Create { path: self.new_path(model) },
            10..15 => Operation::CreateDir { path: self.new_path(model) },
            15..17 => self.symlink(model),
            17..18 => self.node(model),
            18..21 => Operation::Link { original: self.pick(model, Wanted::Any), path: self.new_path(model) },
            21..27 => self.rename(model),
            27..33 => self.removal(model, crowded),
            33..58 => self.write(model),
            58..63 => self.set_len(model),
            63..69 => self.allocate(model),
            69..74 => self.reflink(model),
            74..80 => self.attributes(model),
            80..82 => self.defragment(model),
            82..88 => self.xattr(model),
            88..92 => self.subvolume(model),
            _ if crowded => self.removal(model, true),
            _ => self.write(model),
        }
    }

    /// A path that leads to nothing, mostly: an existing directory and a name.
    fn new_path(&mut self, model: &Model) -> PathBuf {
        if self.random.one_in(25) {
            return self.pick(model, Wanted::Any);
        }
        let parent =
            if self.random.one_in(60) { self.pick(model, Wanted::Any) } else { self.pick(model, Wanted::Directory) };
        parent.join(self.name())
    }

    /// Few names, so that they meet often; some long, some not UTF-8.
    fn name(&mut self) -> OsString {
        let number = self.random.below(40);
        let bytes = match self.random.below(40) {
            0 => vec![b'n'; to_usize(self.random.between(200, 256))],
            1 => vec![0xff, 0xfe, b'0'],
            2 => format!("with blank\n{number}").into_bytes(),
            _ => format!("{}{number}", if self.random.one_in(2) { "a" } else { "file-" }).into_bytes(),
        };
        OsString::from_vec(bytes)
    }

    /// A random walk down the tree to a node of the wanted kind; a wrong path when there is none.
    fn pick(&mut self, model: &Model, wanted: Wanted) -> PathBuf {
        for _ in 0..20 {
            let (path, id) = self.descend(model);
            if fits(model, id, wanted, path == self.base) {
                return path;
            }
        }
        if wanted == Wanted::Directory { self.base.clone() } else { self.base.join("nothing") }
    }

    fn descend(&mut self, model: &Model) -> (PathBuf, NodeId) {
        let mut path = self.base.clone();
        let mut id = id_of(model, &path);
        while let Some(directory) = model.node(id).and_then(|node| node.directory()) {
            if directory.entries.is_empty() || self.random.one_in(5) {
                break;
            }
            let Some((name, child)) = nth(directory, self.random.index(directory.entries.len())) else {
                break;
            };
            path.push(OsStr::from_bytes(name));
            id = child;
        }
        (path, id)
    }

    fn symlink(&mut self, model: &Model) -> Operation {
        let len = if self.random.one_in(10) { 3000 } else { self.random.between(1, 60) };
        let target = "t".repeat(to_usize(len)).into();
        Operation::Symlink { target, path: self.new_path(model) }
    }

    fn node(&mut self, model: &Model) -> Operation {
        const KINDS: &[NodeKind] = &[NodeKind::Fifo, NodeKind::Socket, NodeKind::CharDevice, NodeKind::BlockDevice];
        let kind = self.random.pick(KINDS).copied().unwrap_or(NodeKind::Fifo);
        let device = self.random.pick(&[0x103, 0x801, 0xffff]).copied();
        let is_device = matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice);
        let rdev = device.filter(|_| is_device).unwrap_or(0);
        Operation::Node { path: self.new_path(model), kind, rdev }
    }

    fn rename(&mut self, model: &Model) -> Operation {
        let from = self.pick(model, Wanted::Movable);
        let (to, flags) = match self.random.below(12) {
            0 => (self.pick(model, Wanted::Movable), RenameFlags::EXCHANGE),
            1 => (self.new_path(model), RenameFlags::NO_REPLACE),
            2 => (self.new_path(model), RenameFlags::NO_REPLACE.union(RenameFlags::WHITEOUT)),
            3 => (self.pick(model, Wanted::Movable), RenameFlags::WHITEOUT),
            4..6 => (self.pick(model, Wanted::Movable), RenameFlags::empty()),
            _ => (self.new_path(model), RenameFlags::empty()),
        };
        let is_stub = id_if(model, &to).is_some_and(|id| !fits(model, id, Wanted::Movable, to == self.base));
        if is_stub {
            return Operation::Rename { from, to: self.base.join("renamed"), flags };
        }
        Operation::Rename { from, to, flags }
    }

    fn removal(&mut self, model: &Model, crowded: bool) -> Operation {
        let path = self.pick(model, Wanted::Movable);
        match self.random.below(if crowded { 8 } else { 40 }) {
            0 => Operation::RemoveAll { path },
            1 | 2 => Operation::RemoveDir { path },
            _ => Operation::Remove { path },
        }
    }

    fn file(&mut self, model: &Model) -> (PathBuf, u64) {
        let is_odd = self.random.one_in(50);
        let path = self.pick(model, if is_odd { Wanted::Directory } else { Wanted::File });
        let len = model.lookup(&path).and_then(|node| node.content()).map_or(0, |content| content.len());
        (path, len)
    }

    fn write(&mut self, model: &Model) -> Operation {
        let (path, file_len) = self.file(model);
        let len = self.random.skewed(WRITE_LEN_MAX).max(1);
        let usual = self.random.below(FILE_LEN_USUAL);
        let offset = match self.random.below(10) {
            0 | 1 => 0,
            2..5 => file_len,
            5..8 => self.random.below(file_len.max(1)).min(usual),
            8 => usual,
            _ if self.random.one_in(10) => self.random.below(FILE_LEN_MAX),
            _ => usual / PAGE_BYTES * PAGE_BYTES,
        };
        let offset = offset.min(FILE_LEN_MAX);
        Operation::Write { path, offset, len, seed: self.random.number() }
    }

    fn set_len(&mut self, model: &Model) -> Operation {
        let (path, file_len) = self.file(model);
        let len = match self.random.below(6) {
            0 => 0,
            1..4 => self.random.below(file_len.max(1)),
            4 => file_len.saturating_add(self.random.below(100_000)),
            _ => self.random.skewed(FILE_LEN_USUAL),
        };
        Operation::SetLen { path, len: len.min(FILE_LEN_MAX) }
    }

    fn allocate(&mut self, model: &Model) -> Operation {
        const PUNCH_HOLE: AllocateFlags = AllocateFlags::PUNCH_HOLE.union(AllocateFlags::KEEP_SIZE);
        const ZERO_KEEP_SIZE: AllocateFlags = AllocateFlags::ZERO_RANGE.union(AllocateFlags::KEEP_SIZE);
        const MODES: &[AllocateFlags] = &[
            AllocateFlags::empty(),
            AllocateFlags::KEEP_SIZE,
            PUNCH_HOLE,
            PUNCH_HOLE,
            AllocateFlags::ZERO_RANGE,
            ZERO_KEEP_SIZE,
        ];
        let (path, file_len) = self.file(model);
        let mode = self.random.pick(MODES).copied().unwrap_or(PUNCH_HOLE);
        let offset = self.random.below(file_len.clamp(1, FILE_LEN_USUAL));
        let len = self.random.skewed(WRITE_LEN_MAX).max(1);
        Operation::Allocate { path, mode, offset, len }
    }

    fn reflink(&mut self, model: &Model) -> Operation {
        let source = self.pick(model, Wanted::File);
        let path = self.pick(model, Wanted::File);
        let len_of =
            |path: &Path| model.lookup(path).and_then(|node| node.content()).map_or(0, |content| content.len());
        let (source_len, target_len) = (len_of(&source), len_of(&path));
        let pages = source_len.div_ceil(PAGE_BYTES);
        let source_offset = self.random.below(pages.max(1)).saturating_mul(PAGE_BYTES);
        let rest = source_len.saturating_sub(source_offset).min(FILE_LEN_USUAL);
        let usual_target = target_len.min(FILE_LEN_USUAL);
        let offset = if rest.is_multiple_of(PAGE_BYTES) || self.random.one_in(2) {
            self.random.below(usual_target.div_ceil(PAGE_BYTES).max(1)).saturating_mul(PAGE_BYTES)
        } else {
            usual_target.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES)
        };
        let whole = self.random.between(1, (rest / PAGE_BYTES).max(1)).saturating_mul(PAGE_BYTES);
        let len = if self.random.one_in(2) { rest } else { whole.min(rest) };
        if len == 0 {
            return self.write(model);
        }
        Operation::Reflink { source, source_offset, path, offset, len }
    }

    fn defragment(&mut self, model: &Model) -> Operation {
        const COMPRESSIONS: &[Option<&str>] = &[None, None, Some("zlib:1"), Some("lzo"), Some("zstd:1")];
        let (path, _) = self.file(model);
        Operation::Defragment { path, compression: self.random.pick(COMPRESSIONS).copied().flatten() }
    }

    fn attributes(&mut self, model: &Model) -> Operation {
        let path = self.pick_no_symlink(model);
        let small = |random: &mut Random| u32::try_from(random.below(70_000)).unwrap_or(0);
        match self.random.below(3) {
            0 => Operation::SetMode { path, mode: small(&mut self.random) & 0o777 },
            1 => Operation::SetOwner { path, uid: small(&mut self.random), gid: small(&mut self.random) },
            _ => {
                let sec = i64::try_from(self.random.below(1 << 33)).unwrap_or(0).saturating_sub(1 << 31);
                let nsec = u32::try_from(self.random.below(1_000_000_000)).unwrap_or(0);
                Operation::SetTime { path, mtime: Timestamp { sec, nsec } }
            }
        }
    }

    fn xattr(&mut self, model: &Model) -> Operation {
        let path = self.pick_no_symlink(model);
        let name = format!("user.{}", self.random.below(12));
        let len = to_usize(self.random.skewed(2000));
        let seed = self.random.number();
        match self.random.below(8) {
            0 | 1 => Operation::RemoveXattr { path, name },
            2 => Operation::SetXattr { path, name, len, seed, mode: XattrMode::Create },
            3 => Operation::SetXattr { path, name, len, seed, mode: XattrMode::Replace },
            _ => Operation::SetXattr { path, name, len, seed, mode: XattrMode::Either },
        }
    }

    /// Attributes of symbolic links and of special files are the kernel's business.
    fn pick_no_symlink(&mut self, model: &Model) -> PathBuf {
        let wanted = if self.random.one_in(2) { Wanted::File } else { Wanted::Directory };
        self.pick(model, wanted)
    }

    fn subvolume(&mut self, model: &Model) -> Operation {
        let count = model.nodes.keys().filter(|id| is_subvolume(model, **id)).count();
        let full = count > SUBVOLUMES_MAX;
        match self.random.below(if full { 4 } else { 10 }) {
            0..3 => Operation::DeleteSubvolume { path: self.pick(model, Wanted::SpareSubvolume) },
            3 if full => Operation::DeleteSubvolume { path: self.pick(model, Wanted::SpareSubvolume) },
            3 | 4 => Operation::CreateSubvolume { path: self.new_path(model) },
            _ => {
                let mode = if self.random.one_in(3) { SnapshotMode::ReadOnly } else { SnapshotMode::ReadWrite };
                Operation::Snapshot { source: self.pick(model, Wanted::Subvolume), path: self.new_path(model), mode }
            }
        }
    }
}

fn id_of(model: &Model, path: &Path) -> NodeId {
    id_if(model, path).unwrap_or_else(|| model.root())
}

fn id_if(model: &Model, path: &Path) -> Option<NodeId> {
    if path == Path::new("/") { Some(model.root()) } else { model.place(path).ok()?.node }
}

fn nth(directory: &Directory, index: usize) -> Option<(&[u8], NodeId)> {
    directory.entries.iter().nth(index).map(|(name, id)| (name.as_slice(), *id))
}

fn is_subvolume(model: &Model, id: NodeId) -> bool {
    id != model.root() && matches!(model.role(id), Role::Subvolume | Role::Frozen)
}

fn fits(model: &Model, id: NodeId, wanted: Wanted, is_base: bool) -> bool {
    let Some(node) = model.node(id) else {
        return false;
    };
    // Stubs are not written to, nor looked at as the target of anything.
    if model.role(id) == Role::Stub {
        return false;
    }
    match wanted {
        Wanted::Any => true,
        Wanted::File => matches!(&node.kind, Kind::File(content) if content.page_count() < 2000),
        Wanted::Directory => node.directory().is_some(),
        Wanted::Subvolume => is_subvolume(model, id),
        Wanted::SpareSubvolume => !is_base && is_subvolume(model, id),
        Wanted::Movable => !is_base && model.role(id) == Role::Plain && !model.holds_subvolumes(id),
    }
}
