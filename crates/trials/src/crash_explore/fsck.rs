//! Passes crash states of f2fs through `fsck.f2fs`, as they are and after Spinney opened them for writing. Called by
//! `crash_explore`, as a witness of `crash_explorer`.

use crate::formats::Kind;
use anyhow::{Context, Result, bail};
use blockdev::Device;
use crash_explorer::{Access, Form, Format as _, Judgement, Witness, store_device};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A witness that checks the image.
#[derive(Debug)]
struct Fsck {
    folder: tempfile::TempDir,
    /// Directory for the states.
    keep: Option<PathBuf>,
}

/// `None` if `fsck.f2fs` is not installed. Checked images are kept in `keep`.
pub(super) fn witness(keep: Option<&Path>) -> Result<Option<Arc<dyn Witness>>> {
    if Command::new("fsck.f2fs").arg("-V").output().is_err() {
        eprintln!("fsck.f2fs is not installed (Debian: apt-get install f2fs-tools): no state is judged by it");
        return Ok(None);
    }
    let parent = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let folder = tempfile::Builder::new().prefix("spinney-fsck-").tempdir_in(parent)?;
    Ok(Some(Arc::new(Fsck { folder, keep: keep.map(Path::to_owned) })))
}

impl Witness for Fsck {
    fn judge(&self, state: &str, device: Arc<dyn Device>) -> Result<Judgement> {
        let name: String =
            state.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
        let image = self.folder.path().join(name);
        store_device(&device, &image)?;
        if let Some(keep) = &self.keep {
            std::fs::create_dir_all(keep)?;
            let kept = keep.join(image.file_name().unwrap_or_default()).with_extension("img");
            crate::system::copy_sparse(&image, &kept)?;
        }
        check(&image).context("the state as it is")?;
        let volume = f2fs_crash::F2fs.open(Form::Usual, Arc::clone(&device), Access::ReadWrite)?;
        volume.sync()?;
        drop(volume);
        store_device(&device, &image)?;
        check(&image).context("after it was opened for writing")?;
        std::fs::remove_file(&image)?;
        Ok(Judgement::Agrees)
    }
}

fn check(image: &Path) -> Result<()> {
    match Kind::F2fs.check(image)? {
        None => Ok(()),
        Some(problem) => bail!("fsck.f2fs: {problem}"),
    }
}
