//! `spinney send` writes the send stream of a snapshot, whole or as the difference from a parent. Called by `args`, and
//! by `jobs` in the server of a mount; `backup` explains errors of sending with it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::marker;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Error, Result};
use clap::Args;
use spinney::btrfs::stream::ResumePoint;
use spinney::btrfs::{SendError, SendOptions, Sending, Volume, send};
use spinney::checking::Watched;

use super::format;
use crate::commands::failure::{Failure, Status};
use crate::commands::image::ReadArgs;
use crate::commands::on_mount::OnMount;
use crate::commands::progress::{Bar, Progress};

/// Bytes of the stream that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// Write a read-only subvolume, or the changes since an earlier one, as a stream for `receive`
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "The stream is that of `btrfs send`: `btrfs receive` takes it, and `spinney receive` does. Only read-only\n",
    "subvolumes are sent; `spinney subvolume snapshot -r` makes one of any other. With -p the receiver has to have\n",
    "the parent, received from here, and the stream holds what differs. With -c alone the parent is that of the\n",
    "clone sources that SUBVOL is a snapshot of, else the one of the same subvolume that was made nearest to it;\n",
    "where there is none, SUBVOL is sent whole, and data that it shares is cloned. Of several subvolumes each is\n",
    "sent in its turn, and is one to clone from for those after it.\n\n",
    "Examples:\n",
    "  spinney send -p site.img:/monday site.img:/tuesday > tuesday.stream\n",
    "  spinney send site.img /monday | ssh host btrfs receive /backup\n",
    "  spinney send -p /monday site.img /tuesday -f tuesday.stream\n",
    "  spinney send /mnt/site /monday > monday.stream          of what is mounted\n",
    "  spinney send -p /monday --resume r1-1-... site.img /tuesday | ssh host spinney receive --resume b.img\n",
    "  spinney send --proto 2 --compressed-data site.img /monday > monday.stream"
))]
pub(crate) struct Send {
    #[command(flatten)]
    image: ReadArgs,
    /// Read-only subvolumes in the image
    #[arg(required = true, value_name = "SUBVOL")]
    subvolumes: Vec<PathBuf>,
    /// Send the differences from this one, which the receiver has
    #[arg(short, long, value_name = "PARENT")]
    parent: Option<PathBuf>,
    /// Clone data from this one, which the receiver has; may be given several times. Without -p, the nearest relative
    /// among them is the parent
    #[arg(short, long = "clone-src", value_name = "CLONE")]
    clones: Vec<PathBuf>,
    /// Write the stream to FILE instead of the standard output
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Send only the rest of the first stream, from where `receive --resume` failed and printed TOKEN; with the options
    /// of the whole stream
    #[arg(long, value_name = "TOKEN")]
    resume: Option<ResumePoint>,
    /// Version of the stream: 1, which every kernel takes, or 2
    #[arg(long, value_name = "VERSION", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    proto: u32,
    /// Send compressed data as it is on disk; needs --proto 2
    #[arg(long)]
    compressed_data: bool,
    /// Send which bytes differ, without the data; `receive` does not take such a stream
    #[arg(long)]
    no_data: bool,
    /// Send subvolumes that were changed after they were received, under their received UUIDs
    #[arg(long)]
    force: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// The image or mount that holds the subvolumes.
enum Source {
    Image(Volume),
    Mount(Box<OnMount>),
}

impl Send {
    pub(crate) fn run(&self) -> Result<()> {
        if self.compressed_data && self.proto < 2 {
            return Err(Failure::usage("--compressed-data needs --proto 2").into());
        }
        if self.file.is_none() && io::stdout().is_terminal() {
            let text = "the stream would go to the terminal: use -f FILE, or redirect the standard output";
            return Err(Failure::refused(text).into());
        }
        let source = match self.image.image.mounted_dir()? {
            Some(dir) => Source::Mount(Box::new(OnMount::connect(&dir)?)),
            None => Source::Image(format::open_read_only(&self.image)?),
        };
        let Some(path) = &self.file else { return self.send(&source, io::stdout()) };
        // A partial stream is removed, but not a file that existed before.
        let existed = path.exists();
        let file = Replaced::open(path)?;
        let is_regular = !file.is_empty;
        self.send(&source, file).inspect_err(|_| {
            if is_regular && !existed {
                let _ = std::fs::remove_file(path);
            }
        })
    }

