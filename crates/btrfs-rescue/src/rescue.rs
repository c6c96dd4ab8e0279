//! Opens devices and presents states of their file system as volumes: [`Rescue`], the public entry point. The `spinney`
//! library (`salvage`) and trials call it.

use std::collections::BTreeMap;
use std::sync::Arc;

use blockdev::Device;
use btrfs_check::Media;
use btrfs_disk::TreeId;
use btrfs_disk::superblock::DiskSuperblock;
use vfs::Volume;

use crate::blocks::{At, Blocks};
use crate::error::Error;
use crate::listing::path_of;
use crate::losses::Loss;
use crate::roots::{self, Root};
use crate::state::{Pick, State};
use crate::tree_view::TreeView;
use crate::undelete::{self, Deleted};
use crate::watch::Watch;
use crate::{chunks, supers};

/// A damaged file system.
pub struct Rescue {
    blocks: Arc<Blocks>,
    fields: Option<Box<DiskSuperblock>>,
    notes: Vec<String>,
}

/// A readable state of it.
pub struct View {
    tree: Arc<TreeView>,
}

/// A file with losses.
#[derive(Clone, Debug)]
pub struct LostFile {
    /// One of its paths from the top level.
    pub path: Vec<u8>,
    /// Number of its subvolume.
    pub subvolume: u64,
    /// Number of its inode.
    pub inode: u64,
    /// Its losses.
    pub loss: Loss,
}

/// A key range of a tree without a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Number of the subvolume.
    pub subvolume: u64,
    /// First and last inode that may lack items.
    pub inodes: (u64, u64),
}

/// A subvolume whose newest state is or may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Older {
    /// Number of the subvolume.
    pub subvolume: u64,
    /// Newest possible commit of its remaining state.
    pub generation: u64,
    /// The last commit of the file system.
    pub last: u64,
}

/// Deleted files found, and the states to read them from.
pub struct Undeleted {
    /// By path.
    pub found: Vec<Deleted>,
    views: BTreeMap<u64, Arc<TreeView>>,
}

impl Undeleted {
    /// The state of a generation.
    #[must_use]
    pub fn view(&self, generation: u64) -> Option<View> {
        self.views.get(&generation).map(|tree| View { tree: Arc::clone(tree) })
    }

    /// All states. Losses appear in them as files are read.
    #[must_use]
    pub fn views(&self) -> Vec<View> {
        self.views.values().map(|tree| View { tree: Arc::clone(tree) }).collect()
    }
}

