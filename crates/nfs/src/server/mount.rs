//! The MOUNT protocol: MNT returns the handle of the exported directory, or of a directory below it.

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
            // The server keeps no list of clients, so the list of mounts is empty.
            MountArguments::Dump => out.bool(false),
            MountArguments::Export => {
                out.bool(true);
                out.opaque(EXPORT);
                // Empty list of groups: the export is open to all machines.
                out.bool(false);
                out.bool(false);
            }
            MountArguments::Null | MountArguments::Umnt { .. } | MountArguments::UmntAll => {}
        }
    }

    /// Returns the handle of a directory. The user needs search permission on all directories of the path, as in a
    /// mount of the whole export.
    fn mounted(&self, path: &[u8]) -> Outcome<Vec<u8>> {
        if path.contains(&0) {
            return Err(Status::INVAL);
        }
        let path = if path.is_empty() { EXPORT } else { path };
        // Resolved over the view: it treats the exported directory as the root, also for symbolic links.
        let found = self.hold(resolve(&self.view, path, Follow::Last).map_err(mount_status)?);
        if !found.attr.is_dir() {
            return Err(Status::NOTDIR);
        }
        Ok(self.handle_of(self.view.real(found.node), &found.attr))
    }
}

/// `mountstat3` is a subset of `nfsstat3`, with the same numbers.
fn mount_status(error: vfs::Error) -> Status {
    match Status::from(error) {
        Status::STALE => Status::NOENT,
        Status::NXIO | Status::JUKEBOX => Status::IO,
        status => status,
    }
}