    fn send(&self, source: &Source, mut output: impl Write + marker::Send) -> Result<()> {
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let volume = match source {
            Source::Mount(mount) => {
                let output = BufWriter::with_capacity(WRITE_BYTES, Watched::new(output, &*progress));
                let warnings = mount.take(self.words(mount)?, output)?;
                warnings.lines().for_each(|text| eprintln!("spinney: warning: {text}"));
                return Ok(());
            }
            Source::Image(volume) => volume,
        };
        if bar.is_shown() && !self.no_data {
            let bytes = self.subvolumes.iter().map(|path| volume.send_bytes(path, self.parent.as_deref()));
            let bytes = bytes.sum::<Result<u64, _>>()?;
            progress.bytes_total.store(bytes, std::sync::atomic::Ordering::Relaxed);
        }
        for text in self.warnings(volume)? {
            eprintln!("spinney: warning: {text}");
        }
        self.write(volume, &mut output, Some(&progress))
    }

    /// Warnings about subvolumes that are sent although the receiver may have them in another state.
    fn warnings(&self, volume: &Volume) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        let given = self.parent.iter().chain(&self.clones).chain(&self.subvolumes);
        for path in given.filter(|_| self.force) {
            if volume.is_changed_since_receipt(volume.subvolume_at(path)?)? {
                let path = path.display();
                warnings.push(format!("{path} was changed after it was received; receivers may have it unchanged"));
            }
        }
        Ok(warnings)
    }

    /// The command line for the server of a mount.
    fn words(&self, mount: &OnMount) -> Result<Vec<String>> {
        let mut words = vec!["send".to_owned(), format!("--proto={}", self.proto)];
        let flags = [(self.compressed_data, "--compressed-data"), (self.no_data, "--no-data"), (self.force, "--force")];
        words.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| (*flag).to_owned()));
        if let Some(path) = &self.parent {
            words.push(format!("--parent={}", mount.word(path)?));
        }
        for path in &self.clones {
            words.push(format!("--clone-src={}", mount.word(path)?));
        }
        if let Some(token) = &self.resume {
            words.push(format!("--resume={token}"));
        }
        words.extend(["--".to_owned(), "IMAGE".to_owned()]);
        for path in &self.subvolumes {
            words.push(mount.word(path)?);
        }
        Ok(words)
    }

    /// As the server of a mount: writes the stream to the client. Returns warnings, one a line.
    pub(super) fn send_to(&self, volume: &Volume, mut output: impl Write) -> Result<String> {
        let warnings = self.warnings(volume)?;
        self.write(volume, &mut output, None)?;
        Ok(warnings.join("\n"))
    }

    fn write(&self, volume: &Volume, output: &mut impl Write, progress: Option<&Progress>) -> Result<()> {
        let mut before = spinney::Progress::default();
        let mut options = SendOptions {
            version: self.proto,
            compressed_data: self.compressed_data,
            no_data: self.no_data,
            rest_from: self.resume,
            takes_changed: self.force,
        };
        let mut clones: Vec<&Path> = self.clones.iter().map(PathBuf::as_path).collect();
        for path in &self.subvolumes {
            let parent = match &self.parent {
                None if !self.clones.is_empty() => volume.closest_parent(path, &clones)?,
                parent => parent.as_deref(),
            };
            let sending = Sending { subvolume: path, parent, clones: &clones, options: options.clone() };
            let mut last = before;
            let done = send(volume, &sending, output, &mut |now| {
                last = spinney::Progress { bytes: before.bytes.saturating_add(now.bytes), ..before };
                progress.into_iter().for_each(|progress| progress.show(&last));
                ControlFlow::Continue(())
            });
            done.map_err(|error| explain(error, path))?;
            options.rest_from = None;
            before = spinney::Progress { inodes: last.inodes.saturating_add(1), ..last };
            clones.push(path);
        }
        output.flush().context("the stream")
    }
}

/// A file whose old contents are kept until the first write.
struct Replaced {
    file: File,
    is_empty: bool,
}

impl Replaced {
    fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| path.display().to_string())?;
        // Only regular files have a length.
        let is_empty = file.metadata().is_ok_and(|found| !found.is_file());
        Ok(Self { file, is_empty })
    }
}

impl Write for Replaced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_empty {
            self.file.set_len(0)?;
            self.is_empty = true;
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

pub(super) fn explain(error: SendError, path: &Path) -> Error {
    match error {
        SendError::Volume(error) => error.at(path).into(),
        SendError::Writable { path } => Failure::refused(format!(
            "{path}: a subvolume that can be changed; send a read-only snapshot of it, which \
             `spinney subvolume snapshot -r IMAGE {path} SNAPSHOT` makes"
        ))
        .into(),
        error @ SendError::Changed { .. } => {
            Failure::refused(format!("{}: {error}; --force sends it anyway", path.display())).into()
        }
        SendError::Output(error) => Error::from(error).context("the stream"),
        error @ (SendError::OtherPoint { .. }
        | SendError::Stream(spinney::btrfs::stream::Error::OtherStream { .. })) => {
            let text = "send with the parent and the options that the whole stream was sent with";
            Failure::refused(format!("{}: {error}; {text}", path.display())).into()
        }
        error => Failure::new(Status::Unsupported, format!("{}: {error}", path.display())).into(),
    }
}
