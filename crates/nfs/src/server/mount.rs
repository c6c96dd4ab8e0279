//! MOUNT: gives out the handle of the exported directory, or of a directory below it.

use std::ops::Deref;

use vfs::file_system::Follow;
use vfs::resolve;

use super::session::{Outcome, Session};
use crate::wire::{MountArguments, Status, Writer, flavor};

/// The name of the export.
const EXPORT: &[u8] = b"/";

/// Procedures of MOUNT.
pub(super) struct Mounts<'s, 'a>(pub(super) &'s Session<'a>);

impl<'a> Deref for Mounts<'_, 'a> {
    type Target = Session<'a>;

    fn deref(&self) -> &Session<'a> {
        self.0
    }
}

impl Mounts<'_, '_> {
    pub(super) fn answer(&self, arguments: &MountArguments<'_>, out: &mut Writer) {
        match arguments {
            MountArguments::Mnt { path } => match self.mounted(path) {
                Ok(handle) => {
                    out.u32(Status::OK.0);
                    out.opaque(&handle);
                    out.u32(2);
                    out.u32(flavor::AUTH_SYS);
                    out.u32(flavor::AUTH_NONE);
                }
                Err(status) => out.u32(status.0),
            },
            // No list of clients is kept.
            MountArguments::Dump => out.bool(false),
            MountArguments::Export => {
                out.bool(true);
                out.opaque(EXPORT);
                // For no group of machines in particular.
                out.bool(false);
                out.bool(false);
            }
            MountArguments::Null | MountArguments::Umnt { .. } | MountArguments::UmntAll => {}
        }
    }

    /// The handle of a directory. The user needs permission on the way to it, as in a mount of the whole export.
    fn mounted(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        if path.contains(&0) {
            return Err(Status::INVAL);
        }
        let path = if path.is_empty() { EXPORT } else { path };
        // Only `resolve` over the view stays below the export: links too are resolved there.
        let found = self.hold(resolve(&self.view, path, Follow::Last).map_err(mount_status)?);
        if !found.attr.is_dir() {
            return Err(Status::NOTDIR);
        }
        Ok(self.handle_of(self.view.real(found.node), &found.attr))
    }
}

/// `mountstat3` has fewer numbers, with the same meaning.
fn mount_status(error: vfs::Error) -> Status {
    match Status::from(error) {
        Status::STALE => Status::NOENT,
        Status::NXIO | Status::JUKEBOX => Status::IO,
        status => status,
    }
}
