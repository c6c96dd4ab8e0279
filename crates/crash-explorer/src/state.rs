//! Reads the contents of an opened state, as far as its oracle knows the directories. Called by `explore` and
//! `fault_runs`; `compare` judges the result.

use super::history::{Attrs, Ino, Slot, Xattrs};
use super::oracle::Oracle;
use crate::number::to_u64;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use vfs::file_system::NodeKind;
use vfs::{FileOptions, Metadata, Volume};

/// A file that would be larger came from nowhere.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// An inode that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundThing {
    pub(super) kind: NodeKind,
    pub(super) links: u32,
    pub(super) data: Vec<u8>,
    pub(super) xattrs: Xattrs,
    pub(super) attrs: Attrs,
    pub(super) target: Option<Vec<u8>>,
}

/// A tree that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) things: BTreeMap<Ino, FoundThing>,
    pub(super) slots: BTreeMap<Slot, Ino>,
}

impl Found {
    /// Reads all that the oracle knows, and all new entries of its directories.
    ///
    /// # Errors
    /// The first read error.
    pub(super) fn read(volume: &Volume, oracle: &Oracle) -> Result<Self> {
        let mut found = Self::default();
        let top = volume.symlink_metadata("/")?;
        found.things.insert(ino_of(&top), read_thing(volume, Path::new("/"), &top)?);
        found.read_folder(volume, oracle, Path::new("/"), ino_of(&top))?;
        Ok(found)
    }

    /// Inodes that names lead to, and the top.
    pub(super) fn inode_count(&self) -> u64 {
        let named: BTreeSet<&Ino> = self.slots.values().collect();
        to_u64(named.len()).saturating_add(1)
    }

    fn read_folder(&mut self, volume: &Volume, oracle: &Oracle, folder: &Path, ino: Ino) -> Result<()> {
        for entry in volume.read_dir(folder)? {
            let entry = entry?;
            let path: PathBuf = folder.join(OsStr::from_bytes(entry.name_bytes()));
            let slot = (ino, entry.name_bytes().to_vec());
            let metadata = volume.symlink_metadata(&path).with_context(|| path.display().to_string())?;
            ensure!(metadata.kind == entry.file_type(), "{}: the entry is wrong about its kind", path.display());
            let child = ino_of(&metadata);
            let is_known = oracle.things.contains_key(&child);
            self.slots.insert(slot, child);
            if is_known && !self.things.contains_key(&child) {
                let thing = read_thing(volume, &path, &metadata).with_context(|| path.display().to_string())?;
                self.things.insert(child, thing);
                if metadata.is_dir() {
                    self.read_folder(volume, oracle, &path, child)?;
                }
            }
        }
        Ok(())
    }
}

pub(super) fn ino_of(metadata: &Metadata) -> Ino {
    (metadata.home.subvolume, metadata.home.ino)
}

/// Reads all that a name leads to.
pub(super) fn read_thing(volume: &Volume, path: &Path, metadata: &Metadata) -> Result<FoundThing> {
    let mut thing = FoundThing {
        kind: metadata.kind,
        links: metadata.nlink,
        data: Vec::new(),
        xattrs: Xattrs::new(),
        attrs: Attrs::of(metadata),
        target: None,
    };
    for name in volume.list_xattrs(path)? {
        let value = volume.get_xattr(path, name.as_bytes())?.context("an attribute without value")?;
        thing.xattrs.insert(name.into_vec(), value);
    }
    match metadata.kind {
        NodeKind::Symlink => thing.target = Some(volume.read_link(path)?.into_os_string().into_vec()),
        NodeKind::File => {
            ensure!(metadata.size <= FILE_BYTES_MAX, "has {} bytes", metadata.size);
            let file = FileOptions::new().read(true).open(volume, path)?;
            thing.data = vec![0; usize::try_from(metadata.size)?];
            let count = file.read_at(&mut thing.data, 0)?;
            ensure!(count == thing.data.len(), "{count} of {} bytes can be read", thing.data.len());
        }
        _ => {}
    }
    Ok(thing)
}
