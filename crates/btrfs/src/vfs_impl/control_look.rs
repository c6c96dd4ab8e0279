//! Answers control operations that search: items of trees, paths of directories, subvolumes in subvolumes. Called by
//! `control`.
//!
//! All but two answer only callers that could read the image as well. Two are for all users: which subvolumes are named
//! in a subvolume, and the path to one of them below the given directory, as far as the caller may search the
//! directories in between.
//!
//! Trees are searched in memory, after a commit: changes of finished operations are there. Inode items lag behind
//! changes of running ones.

use btrfs_disk::convert::usize_from;
use btrfs_disk::items::RootRefEntry;
use btrfs_disk::key::item_type;
use btrfs_disk::{Generation, InodeNo, Key, TreeId};
use btrfs_store::Scan;
use vfs::file_system::{Control, ControlAnswer, Errno, Result};

use super::BtrfsFs;
use super::control::{ARGS_BYTES, Args, Output};
use super::control_change::{READ, SEARCH};
use crate::error::CallerError;
use crate::inode::{FileType, Inode, ROOT_DIR_INO, Root};
use crate::subvol;

/// Bytes of the search key, with the unused part behind it; items follow.
const SEARCH_KEY_BYTES: usize = 104;
/// Bytes in front of each item that is found.
const SEARCH_HEADER_BYTES: usize = 32;
/// Bytes for items.
const SEARCH_BYTES_MAX: usize = 4096 - SEARCH_KEY_BYTES;
/// Offset of the count of items in the search key.
const COUNT_OFFSET: usize = 64;

/// Subvolumes that one answer names.
const ROOT_REFS_MAX: usize = 255;
/// Bytes of a path with its zero.
const PATH_BYTES_MAX: usize = 4080;
/// Bytes of a name in an answer for all users, with its zero.
const USER_NAME_BYTES: usize = 256;
/// Directories on the way up: more can only be a loop in a damaged image. Each takes two bytes of a path.
const DEPTH_MAX: usize = PATH_BYTES_MAX;

/// The parameters of a search in a tree.
struct Wanted {
    from: Key,
    to: Key,
    transactions: std::ops::RangeInclusive<Generation>,
    count: u32,
}

impl Wanted {
    fn read(args: &Args<'_>) -> Result<Self> {
        // As the kernel, which keeps the low byte.
        let kind = |at| Ok::<_, Errno>(args.number_32(at)?.to_le_bytes()[0]);
        Ok(Self {
            from: Key::new(args.number(8)?, kind(56)?, args.number(24)?),
            to: Key::new(args.number(16)?, kind(60)?, args.number(32)?),
            transactions: Generation(args.number(40)?)..=Generation(args.number(48)?),
            count: args.number_32(COUNT_OFFSET)?,
        })
    }
}

/// The items of an answer.
#[derive(Default)]
struct Items {
    bytes: Vec<u8>,
    count: u32,
}

impl Items {
    /// Adds an item; the first one without its bytes where these do not fit.
    fn add(&mut self, generation: Generation, key: &Key, item: &[u8]) -> Scan {
        let room = SEARCH_BYTES_MAX - self.bytes.len();
        let fits = SEARCH_HEADER_BYTES + item.len() <= room;
        if !fits && self.count > 0 {
            return Scan::Stop;
        }
        let item = if fits { item } else { &[] };
        for number in [generation.0, key.objectid, key.offset] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.bytes.extend_from_slice(&u32::from(key.item_type).to_le_bytes());
        self.bytes.extend_from_slice(&u32::try_from(item.len()).unwrap_or(0).to_le_bytes());
        self.bytes.extend_from_slice(item);
        self.count += 1;
        if fits { Scan::Continue } else { Scan::Stop }
    }
}

impl BtrfsFs {
    /// Searches a tree for items between two keys.
    pub(super) fn search_tree(&self, inode: &Inode, args: &Args<'_>) -> Result<Vec<u8>> {
        let wanted = Wanted::read(args)?;
        let id = match args.number(0)? {
            0 => inode.tree_id(),
            number => TreeId(number),
        };
        self.answer(self.check_searchable(id))?;
        let mut found = Items::default();
        self.answer(self.find_items(id, &wanted, &mut found))?;
        let mut head: [u8; SEARCH_KEY_BYTES] = args.field(0)?;
        if let Some(count) = head.get_mut(COUNT_OFFSET..COUNT_OFFSET + 4) {
            count.copy_from_slice(&found.count.to_le_bytes());
        }
        let mut out = Output::new(ARGS_BYTES);
        out.bytes(&head).bytes(&found.bytes);
        Ok(out.done())
    }

    /// Permits subvolumes, and trees that every volume has one of.
    fn check_searchable(&self, id: TreeId) -> crate::Result<()> {
        const SINGLE: [TreeId; 9] = [
            TreeId::ROOT,
            TreeId::EXTENT,
            TreeId::CHUNK,
            TreeId::DEV,
            TreeId::CSUM,
            TreeId::QUOTA,
            TreeId::UUID,
            TreeId::FREE_SPACE,
            TreeId::BLOCK_GROUP,
        ];
        match SINGLE.contains(&id) {
            true => Ok(()),
            false => self.core().root(id).map(drop),
        }
    }

