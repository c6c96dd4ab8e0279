//! Delivers an image that is made in a file without a name, when it is finished: in another form (qcow2, Android sparse,
//! zstd), on the standard output, or under its name. Until then no file has the name, so that a failure or a kill leaves
//! none that looks whole. Called by `mkfs`, `build` and `convert`.

use std::fs::File;
use std::io::{IsTerminal as _, stdout};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, CWD};
use spinney::disk::containers::{self, Form, Options, Output};
use spinney::transfer::path_of;

use crate::commands::failure::Failure;

/// Means the standard output.
const STDOUT: &str = "-";

/// Where an image goes, and in which form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// The file; `None` for the standard output.
    path: Option<PathBuf>,
    pub(crate) form: Form,
    /// An existing file is replaced.
    replaces: bool,
}

/// An image that is being made.
#[derive(Debug)]
pub(crate) struct Draft {
    file: File,
}

impl Delivery {
    /// The delivery to `path`, whose end names the form unless `form` does. Nothing is written.
    ///
    /// # Errors
    /// `Refused` for a file that exists and may not be replaced, `Usage` for the standard output if it is a terminal.
    pub(crate) fn new(path: &Path, form: Option<Form>, replaces: bool) -> Result<Self> {
        let form = form.unwrap_or_else(|| Form::of_name(path));
        if path == STDOUT {
            if stdout().is_terminal() {
                return Err(Failure::usage("-: an image is not written to a terminal").into());
            }
            return Ok(Self { path: None, form, replaces });
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => {
                Err(Failure::refused(format!("{}: exists, and is no regular file", path.display())).into())
            }
            Ok(found) if found.len() > 0 && !replaces => {
                Err(Failure::refused(format!("{}: exists; --force overwrites it", path.display())).into())
            }
            // An empty file holds nothing that could be lost.
            Ok(_) => Ok(Self { path: Some(path.to_owned()), form, replaces: true }),
            Err(_) => Ok(Self { path: Some(path.to_owned()), form, replaces }),
        }
    }

    /// True for a target that `mkfs` has to deliver to, since it cannot be made in place.
    pub(crate) fn is_needed(path: &Path) -> bool {
        path == STDOUT || (Form::of_name(path) != Form::Raw && !path.exists())
    }

    /// A file without a name beside the target, of 0 bytes.
    ///
    /// # Errors
    /// Those of the host.
    pub(crate) fn draft(&self) -> Result<Draft> {
        let beside = self.path.clone().unwrap_or_else(|| std::env::temp_dir().join(STDOUT));
        Draft::beside(&beside)
    }

    /// Delivers the finished image, whose length is the file's.
    ///
    /// # Errors
    /// Those of the host and of the form; `Refused` if the name was taken meanwhile.
    pub(crate) fn deliver(&self, draft: &Draft, options: &Options<'_>) -> Result<()> {
        let Some(path) = self.path.as_ref().filter(|_| self.form == Form::Raw) else {
            return self.deliver_from(&draft.file, draft.file.metadata()?.len(), options);
        };
        let named = || path.display().to_string();
        draft.file.sync_all().with_context(named)?;
        self.name(&draft.path(), path).with_context(named)
    }

    /// Delivers a copy of `image`, which has `size_bytes` bytes.
    ///
    /// # Errors
    /// As [`Delivery::deliver`].
    pub(crate) fn deliver_from(&self, image: &File, size_bytes: u64, options: &Options<'_>) -> Result<()> {
        let Some(path) = &self.path else {
            containers::write(image, size_bytes, self.form, Output::Stream(&mut stdout().lock()), options)?;
            return Ok(());
        };
        let named = || path.display().to_string();
        let finished = tempfile::tempfile_in(dir_of(path)).with_context(named)?;
        containers::write(image, size_bytes, self.form, Output::File(&finished), options).with_context(named)?;
        finished.sync_all().with_context(named)?;
        self.name(&path_of(&finished.as_fd()), path).with_context(named)
    }

    /// Gives the file without a name its name. One that is to be replaced keeps the name until the new one has it.
    fn name(&self, nameless: &Path, path: &Path) -> Result<()> {
        let link = |to: &Path| rustix::fs::linkat(CWD, nameless, CWD, to, AtFlags::SYMLINK_FOLLOW);
        if !self.replaces {
            return Ok(link(path)?);
        }
        // A name in a directory of our own, which nobody else can have taken.
        let between = tempfile::tempdir_in(dir_of(path))?;
        let new = between.path().join("image");
        link(&new)?;
        Ok(std::fs::rename(&new, path)?)
    }
}

impl Draft {
    /// A file without a name in the directory of `path`.
    ///
    /// # Errors
    /// Those of the host.
    pub(crate) fn beside(path: &Path) -> Result<Self> {
        let dir = dir_of(path);
        Ok(Self { file: tempfile::tempfile_in(&dir).with_context(|| dir.display().to_string())? })
    }

    /// A path that leads to the file as long as this lives.
    pub(crate) fn path(&self) -> PathBuf {
        path_of(&self.file.as_fd())
    }

    /// The file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

fn dir_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}
