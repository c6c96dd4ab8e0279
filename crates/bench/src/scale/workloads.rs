//! The workloads of `bench scale`: calls of the library by numbered workers, each with files of its own. Called by
//! `mod`.

use std::path::Path;

use anyhow::Result;
use btrfs::ablation::{Sums, set_collects_csums, set_commits_each_sync, set_makes_items_in_leaf, set_sums};
use btrfs::{MakeOptions, Volume};
use vfs::file_system::{AllocateFlags, NodeFlags, SnapshotMode, WholeNode};
use vfs::{File, FileOptions};

/// Workers; each processor of a simulation has some of them.
pub(super) const WORKERS: usize = 128;
const FILE_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4 << 10;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    CreateApart,
    Stat,
    Unlink,
    Tree,
    Fsync,
    SnapshotWrite,
    InPlace,
    Mark,
}

/// An older way of doing what a mechanism does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Older {
    ItemsInLeaf,
    CommitEachSync,
    SumsUnderLock,
    AllChecksums,
}

impl Older {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ItemsInLeaf => "items made in the locked leaf",
            Self::CommitEachSync => "a commit for each fsync",
            Self::SumsUnderLock => "space counted under a lock",
            Self::AllChecksums => "all checksums of a range collected",
        }
    }

    /// Switches to the older way, or back.
    pub(super) fn set(self, is_on: bool) {
        match self {
            Self::ItemsInLeaf => set_makes_items_in_leaf(is_on),
            Self::CommitEachSync => set_commits_each_sync(is_on),
            Self::SumsUnderLock => set_sums(if is_on { Sums::Locked } else { Sums::Chosen }),
            Self::AllChecksums => set_collects_csums(is_on),
        }
    }
}

impl Kind {
    pub(super) const ALL: [Self; 9] = [
        Self::Create,
        Self::CreateApart,
        Self::Stat,
        Self::Unlink,
        Self::Tree,
        Self::Fsync,
        Self::SnapshotWrite,
        Self::InPlace,
        Self::Mark,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create, one directory",
            Self::CreateApart => "create, a directory each",
            Self::Stat => "stat",
            Self::Unlink => "unlink, one directory",
            Self::Tree => "small files, a directory each",
            Self::Fsync => "4 KiB write and fsync, a file each",
            Self::SnapshotWrite => "4 KiB write after a snapshot, a file each",
            Self::InPlace => "4 KiB write in place, a file each",
            Self::Mark => "create, write and fsync",
        }
    }

    /// The older ways that this workload was published with.
    pub(super) fn older(self) -> &'static [Older] {
        match self {
            Self::Fsync | Self::Mark => &[Older::ItemsInLeaf, Older::CommitEachSync],
            Self::SnapshotWrite => &[Older::SumsUnderLock],
            Self::InPlace => &[Older::AllChecksums],
            _ => &[],
        }
    }

    /// Calls of all workers together.
    pub(super) fn calls(self) -> usize {
        match self {
            Self::Create | Self::CreateApart | Self::Stat | Self::Unlink => 32_768,
            Self::Tree | Self::SnapshotWrite | Self::InPlace => 16_384,
            Self::Fsync => 4_096,
            Self::Mark => 1_024,
        }
    }
}

/// A volume that is ready for a workload.
pub(super) struct Workload {
    kind: Kind,
    volume: Volume,
    files: Vec<File>,
    data: Vec<u8>,
}

impl Workload {
    pub(super) fn new(kind: Kind, image: &Path, image_bytes: u64) -> Result<Self> {
        crate::row::touch_bytes(image, image_bytes)?;
        let make = MakeOptions { size: Some(image_bytes), ..MakeOptions::default() };
        let volume = Volume::make(image, &make)?;
        let mut workload = Self { kind, volume, files: Vec::new(), data: crate::spinney_side::random_data() };
        workload.prepare()?;
        workload.volume.sync()?;
        Ok(workload)
    }

    fn prepare(&mut self) -> Result<()> {
        let volume = &self.volume;
        match self.kind {
            Kind::Create => volume.create_dir("d")?,
            Kind::CreateApart | Kind::Tree | Kind::Mark => {
                (0..WORKERS).try_for_each(|worker| volume.create_dir(format!("d{worker}")))?;
            }
            Kind::Stat | Kind::Unlink => {
                volume.create_dir("d")?;
                (0..self.kind.calls()).try_for_each(|number| self.create(&format!("d/{number}")))?;
            }
            Kind::Fsync | Kind::SnapshotWrite | Kind::InPlace => {
                volume.create_subvolume("s")?;
                if self.kind == Kind::InPlace {
                    volume.set_flags("s", NodeFlags::NOCOW)?;
                }
                for worker in 0..WORKERS {
                    let path = format!("s/{worker}");
                    let file = FileOptions::new().write(true).create(true).open(volume, path)?;
                    if self.kind == Kind::InPlace {
                        file.allocate(AllocateFlags::empty(), 0, FILE_BYTES)?;
                    } else {
                        file.write_at(&self.data[..usize::try_from(FILE_BYTES)?], 0)?;
                    }
                    self.files.push(file);
                }
                volume.sync()?;
                if self.kind == Kind::SnapshotWrite {
                    volume.snapshot("s", "snapshot", SnapshotMode::ReadOnly)?;
                }
            }
        }
        Ok(())
    }

    fn create(&self, path: &str) -> Result<()> {
        self.volume.create_node(path, &WholeNode { permissions: 0o644, ..WholeNode::default() })?;
        Ok(())
    }

    fn write_new(&self, path: &str, bytes: usize) -> Result<File> {
        let file = FileOptions::new().write(true).create(true).open(&self.volume, path)?;
        file.write_at(self.data.get(..bytes).unwrap_or_default(), 0)?;
        Ok(file)
    }

    /// Call `number` of all, by the worker with its remainder.
    pub(super) fn call(&self, number: usize) -> Result<()> {
        let worker = number % WORKERS;
        match self.kind {
            Kind::Create => self.create(&format!("d/{number}")),
            Kind::CreateApart => self.create(&format!("d{worker}/{number}")),
            Kind::Stat => {
                self.volume.metadata(format!("d/{number}"))?;
                Ok(())
            }
            Kind::Unlink => Ok(self.volume.remove_file(format!("d/{number}"))?),
            Kind::Tree => {
                let path = format!("d{worker}/{number}");
                drop(self.write_new(&path, 6000)?);
                Ok(self.volume.set_permissions(&path, 0o600)?)
            }
            Kind::Mark => Ok(self.write_new(&format!("d{worker}/{number}"), 16 << 10)?.sync_all()?),
            Kind::Fsync | Kind::SnapshotWrite | Kind::InPlace => {
                let blocks = FILE_BYTES / BLOCK_BYTES;
                let block = u64::try_from(number)?.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                let file = self.files.get(worker).ok_or_else(|| anyhow::anyhow!("a file of each worker"))?;
                file.write_at(&self.data[..usize::try_from(BLOCK_BYTES)?], block % blocks * BLOCK_BYTES)?;
                if self.kind == Kind::Fsync {
                    file.sync_all()?;
                }
                Ok(())
            }
        }
    }
}
