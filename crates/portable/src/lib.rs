//! Gives every system what the standard library has on Unix alone: the bytes of names, reads and writes at a position
//! of a file, and directories that are made durable.
//!
//! On Unix these are the traits of the standard library. On Windows the names of the host are text, while those of a
//! volume are bytes. There a name that is no UTF-8 becomes one with unpaired surrogates: it is shown, and differs from
//! all others, but it no longer has the bytes of the volume. [`is_exact`] tells such names, and the callers that look
//! up or make names refuse them.
//!
//! Failure: the errors of the host. Callers: all crates that turn paths into names of a volume, or read parts of files.

#[cfg(windows)]
mod windows;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::path::Path;

#[cfg(unix)]
pub use std::os::unix::{
    ffi::{OsStrExt, OsStringExt},
    fs::FileExt,
};
#[cfg(windows)]
pub use windows::{FileExt, OsStrExt, OsStringExt};

/// Whether [`OsStrExt::as_bytes`] gives the bytes that a name has in a volume. Always on Unix; on Windows only of text.
#[must_use]
pub fn is_exact(name: &OsStr) -> bool {
    cfg!(unix) || name.to_str().is_some()
}

/// Whether this byte of a path of the host separates names.
#[must_use]
pub const fn is_separator(byte: u8) -> bool {
    byte == b'/' || (cfg!(windows) && byte == b'\\')
}

/// A path of the host as one of a volume, whose names `/` separates; `None` for one with names that are not exact.
#[must_use]
pub fn volume_path(path: &Path) -> Option<Cow<'_, [u8]>> {
    is_exact(path.as_os_str()).then(|| with_slashes(path.as_os_str().as_bytes()))
}

/// The bytes of a path of the host, with `/` for every separator.
#[must_use]
pub fn with_slashes(path: &[u8]) -> Cow<'_, [u8]> {
    if cfg!(unix) {
        return Cow::Borrowed(path);
    }
    path.iter().map(|byte| if is_separator(*byte) { b'/' } else { *byte }).collect()
}

/// Makes the names in a directory of the host durable. Windows has no call for it: it keeps a log of names.
///
/// # Errors
/// Those of the host.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) { std::fs::File::open(dir)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn names_have_their_bytes() {
        for bytes in [&b""[..], b"plain", "\u{fc}ber/\u{1f600}".as_bytes()] {
            let name = OsString::from_vec(bytes.to_vec());
            assert_eq!((name.as_bytes(), OsStr::from_bytes(bytes)), (bytes, name.as_os_str()));
            assert!(is_exact(&name));
            assert_eq!(name.into_vec(), bytes);
        }
        let names: Vec<OsString> = [b"a\xff", b"a\xfe"].map(|bytes| OsString::from_vec(bytes.to_vec())).into();
        assert_ne!(names[0], names[1]);
        assert_eq!(names.iter().all(|name| is_exact(name)), cfg!(unix));
    }

    #[test]
    fn paths_become_those_of_a_volume() {
        let path = Path::new("a").join("b").join("c");
        assert_eq!(volume_path(&path).as_deref(), Some(&b"a/b/c"[..]));
        assert_eq!(volume_path(Path::new("a\\b")).as_deref(), Some(if cfg!(unix) { b"a\\b" } else { &b"a/b"[..] }));
    }

    #[test]
    fn a_file_is_written_and_read_at_positions() {
        let path = std::env::temp_dir().join(format!("spinney-portable-{}", std::process::id()));
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(b"later", 10).unwrap();
        file.write_all_at(b"first", 0).unwrap();
        let mut read = [0; 15];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"first\0\0\0\0\0later");
        assert_eq!(file.read_at(&mut read, 12).unwrap(), 3);
        assert_eq!(file.read_at(&mut read, 99).unwrap(), 0);
        assert!(file.read_exact_at(&mut read, 1).is_err());
        drop(file);
        std::fs::remove_file(path).unwrap();
    }
}
