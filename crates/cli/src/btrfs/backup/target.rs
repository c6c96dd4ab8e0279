//! Where a state is brought back: in an image, or in what a server has mounted, which is asked to do the same.

use std::io::{BufReader, BufWriter, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use spinney::SnapshotMode;
use spinney::btrfs::receive::{Options, Receiver, Silent};
use spinney::btrfs::{SendError, Volume};

use super::super::{format, receive, send};
use super::directory::hex;
use super::{JOB, state, transfer};
use crate::commands::failure::{Failure, Status};
use crate::commands::image::ImageArgs;
use crate::commands::on_mount::OnMount;
use crate::commands::progress::Progress;

/// The side that gets a state.
pub(super) trait Target {
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Makes the directory that a restoration works in, anew.
    fn begin(&self, work: &Path) -> Result<()>;

    /// Receives a stream there; returns where the subvolume is.
    fn receive(&self, input: &mut (dyn Read + Send), work: &Path) -> Result<PathBuf>;

    /// Receives a state of another volume there, whole or as the difference to a parent.
    fn copy(&self, from: &Volume, state: (&Path, Option<&Path>), work: &Path, progress: &Progress) -> Result<PathBuf>;

    /// Takes a writable snapshot of the received state, and removes the directory. The received state is kept as `kept`
    /// if that name is free.
    fn finish(&self, received: &Path, path: &Path, work: &Path, kept: Option<&Path>) -> Result<()>;

    /// Whether the volume has a state, unchanged.
    fn has(&self, uuid: [u8; 16]) -> Result<bool>;

    /// Takes a writable snapshot of a state that the volume has.
    fn revive(&self, uuid: [u8; 16], path: &Path) -> Result<()>;

    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens an image, or a directory of a mount.
pub(super) fn open(image: &ImageArgs) -> Result<Box<dyn Target>> {
    let Some(dir) = image.mounted_dir()? else {
        return Ok(Box::new(format::open_writable(image)?));
    };
    Ok(Box::new(Mounted { mount: OnMount::connect(&dir)?, files: image.open_writable()? }))
}

/// To read what is in it.
pub(super) fn files(image: &ImageArgs) -> Result<spinney::vfs::Volume> {
    match image.mounted_dir()? {
        Some(_) => image.open_writable(),
        None => Ok(format::open_image_as(image, true)?.by_paths().clone()),
    }
}

impl Target for Volume {
    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.by_paths().exists(path)?)
    }

    fn begin(&self, work: &Path) -> Result<()> {
        clear(self, work)?;
        Ok(self.create_dir(work)?)
    }

    fn receive(&self, input: &mut (dyn Read + Send), work: &Path) -> Result<PathBuf> {
        let mut receiver = Receiver::new(self, work, Options::default()).map_err(receive::failure)?;
        receiver.receive(input, &mut Silent).map_err(receive::failure)?;
        last(receiver.report())
    }

    fn copy(&self, from: &Volume, state: (&Path, Option<&Path>), work: &Path, progress: &Progress) -> Result<PathBuf> {
        last(&transfer::transfer(from, state, self, work, progress)?)
    }

    fn finish(&self, received: &Path, path: &Path, work: &Path, kept: Option<&Path>) -> Result<()> {
        self.snapshot(received, path, SnapshotMode::ReadWrite)?;
        if let Some(kept) = kept.filter(|kept| !self.by_paths().exists(kept).unwrap_or(true)) {
            self.create_dir_all(kept.parent().unwrap_or(Path::new("/")))?;
            // A read-only snapshot of it keeps the received UUID. The received subvolume itself cannot be moved out
            // of its directory, because it is read-only.
            self.snapshot(received, kept, SnapshotMode::ReadOnly)?;
        }
        clear(self, work)?;
        Ok(self.sync()?)
    }

    fn has(&self, uuid: [u8; 16]) -> Result<bool> {
        Ok(state::copy_of(self, uuid)?.is_some())
    }

    fn revive(&self, uuid: [u8; 16], path: &Path) -> Result<()> {
        let state = state::copy_of(self, uuid)?.ok_or_else(nothing)?;
        self.snapshot_of(state, path, SnapshotMode::ReadWrite)?;
        Ok(self.sync()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(Self::close(*self)?)
    }
}

fn last(report: &spinney::btrfs::receive::Report) -> Result<PathBuf> {
    let last = report.subvolumes.last().map(|made| made.path.clone());
    Ok(last.ok_or_else(nothing)?)
}

fn nothing() -> Failure {
    Failure::new(Status::Corrupt, "nothing was received")
}

/// Deletes the directory that a restoration works in, if it is there.
fn clear(volume: &Volume, work: &Path) -> Result<()> {
    if !volume.by_paths().exists(work)? {
        return Ok(());
    }
    let entries = volume.read_dir(work)?.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    let names = entries.collect::<Result<Vec<_>, _>>()?;
    for name in names {
        volume.delete_subvolume(work.join(name))?;
    }
    Ok(volume.remove_dir(work)?)
}

/// A directory of a mount.
struct Mounted {
    mount: OnMount,
    files: spinney::vfs::Volume,
}

impl Mounted {
    fn ask(&self, what: &str, paths: &[String]) -> Result<()> {
        let words = [JOB.to_owned(), what.to_owned()].into_iter().chain(paths.iter().cloned());
        self.mount.take(words.collect(), std::io::sink()).map(drop)
    }

    fn give(&self, input: impl Read + Send, work: &Path) -> Result<PathBuf> {
        let words = ["receive", "--", "IMAGE"].map(str::to_owned).into_iter().chain([self.mount.word(work)?]);
        let report = self.mount.give(words.collect(), input)?;
        let report: serde_json::Value = serde_json::from_str(&report).context("what the server reports")?;
        let made = report["subvolumes"].as_array().and_then(|made| made.last()?["path"].as_str());
        Ok(made.map(PathBuf::from).ok_or_else(nothing)?)
    }
}

impl Target for Mounted {
    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.files.exists(path)?)
    }

    fn begin(&self, work: &Path) -> Result<()> {
        self.ask("begin", &[self.mount.word(work)?])
    }

    fn receive(&self, input: &mut (dyn Read + Send), work: &Path) -> Result<PathBuf> {
        self.give(input, work)
    }

    fn copy(
        &self,
        from: &Volume,
        (state, parent): (&Path, Option<&Path>),
        work: &Path,
        _progress: &Progress,
    ) -> Result<PathBuf> {
        let (output, input) = UnixStream::pair().context("a socket")?;
        let (sent, received) = std::thread::scope(|scope| {
            let sender = scope.spawn(move || -> Result<(), SendError> {
                let mut output = BufWriter::with_capacity(transfer::BUFFER_BYTES, output);
                from.send(state, parent, &[], &super::source::options(), &mut output)?;
                output.flush().map_err(SendError::Output)
            });
            let received = self.give(BufReader::with_capacity(transfer::BUFFER_BYTES, input), work);
            (sender.join(), received)
        });
        match sent.map_err(|_| Failure::refused("the sender failed"))? {
            // A receiver that stopped says itself why.
            Ok(()) | Err(SendError::Output(_)) => received,
            Err(error) => Err(send::explain(error, state)),
        }
    }

    fn finish(&self, received: &Path, path: &Path, work: &Path, kept: Option<&Path>) -> Result<()> {
        // The server has named what it received as it names everything.
        let received = received.to_str().ok_or_else(nothing)?.to_owned();
        let mut paths = vec![received, self.mount.word(path)?, self.mount.word(work)?];
        paths.extend(kept.map(|kept| self.mount.word(kept)).transpose()?);
        self.ask("finish", &paths)
    }

    fn has(&self, uuid: [u8; 16]) -> Result<bool> {
        let mut found = Vec::new();
        let words = [JOB, "has", hex(&uuid).as_str()].map(str::to_owned);
        self.mount.take(words.to_vec(), &mut found)?;
        serde_json::from_slice(&found).context("what the server says of a state")
    }

    fn revive(&self, uuid: [u8; 16], path: &Path) -> Result<()> {
        self.ask("revive", &[hex(&uuid), self.mount.word(path)?])
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
