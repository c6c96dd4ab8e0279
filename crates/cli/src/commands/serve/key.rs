//! The secret of the file handles of `serve nfs`: random bytes in a file of the user, made at the first use, so that
//! clients keep their handles when the server is started again.
//!
//! Failure: a file that is not whole, or that other users can read, is refused. Without a home directory the secret
//! lasts as long as the server, and that is said. Caller: `nfs`.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::OFlags;
use rustix::rand::GetRandomFlags;
use spinney::nfs::KEY_BYTES;

use crate::commands::failure::Failure;
use crate::commands::output;

/// Permissions of the file.
const MODE: u32 = 0o600;
const OTHERS: u32 = 0o077;

/// The secret in the file at `path`, or in the user's own one.
///
/// # Errors
/// Errors of the operating system; `refused` for a file that cannot be trusted.
pub(super) fn read_or_make(path: Option<&Path>) -> Result<[u8; KEY_BYTES]> {
    let Some(path) = path.map(Path::to_owned).or_else(own_path) else {
        output::warn("clients have to mount again when this server is started again: no HOME is set (see --key)");
        return random();
    };
    let found = read(&path).or_else(|error| match error.downcast_ref::<std::io::Error>() {
        Some(cause) if cause.kind() == ErrorKind::NotFound => make(&path).and_then(|()| read(&path)),
        _ => Err(error),
    });
    found.with_context(|| path.display().to_string())
}

/// `$XDG_STATE_HOME/spinney/nfs.key`.
fn own_path() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(base.join("spinney").join("nfs.key"))
}

fn random() -> Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    let mut left = key.as_mut_slice();
    while !left.is_empty() {
        let count = rustix::rand::getrandom(&mut *left, GetRandomFlags::empty())?;
        left = left.get_mut(count..).unwrap_or_default();
    }
    Ok(key)
}

fn read(path: &Path) -> Result<[u8; KEY_BYTES]> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let facts = file.metadata()?;
    let user = rustix::process::geteuid().as_raw();
    if !facts.is_file() || facts.mode() & OTHERS != 0 || (facts.uid() != user && facts.uid() != 0) {
        let text = "expected a file of this user that others cannot read (mode 0600): who knows it can make handles";
        return Err(Failure::refused(text).into());
    }
    let mut key = [0; KEY_BYTES];
    let is_whole = facts.size() == u64::try_from(KEY_BYTES)?;
    file.read_exact(&mut key).map_err(|_| ()).ok().filter(|()| is_whole).ok_or_else(|| {
        Failure::refused(format!("expected {KEY_BYTES} random bytes; remove it, and clients have to mount again"))
    })?;
    Ok(key)
}

/// Makes the file, whole, unless another server does it at the same time.
fn make(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let partial = path.with_extension(format!("{}.new", std::process::id()));
    let made = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&partial)?;
        file.write_all(&random()?)?;
        file.sync_all()?;
        match std::fs::hard_link(&partial, path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
            _ => Ok(()),
        }
    })();
    // Only the other name stays.
    let _ = std::fs::remove_file(&partial);
    made
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_secret_is_made_once_and_trusted_only_where_it_is_ones_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/nfs.key");
        let key = read_or_make(Some(&path)).unwrap();
        assert_eq!(read_or_make(Some(&path)).unwrap(), key);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(format!("{:#}", read_or_make(Some(&path)).unwrap_err()).contains("mode 0600"));
        std::fs::remove_file(&path).unwrap();
        OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path).unwrap();
        assert!(format!("{:#}", read_or_make(Some(&path)).unwrap_err()).contains("32 random bytes"));
    }
}
