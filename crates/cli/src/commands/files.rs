//! Defines the arguments of commands that work on files, and finds these files in a volume. `defrag` and `dedupe` use
//! it.

use std::path::{Path, PathBuf};
use std::slice;

use anyhow::Result;
use clap::Args;
use spinney::vfs::Volume;

use super::failure::Failure;
use super::failures::Failures;

/// Paths of files.
#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    /// Files in the image
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Also all files below directories that are in the same subvolume
    #[arg(short, long)]
    recursive: bool,
}

impl FilesArgs {
    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Refuses paths of the wrong kind.
    ///
    /// # Errors
    /// For a directory without `--recursive`, and for paths that are neither directory nor file.
    pub(crate) fn check_kind(&self, path: &Path, is_file: bool, is_dir: bool) -> Result<()> {
        let path = path.display();
        match (is_file, is_dir) {
            (true, _) => Ok(()),
            (_, true) if self.recursive => Ok(()),
            (_, true) => Err(Failure::refused(format!("{path}: a directory (-r includes its contents)")).into()),
            _ => Err(Failure::refused(format!("{path}: no file, and no directory")).into()),
        }
    }
}

/// Paths in an image, with the sizes of the files.
#[derive(Debug, Default)]
pub(crate) struct Files(Vec<(PathBuf, u64)>);

impl Files {
    /// The files that the arguments name. Directories below them that cannot be read are recorded and skipped.
    ///
    /// # Errors
    /// For an argument that is no file or directory, or that cannot be read.
    pub(crate) fn find(volume: &Volume, args: &FilesArgs, failures: &Failures) -> Result<Self> {
        let mut files = Self::default();
        for path in &args.paths {
            let found = volume.symlink_metadata(path)?;
            args.check_kind(path, found.is_file(), found.is_dir())?;
            match found.is_file() {
                true => files.add(path.clone(), found.size),
                false => files.add_below(volume, path, found.home.subvolume, failures)?,
            }
        }
        Ok(files)
    }

    fn add_below(&mut self, volume: &Volume, dir: &Path, subvolume: u64, failures: &Failures) -> Result<()> {
        let mut dirs = vec![dir.to_owned()];
        while let Some(dir) = dirs.pop() {
            let listed = volume.read_dir(&dir).and_then(Iterator::collect::<spinney::vfs::Result<Vec<_>>>);
            for entry in failures.note(listed.map_err(Into::into), false)?.unwrap_or_default() {
                let path = dir.join(entry.file_name());
                let found = volume.symlink_metadata(&path).map_err(Into::into);
                let Some(found) = failures.note(found, false)? else { continue };
                if found.home.subvolume != subvolume {
                    continue;
                }
                if found.is_dir() {
                    dirs.push(path);
                } else if found.is_file() {
                    self.0.push((path, found.size));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, path: PathBuf, size: u64) {
        self.0.push((path, size));
    }

    pub(crate) fn get(&self, number: usize) -> Option<(&Path, u64)> {
        self.0.get(number).map(|(path, size)| (path.as_path(), *size))
    }

    pub(crate) fn iter(&self) -> slice::Iter<'_, (PathBuf, u64)> {
        self.0.iter()
    }

    /// Sum of the sizes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, size)| sum.saturating_add(*size))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
