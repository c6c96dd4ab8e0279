//! Delivers an image that is made in a file without a name, when it is finished: in another form (qcow2, Android
//! sparse, zstd), on the standard output, or under its name. Until then no file has the name, so that a failure or a
//! kill leaves none that looks whole. Called by `mkfs`, `build` and `convert`.

use std::fs::File;
use std::io::{IsTerminal as _, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use spinney::blockdev::Locator;
use spinney::disk::containers::{self, Form, Options, Output};

use crate::commands::failure::Failure;
use crate::commands::unnamed::{self, Unnamed};

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

    /// True for a target that `mkfs` has to deliver to, since it cannot be made in place; `is_bare` for a format that
    /// would look whole before it has its contents.
    pub(crate) fn is_needed(path: &Path, is_bare: bool) -> bool {
        let is_whole_file = Locator::parse(path).is_ok_and(|place| place.path() == Some(path));
        let has_form = is_whole_file && Form::of_name(path) != Form::Raw;
        path == STDOUT
            || (is_whole_file && is_bare && !path.exists())
            || (has_form && (!path.exists() || path.is_file()))
    }

    /// A file without a name beside the target, of 0 bytes.
    ///
    /// # Errors
    /// Those of the host.
    pub(crate) fn draft(&self) -> Result<Unnamed> {
        Unnamed::beside(&self.path.clone().unwrap_or_else(|| std::env::temp_dir().join(STDOUT)))
    }

    /// Delivers the finished image, whose length is the file's.
    ///
    /// # Errors
    /// Those of the host and of the form; `Refused` if the name was taken meanwhile.
    pub(crate) fn deliver(&self, draft: &Unnamed, options: &Options<'_>) -> Result<()> {
        match &self.path {
            Some(path) if self.form == Form::Raw => draft.name(path, self.replaces),
            _ => self.deliver_from(draft.file(), draft.file().metadata()?.len(), options),
        }
    }

    /// Delivers a copy of `image`, which has `size_bytes` bytes.
    ///
    /// # Errors
    /// As [`Delivery::deliver`].
    pub(crate) fn deliver_from(&self, image: &File, size_bytes: u64, options: &Options<'_>) -> Result<()> {
        let Some(path) = &self.path else {
            let written =
                containers::write(image, size_bytes, self.form, Output::Stream(&mut stdout().lock()), options);
            return unnamed::whole(written.map(drop).map_err(anyhow::Error::from));
        };
        let finished = Unnamed::beside(path)?;
        let written = containers::write(image, size_bytes, self.form, Output::File(finished.file()), options);
        written.with_context(|| path.display().to_string())?;
        finished.name(path, self.replaces)
    }
}
