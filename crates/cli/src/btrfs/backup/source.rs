//! Where the subvolume is that is backed up: in an image, or in what a server has mounted, which is asked to do the
//! same.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use spinney::SnapshotMode;
use spinney::btrfs::{SendOptions, Volume};

use super::super::{format, send};
use super::JOB;
use super::state::{self, Found};
use crate::commands::failure::Failure;
use crate::commands::image::ImageArgs;
use crate::commands::on_mount::OnMount;

/// How streams of backups are made. The same each time, so that a receipt can go on.
pub(super) fn options() -> SendOptions {
    SendOptions { version: 2, compressed_data: true, ..SendOptions::default() }
}

/// The side that is backed up.
pub(super) trait Source: Sync {
    /// As [`state::lineage`]. Refuses what is no subvolume.
    fn lineage(&self, path: &Path) -> Result<Vec<[u8; 16]>>;

    /// The subvolumes in a directory. Without the directory there are none.
    fn subvolumes_in(&self, dir: &Path) -> Result<Vec<Found>>;

    /// Makes a read-only snapshot, and the directory that it is in. Both are durable then.
    fn freeze(&self, path: &Path, snapshot: &Path) -> Result<()>;

    /// Deletes a subvolume.
    fn delete(&self, path: &Path) -> Result<()>;

    /// Writes the stream of a subvolume, whole or as what differs from `parent`.
    fn send(&self, path: &Path, parent: Option<&Path>, output: &mut dyn Write) -> Result<()>;

    /// To read what is in it.
    fn files(&self) -> &spinney::vfs::Volume;

    /// Makes everything durable.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens an image, or a directory of a mount.
pub(super) fn open(image: &ImageArgs, read_only: bool) -> Result<Box<dyn Source>> {
    let Some(dir) = image.mounted_dir()? else {
        return Ok(Box::new(format::open_image_as(image, read_only)?));
    };
    Ok(Box::new(Mounted { mount: OnMount::connect(&dir)?, files: image.open_writable()? }))
}

impl Source for Volume {
    fn lineage(&self, path: &Path) -> Result<Vec<[u8; 16]>> {
        match self.subvolume_at(path) {
            Ok(id) => state::lineage(self, id),
            Err(_) => Err(Failure::refused(format!("{}: no subvolume", path.display())).into()),
        }
    }

    fn subvolumes_in(&self, dir: &Path) -> Result<Vec<Found>> {
        state::subvolumes_in(self, dir)
    }

    fn freeze(&self, path: &Path, snapshot: &Path) -> Result<()> {
        self.create_dir_all(snapshot.parent().unwrap_or(Path::new("/")))?;
        if self.is_changed_since_receipt(self.subvolume_at(path)?)? {
            // A read-only snapshot of it would inherit the received UUID, which names another state.
            self.snapshot(path, snapshot, SnapshotMode::ReadWrite)?;
            self.set_subvolume_read_only(snapshot, true)?;
        } else {
            self.snapshot(path, snapshot, SnapshotMode::ReadOnly)?;
        }
        Ok(self.sync()?)
    }

    fn delete(&self, path: &Path) -> Result<()> {
        Ok(self.delete_subvolume(path)?)
    }

    fn send(&self, path: &Path, parent: Option<&Path>, output: &mut dyn Write) -> Result<()> {
        let sent = Self::send(self, path, parent, &[], &options(), output);
        sent.map_err(|error| send::explain(error, path))
    }

    fn files(&self) -> &spinney::vfs::Volume {
        self.by_paths()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(Self::close(*self)?)
    }
}

/// A directory of a mount.
struct Mounted {
    mount: OnMount,
    files: spinney::vfs::Volume,
}

impl Mounted {
    fn ask(&self, what: &str, paths: &[&Path], output: impl Write) -> Result<()> {
        let mut words = vec![JOB.to_owned(), what.to_owned()];
        for path in paths {
            words.push(self.mount.word(path)?);
        }
        self.mount.take(words, output).map(drop)
    }
}

impl Source for Mounted {
    fn lineage(&self, path: &Path) -> Result<Vec<[u8; 16]>> {
        let mut found = Vec::new();
        self.ask("lineage", &[path], &mut found)?;
        serde_json::from_slice(&found).context("what the server says of the subvolume")
    }

    fn subvolumes_in(&self, dir: &Path) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        self.ask("list", &[dir], &mut found)?;
        serde_json::from_slice(&found).context("what the server says of subvolumes")
    }

    fn freeze(&self, path: &Path, snapshot: &Path) -> Result<()> {
        self.ask("freeze", &[path, snapshot], std::io::sink())
    }

    fn delete(&self, path: &Path) -> Result<()> {
        self.ask("delete", &[path], std::io::sink())
    }

    fn send(&self, path: &Path, parent: Option<&Path>, output: &mut dyn Write) -> Result<()> {
        let options = options();
        let mut words = vec!["send".to_owned(), format!("--proto={}", options.version), "--compressed-data".to_owned()];
        if let Some(parent) = parent {
            words.push(format!("--parent={}", self.mount.word(parent)?));
        }
        words.extend(["--".to_owned(), "IMAGE".to_owned(), self.mount.word(path)?]);
        self.mount.take(words, output).map(drop)
    }

    fn files(&self) -> &spinney::vfs::Volume {
        &self.files
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
