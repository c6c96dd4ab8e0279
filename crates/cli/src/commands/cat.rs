//! `spinney cat` writes files of an image or a mount to the standard output. Called by `args`.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use rustix::fs::{OFlags, SeekFrom};
use spinney::transfer::{VolumeFile, copy_data};
use spinney::vfs::{Errno, Error};

use super::failure::Failure;
use super::image::ReadArgs;
use super::output::{Output, check_open};

/// Write files to the standard output
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney cat site.img:/etc/hostname\n",
    "  spinney cat site.img /etc/hostname\n",
    "  spinney cat site.img /disk.raw > disk.raw     (holes stay holes)"
))]
pub(crate) struct Cat {
    #[command(flatten)]
    image: ReadArgs,
    /// Files in the image, one after the other
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Write to a terminal even data that is not text
    #[arg(short, long)]
    force: bool,
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Cat {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let volume = self.image.open_read_only()?;
        // Later writes bypass the program's buffer, so that they can leave holes.
        out.finish()?;
        check_open()?;
        let mut sink = Sink::new();
        let mut buffer = vec![0; VolumeFile::PIECE_BYTES];
        for path in &self.paths {
            let metadata = volume.metadata(path)?;
            if metadata.is_dir() {
                return Err(Error::from(Errno::EISDIR).at(path).into());
            }
            let file = VolumeFile::new(&volume, path);
            let mut end = 0;
            copy_data(&file, metadata.size, &mut buffer, |at, part| {
                self.check_terminal(part)?;
                sink.skip(at - end)?;
                end = at + u64::try_from(part.len())?;
                sink.write(part)
            })?;
            sink.skip(metadata.size.saturating_sub(end))?;
        }
        sink.finish()
    }

    /// Refuses to write control sequences to a terminal.
    fn check_terminal(&self, part: &[u8]) -> Result<()> {
        let is_harmful = |byte: &u8| byte.is_ascii_control() && !byte.is_ascii_whitespace();
        if !self.force && std::io::stdout().is_terminal() && part.iter().any(is_harmful) {
            let text = "not text: redirect the output, or use --force";
            return Err(Failure::refused(text).into());
        }
        Ok(())
    }
}

/// The standard output. Where it is a regular file that is not appended to, holes are skipped.
struct Sink {
    out: std::io::Stdout,
    can_skip: bool,
    /// True if it ends in a hole that the length does not yet cover.
    has_open_hole: bool,
}

impl Sink {
    fn new() -> Self {
        let out = std::io::stdout();
        let is_regular = rustix::fs::fstat(&out)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile);
        let is_appending = rustix::fs::fcntl_getfl(&out).is_ok_and(|flags| flags.contains(OFlags::APPEND));
        Self { out, can_skip: is_regular && !is_appending, has_open_hole: false }
    }

    fn write(&mut self, part: &[u8]) -> Result<()> {
        self.has_open_hole = false;
        Ok(self.out.lock().write_all(part)?)
    }

    fn skip(&mut self, mut count: u64) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        if self.can_skip {
            self.out.lock().flush()?;
            let count = i64::try_from(count).context("a hole that large")?;
            rustix::fs::seek(&self.out, SeekFrom::Current(count))?;
            self.has_open_hole = true;
            return Ok(());
        }
        while count > 0 {
            let part = usize::try_from(count).unwrap_or(usize::MAX).min(ZEROS.len());
            self.out.lock().write_all(ZEROS.get(..part).unwrap_or_default())?;
            count -= u64::try_from(part)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        self.out.lock().flush()?;
        if self.has_open_hole {
            let end = rustix::fs::tell(&self.out)?;
            let is_short = u64::try_from(rustix::fs::fstat(&self.out)?.st_size)? < end;
            if is_short {
                rustix::fs::ftruncate(&self.out, end)?;
            }
        }
        Ok(())
    }
}