    fn find_items(&self, id: TreeId, wanted: &Wanted, found: &mut Items) -> crate::Result<()> {
        let store = &self.core().store;
        if !store.is_read_only() {
            // With this commit a new subvolume has its item in the tree of roots.
            store.commit()?;
        }
        let tree = match store.tree(id) {
            Err(btrfs_store::Error::NoSuchTree(_)) => return Err(CallerError::NotFound.into()),
            tree => tree?,
        };
        let since = *wanted.transactions.start();
        tree.scan_since(&wanted.from, &wanted.to, since, |generation, key, item| {
            if generation > *wanted.transactions.end() {
                return Ok(Scan::Continue);
            }
            Ok(match found.add(generation, key, item) {
                Scan::Continue if found.count < wanted.count => Scan::Continue,
                _ => Scan::Stop,
            })
        })?;
        Ok(())
    }

    /// The subvolumes whose names are in the inode's subvolume, from a number on.
    pub(super) fn subvolumes_below(&self, inode: &Inode, args: &Args<'_>) -> Result<ControlAnswer> {
        let parent = inode.tree_id().0;
        let from = Key::new(parent, item_type::ROOT_REF, args.number(0)?);
        let to = Key::new(parent, item_type::ROOT_REF, u64::MAX);
        let mut found: Vec<(u64, u64)> = Vec::new();
        let mut has_more = false;
        let mut look = || -> crate::Result<()> {
            self.core().store.tree(TreeId::ROOT)?.scan(&from, &to, |key, bytes| {
                has_more = found.len() == ROOT_REFS_MAX;
                if has_more {
                    return Ok(Scan::Stop);
                }
                found.push((key.offset, RootRefEntry::parse(bytes)?.dir.0));
                Ok(Scan::Continue)
            })?;
            Ok(())
        };
        self.answer(look())?;
        let next = found.last().map_or(args.number(0)?, |(id, _)| id.saturating_add(1));
        let mut out = Output::new(ARGS_BYTES);
        out.number(next);
        for (id, dir) in &found {
            out.number(*id).number(*dir);
        }
        out.padded(&[], (ROOT_REFS_MAX - found.len()) * 16);
        out.bytes(&[u8::try_from(found.len()).unwrap_or(u8::MAX)]);
        let error = has_more.then_some(Errno::EOVERFLOW);
        Ok(ControlAnswer { output: out.done(), error })
    }

    /// The subvolume of an inode, for all users; and for owners of the device the path of an inode in it.
    pub(super) fn path_in_tree(&self, inode: &Inode, args: &Args<'_>, owns_device: bool) -> Result<Vec<u8>> {
        let (tree, object) = (args.number(0)?, args.number(8)?);
        let tree = if tree == 0 { inode.tree_id() } else { TreeId(tree) };
        if object != ROOT_DIR_INO.0 && !owns_device {
            return Err(Errno::EPERM);
        }
        let root = self.answer(self.core().root(tree))?;
        let mut out = Output::new(ARGS_BYTES);
        out.number(tree.0).number(object);
        out.bytes(&self.path_up(&root, InodeNo(object), ROOT_DIR_INO, |_| Ok(()))?);
        Ok(out.done())
    }

    /// The path from the directory `top` to the inode `ino`, each name with a slash behind it; `allow` is asked about
    /// each inode on the way but `top`.
    fn path_up(
        &self,
        root: &Root,
        mut ino: InodeNo,
        top: InodeNo,
        allow: impl Fn(InodeNo) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut bytes = 0_usize;
        while ino != top {
            if ino == ROOT_DIR_INO {
                return Err(Errno::EACCES);
            }
            let found = self.answer(subvol::name_of(root, ino))?.ok_or(Errno::ENOENT)?;
            allow(ino)?;
            bytes = bytes.saturating_add(found.0.len() + 1);
            if bytes >= PATH_BYTES_MAX || names.len() >= DEPTH_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            names.push(found.0);
            ino = found.1;
        }
        let mut path = Vec::with_capacity(bytes);
        for name in names.iter().rev() {
            path.extend_from_slice(name);
            path.push(b'/');
        }
        Ok(path)
    }

    /// Name of a subvolume, and the path of its directory below the given directory.
    pub(super) fn path_for_user(&self, control: &Control<'_>, inode: &Inode, args: &Args<'_>) -> Result<Vec<u8>> {
        let (dir, id) = (InodeNo(args.number(0)?), TreeId(args.number(8)?));
        // Names in the subvolume's root are not below another directory.
        if dir == ROOT_DIR_INO && inode.ino() != ROOT_DIR_INO {
            return Err(Errno::EACCES);
        }
        let root = self.answer(self.core().root(inode.tree_id()))?;
        let path = self.path_up(&root, dir, inode.ino(), |ino| {
            let on_the_way = self.answer(self.core().inode(root.id, ino))?;
            if on_the_way.kind() != FileType::Directory {
                return Err(Errno::ENOENT);
            }
            if control.owns_device {
                return Ok(());
            }
            self.check_may(&control.caller, &on_the_way, READ | SEARCH).map_err(|_| Errno::EACCES)
        })?;
        let link = self.answer(self.namespace().root_links.get(root.id, id))?.ok_or(Errno::ENOENT)?;
        if link.dir != dir {
            return Err(Errno::EINVAL);
        }
        if link.name.len() >= USER_NAME_BYTES || path.len() >= usize_from(ARGS_BYTES) - 16 - USER_NAME_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut out = Output::new(ARGS_BYTES);
        out.number(dir.0).number(id.0);
        out.padded(&link.name, USER_NAME_BYTES).bytes(&path);
        Ok(out.done())
    }
}
