//! `spinney send`

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Error, Result};
use clap::Args;
use spinney::{SendError, SendOptions, Volume};

use super::format;
use commands::failure::{Failure, Status};
use commands::image::ReadArgs;
use commands::progress::{Bar, Progress};

/// Bytes of the stream that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// Write a read-only subvolume, or what changed since an earlier one, as a stream for `receive`
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "The stream is that of `btrfs send`: `btrfs receive` takes it, and `spinney receive` does. Only read-only\n",
    "subvolumes are sent; `spinney subvolume snapshot -r` makes one of any other. With -p the receiver has to have\n",
    "the parent, received from here, and the stream holds what differs. Of several subvolumes each is sent in its\n",
    "turn, and is one to clone from for those after it.\n\n",
    "Examples:\n",
    "  spinney send site.img /monday | ssh host btrfs receive /backup\n",
    "  spinney send -p /monday site.img /tuesday -f tuesday.stream\n",
    "  spinney send --proto 2 --compressed-data site.img /monday > monday.stream"
))]
pub(crate) struct Send {
    #[command(flatten)]
    image: ReadArgs,
    /// Read-only subvolumes in the image
    #[arg(required = true, value_name = "SUBVOL")]
    subvolumes: Vec<PathBuf>,
    /// Send what differs from this one, which the receiver has
    #[arg(short, long, value_name = "PARENT")]
    parent: Option<PathBuf>,
    /// Clone data from this one, which the receiver has; may be given several times
    #[arg(short, long = "clone-src", value_name = "CLONE")]
    clones: Vec<PathBuf>,
    /// Write the stream to FILE instead of the standard output
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Version of the stream: 1, which every kernel takes, or 2
    #[arg(long, value_name = "VERSION", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    proto: u32,
    /// Send compressed data as it is on disk; needs --proto 2
    #[arg(long)]
    compressed_data: bool,
    /// Say which bytes differ, without the data; `receive` does not take such a stream
    #[arg(long)]
    no_data: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// A writer that counts.
struct Counted<W> {
    inner: W,
    progress: Arc<Progress>,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.progress.add_bytes(u64::try_from(count).unwrap_or(0));
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Send {
    pub(crate) fn run(&self) -> Result<()> {
        if self.compressed_data && self.proto < 2 {
            return Err(Failure::usage("--compressed-data needs --proto 2").into());
        }
        if self.image.mounted_dir()?.is_some() {
            let text = format!("{}: a mount; send from its image, unmounted", self.image.image.image.display());
            return Err(Failure::new(Status::Unsupported, text).into());
        }
        if self.file.is_none() && io::stdout().is_terminal() {
            let text = "the stream would go to the terminal: use -f FILE, or redirect the standard output";
            return Err(Failure::refused(text).into());
        }
        let volume = format::open_read_only(&self.image)?;
        let Some(path) = &self.file else { return self.send(&volume, io::stdout()) };
        // A stream that was cut short is of no use, but what was there before is not ours to remove.
        let existed = path.exists();
        let file = create(path)?;
        let is_regular = file.metadata().is_ok_and(|found| found.is_file());
        self.send(&volume, file).inspect_err(|_| {
            if is_regular && !existed {
                let _ = std::fs::remove_file(path);
            }
        })
    }

    fn send(&self, volume: &Volume, output: impl Write) -> Result<()> {
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let mut output =
            BufWriter::with_capacity(WRITE_BYTES, Counted { inner: output, progress: Arc::clone(&progress) });
        let options = SendOptions { version: self.proto, compressed_data: self.compressed_data, no_data: self.no_data };
        let mut clones: Vec<&Path> = self.clones.iter().map(PathBuf::as_path).collect();
        if bar.is_shown() && !self.no_data {
            let bytes = self.subvolumes.iter().map(|path| volume.send_bytes(path, self.parent.as_deref()));
            let bytes = bytes.sum::<Result<u64, _>>()?;
            progress.bytes_total.store(bytes, std::sync::atomic::Ordering::Relaxed);
        }
        for path in &self.subvolumes {
            let sent = volume.send(path, self.parent.as_deref(), &clones, &options, &mut output);
            sent.map_err(|error| explain(error, path))?;
            progress.add_name();
            clones.push(path);
        }
        output.flush().context("the stream")
    }
}

fn create(path: &Path) -> Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
    file.with_context(|| path.display().to_string())
}

fn explain(error: SendError, path: &Path) -> Error {
    match error {
        SendError::Volume(error) => error.at(path).into(),
        SendError::Writable { path } => Failure::refused(format!(
            "{path}: a subvolume that can be changed; send a read-only snapshot of it, which \
             `spinney subvolume snapshot -r IMAGE {path} SNAPSHOT` makes"
        ))
        .into(),
        SendError::Output(error) => Error::from(error).context("the stream"),
        error => Failure::new(Status::Unsupported, format!("{}: {error}", path.display())).into(),
    }
}
