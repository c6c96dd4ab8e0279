//! `spinney convert` writes an image in another form. Called by `args`.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use clap::Args;
use spinney::Look;
use spinney::disk::containers::{Form, Options};

use crate::commands::failure::{Failure, Status};
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};
use crate::delivery::Delivery;

/// Bytes at the begin of an image in which other forms are recognised.
const HEAD_BYTES: u64 = 4096;

/// Write a raw image of a disk in another form: qcow2, Android sparse, zstd, or raw
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney convert site.img site.qcow2          for a virtual machine\n",
    "  spinney convert data.img data.simg           for fastboot\n",
    "  spinney convert site.img site.img.zst        compressed, in frames that can be found\n",
    "  spinney convert site.img - | ssh host 'cat > /dev/vdb'"
))]
pub(crate) struct Convert {
    /// Image file in the raw form
    image: PathBuf,
    /// New file, whose end names the form (.qcow2, .simg, .zst; raw for others); - for the standard output
    output: PathBuf,
    /// Form of the new file
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// Overwrite an existing file
    #[arg(short, long)]
    force: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
}

impl Convert {
    /// Runs the command.
    ///
    /// # Errors
    /// Those of reading the image and of the delivery.
    pub(crate) fn run(&self, _out: &mut Output) -> Result<()> {
        let named = || self.image.display().to_string();
        let image = File::open(&self.image).with_context(named)?;
        let size_bytes = image.metadata().with_context(named)?.len();
        refuse_containers(&image, size_bytes).with_context(named)?;
        let delivery = Delivery::new(&self.output, self.form, self.force)?;
        let progress = Arc::new(Progress::default());
        progress.add_total(size_bytes);
        let _bar = Bar::new(&progress, !self.quiet);
        let done = |bytes| progress.bytes.store(bytes, Ordering::Relaxed);
        let options = Options { progress: &done, ..Options::default() };
        delivery.deliver_from(&image, size_bytes, &options)
    }
}

/// Refuses an image that is in another form than the raw one already.
fn refuse_containers(image: &File, size_bytes: u64) -> Result<()> {
    let mut head = vec![0; usize::try_from(size_bytes.min(HEAD_BYTES))?];
    image.read_exact_at(&mut head, 0)?;
    match spinney::magic::look(&head) {
        Look::Like(kind) => {
            Err(Failure::new(Status::Unsupported, format!("expected a raw image, found {kind}")).into())
        }
        _ => Ok(()),
    }
}
