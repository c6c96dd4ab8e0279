//! Refuses to copy files under an emulator of system calls (fakeroot, pseudo, fakechroot) whose library is not loaded.
//! `get`, `put` and `target` (a new image with the contents of a directory) call it before they copy.

use anyhow::Result;
use spinney::transfer::unloaded_emulator;

use crate::commands::failure::{Failure, Status};

/// Refuses if the environment names an emulator whose library is not loaded.
///
/// # Errors
/// [`Status::Unsupported`], with the emulator's name.
pub(crate) fn check() -> Result<()> {
    let Some(found) = unloaded_emulator() else { return Ok(()) };
    let (name, library) = (found.name, found.library);
    let text = format!(
        "spinney was started under {name}, but {library} is not loaded, as in a statically linked program: owners and \
         device nodes would be those of the host; use a dynamically linked spinney"
    );
    Err(Failure::new(Status::Unsupported, text).into())
}
