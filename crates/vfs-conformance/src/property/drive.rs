//! Does one operation on a volume. Called by `run`, and by `crash` of `testkit`.

use crate::model::Operation;
use std::path::Path;
use vfs::{File, FileOptions, Layout, Result, Times, Volume};

/// Does `operation` on `volume`.
///
/// # Errors
/// The volume's own.
pub fn drive(volume: &Volume, operation: &Operation) -> Result<()> {
    use Operation as O;
    match operation {
        O::Create { path } => FileOptions::new().write(true).create_new(true).open(volume, path).map(drop),
        O::CreateDir { path } => volume.create_dir(path),
        O::Symlink { target, path } => volume.symlink(target, path),
        O::Node { path, kind, rdev } => volume.mknod(path, *kind, 0o644, *rdev),
        O::Link { original, path } => volume.hard_link(original, path),
        O::Rename { from, to, flags } => volume.rename_with(from, to, *flags),
        O::Remove { path } => volume.remove_file(path),
        O::RemoveDir { path } => volume.remove_dir(path),
        O::RemoveAll { path } => volume.remove_dir_all(path),
        O::Write { path, offset, .. } => open(volume, path)?.write_at(&operation.data(), *offset),
        O::SetLen { path, len } => open(volume, path)?.set_len(*len),
        O::Allocate { path, mode, offset, len } => open(volume, path)?.allocate(*mode, *offset, *len),
        O::Reflink { source, source_offset, path, offset, len } => {
            let source = FileOptions::new().read(true).open(volume, source)?;
            open(volume, path)?.reflink(&source, *source_offset, *offset, *len)
        }
        O::Defragment { path, compression } => {
            let wanted = Layout { compression: *compression, ..Layout::default() };
            volume.defragment(path, &wanted).map(drop)
        }
        O::SetMode { path, mode } => volume.set_permissions(path, *mode),
        O::SetOwner { path, uid, gid } => volume.set_owner(path, Some(*uid), Some(*gid)),
        O::SetTime { path, mtime } => volume.set_times(path, &Times { mtime: Some(*mtime), ..Times::default() }),
        O::SetXattr { path, name, mode, .. } => volume.set_xattr(path, name, operation.data(), *mode),
        O::RemoveXattr { path, name } => volume.remove_xattr(path, name),
        O::CreateSubvolume { path } => volume.create_subvolume(path),
        O::Snapshot { source, path, mode } => volume.snapshot(source, path, *mode),
        O::DeleteSubvolume { path } => volume.delete_subvolume(path),
    }
}

fn open(volume: &Volume, path: &Path) -> Result<File> {
    FileOptions::new().read(true).write(true).open(volume, path)
}