impl Rescue {
    /// Opens the devices of a file system, some of which may be missing. Never writes to them. `threads` is the number
    /// of scan threads; 0 means one per processor.
    ///
    /// # Errors
    /// Where there is no trace of a file system.
    pub fn open(devices: &[Arc<dyn Device>], threads: usize, watch: Arc<dyn Watch>) -> Result<Self, Error> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        let opened = supers::open(devices, &*watch)?;
        let mut notes = opened.notes;
        for disk in &opened.media.disks {
            let (has, size) = (disk.device.size_bytes(), disk.total_bytes);
            if has < size {
                let name = disk.device.name();
                notes.push(format!("{name} has {has} bytes, its file system {size}: what lay behind them is lost"));
            }
        }
        let mut blocks = Blocks::new(opened.media, threads, watch);
        chunks::load(&mut blocks, opened.fields.as_deref(), &mut notes);
        Ok(Self { blocks: Arc::new(blocks), fields: opened.fields, notes })
    }

    /// The devices and the chunks found.
    #[must_use]
    pub fn media(&self) -> &Media {
        &self.blocks.media
    }

    /// The chosen superblock, if any is left.
    #[must_use]
    pub fn superblock(&self) -> Option<&DiskSuperblock> {
        self.fields.as_deref()
    }

    /// Damage found so far, and how it was handled.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if self.blocks.has_scanned() && self.blocks.table().is_cut {
            let max = crate::scan::RECORDS_MAX;
            notes.push(format!("more than {max} tree blocks: the others are not looked at"));
        }
        notes
    }

    /// The states found, newest first. Scans the devices.
    #[must_use]
    pub fn roots(&self) -> Vec<Root> {
        roots::list(&self.blocks, self.fields.as_deref())
    }

    /// Opens the newest state, or the one whose root tree has this generation or address.
    ///
    /// # Errors
    /// If there is no such root.
    pub fn view(&self, root: Option<u64>) -> Result<View, Error> {
        let pick = match root {
            None => self.newest(),
            Some(wanted) => self.pick(wanted)?,
        };
        Ok(View { tree: Arc::new(TreeView::new(State::open(&self.blocks, pick))) })
    }

    fn newest(&self) -> Pick {
        let Some(fields) = &self.fields else {
            let newest = self.blocks.table().all().iter().filter(|found| found.owner == TreeId::ROOT.0);
            let generation = newest.map(|found| found.generation).max();
            let start = roots::starts(&self.blocks, None).into_iter().next();
            let start = start.filter(|start| Some(start.at.generation) == generation);
            let root = start.map(|start| (start.at, start.level));
            return Pick { root, generation_max: u64::MAX, is_strict: false };
        };
        let at = At { logical: fields.root.get(), generation: fields.generation.get() };
        Pick { root: Some((at, fields.root_level)), generation_max: at.generation, is_strict: false }
    }

    fn pick(&self, wanted: u64) -> Result<Pick, Error> {
        let starts = roots::starts(&self.blocks, self.fields.as_deref());
        let start = starts.into_iter().find(|start| [start.at.generation, start.at.logical].contains(&wanted));
        let start = start.ok_or(Error::NoSuchRoot(wanted))?;
        let generation_max = start.at.generation;
        Ok(Pick { root: Some((start.at, start.level)), generation_max, is_strict: false })
    }

    /// Finds deleted files and directories whose name, or path if the pattern has a slash, matches `pattern`, in which
    /// `*` and `?` are wildcards. Scans the devices.
    #[must_use]
    pub fn undelete(&self, pattern: &[u8]) -> Undeleted {
        let newest = State::open(&self.blocks, self.newest());
        let (found, views) = undelete::find(&self.blocks, self.fields.as_deref(), &newest, pattern);
        Undeleted { found, views }
    }
}

impl View {
    /// The state as a read-only volume. Lost bytes read as zeros and appear in [`View::losses`].
    #[must_use]
    pub fn volume(&self) -> Volume {
        let tree: Arc<TreeView> = Arc::clone(&self.tree);
        Volume::new(tree)
    }

    /// The files read so far that have losses, by path.
    #[must_use]
    pub fn losses(&self) -> Vec<LostFile> {
        let TreeView { state, listings, losses, .. } = &*self.tree;
        let files = losses.all().into_iter().map(|(file, loss)| LostFile {
            path: path_of(state, listings, file),
            subvolume: file.0,
            inode: file.1,
            loss,
        });
        let mut files: Vec<LostFile> = files.collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    /// Subvolumes shown in an older state because their last root is lost.
    #[must_use]
    pub fn older(&self) -> Vec<Older> {
        let state = &self.tree.state;
        let older = state.older().into_iter();
        older.map(|(subvolume, generation)| Older { subvolume, generation, last: state.last }).collect()
    }

    /// Ranges of inodes whose items are missing from the trees read so far.
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        let state = &self.tree.state;
        let mut missing = Vec::new();
        if !state.infos.contains_key(&TreeId::FS.0) {
            missing.push(Missing { subvolume: TreeId::FS.0, inodes: (0, u64::MAX) });
        }
        for tree in state.subvolumes() {
            for (first, last) in state.tree(tree).holes() {
                let range = Missing { subvolume: tree, inodes: (first.objectid, last.objectid) };
                if first.objectid < TreeId::LAST_FREE.0 && missing.last() != Some(&range) {
                    missing.push(range);
                }
            }
        }
        missing
    }
}
