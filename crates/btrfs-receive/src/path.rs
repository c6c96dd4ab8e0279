//! Checks and splits paths in a stream: names relative to the root of the subvolume, without `.` and `..`. Called by
//! `subvolume` and `receiver`.

/// Limit on a name, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The reason for which a path of a stream is refused.
///
/// To do: do not trust this stream: no sender writes such paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPath {
    /// It begins with a slash.
    #[error("the path is absolute")]
    Absolute,
    /// A required name is missing, or two slashes follow each other, or one is at the end.
    #[error("the path has an empty name in it")]
    EmptyName,
    /// A component is `.` or `..`.
    #[error("the path has `.` or `..` in it")]
    Dots,
    /// A name of it is too long.
    #[error("the path has a name of more than 255 bytes")]
    NameTooLong,
    /// A single name is required.
    #[error("the name of a subvolume has a slash in it")]
    Slash,
    /// A component is a symbolic link or a file instead of a directory.
    #[error("the path leads through something that is not a directory")]
    NotADirectory,
    /// It leads into another subvolume.
    #[error("the path leads into another subvolume")]
    OtherSubvolume,
}

/// The validated names of a path. The empty path is the root and has none.
pub(crate) fn names(path: &[u8]) -> Result<impl Iterator<Item = &[u8]>, BadPath> {
    if path.first() == Some(&b'/') {
        return Err(BadPath::Absolute);
    }
    let split = || path.split(|byte| *byte == b'/').filter(|_| !path.is_empty());
    split().try_for_each(check_name)?;
    Ok(split())
}

/// The directory part of a path, without its last slash, and the name at its end.
pub(crate) fn parent(path: &[u8]) -> Result<(&[u8], &[u8]), BadPath> {
    names(path).map(drop)?;
    let (dir, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default()),
        None => (&b""[..], path),
    };
    check_name(name)?;
    Ok((dir, name))
}

/// Checks the name of a subvolume.
pub(crate) fn subvolume_name(path: &[u8]) -> Result<&[u8], BadPath> {
    let (dir, name) = parent(path)?;
    if dir.is_empty() { Ok(name) } else { Err(BadPath::Slash) }
}

fn check_name(name: &[u8]) -> Result<(), BadPath> {
    match name {
        b"" => Err(BadPath::EmptyName),
        b"." | b".." => Err(BadPath::Dots),
        _ if name.len() > NAME_BYTES_MAX => Err(BadPath::NameTooLong),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_down() {
        let names = |path| names(path).map(|names| names.map(<[u8]>::to_vec).collect::<Vec<_>>());
        assert_eq!(names(b""), Ok(vec![]));
        assert_eq!(names(b"a/bc"), Ok(vec![b"a".to_vec(), b"bc".to_vec()]));
        assert_eq!(names(b"a/..."), Ok(vec![b"a".to_vec(), b"...".to_vec()]));
        let bad: [(&[u8], BadPath); 9] = [
            (b"/", BadPath::Absolute),
            (b"/a", BadPath::Absolute),
            (b"a/", BadPath::EmptyName),
            (b"a//b", BadPath::EmptyName),
            (b".", BadPath::Dots),
            (b"a/./b", BadPath::Dots),
            (b"..", BadPath::Dots),
            (b"a/../../b", BadPath::Dots),
            (&[b'n'; 256], BadPath::NameTooLong),
        ];
        for (path, expected) in bad {
            assert_eq!(names(path), Err(expected), "{path:?}");
            assert_eq!(parent(path), Err(expected), "{path:?}");
            assert_eq!(subvolume_name(path), Err(expected), "{path:?}");
        }
    }

    #[test]
    fn the_root_has_no_parent() {
        assert_eq!(parent(b""), Err(BadPath::EmptyName));
        assert_eq!(parent(b"a"), Ok((&b""[..], &b"a"[..])));
        assert_eq!(parent(b"a/b/c"), Ok((&b"a/b"[..], &b"c"[..])));
        assert_eq!(subvolume_name(b"a/b"), Err(BadPath::Slash));
        assert_eq!(subvolume_name(b"a"), Ok(&b"a"[..]));
    }
}
