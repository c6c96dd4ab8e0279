//! Checks the name of a backup, which begins the names of its states. Used by the commands, `state` and `directory`.

use std::path::Path;

use crate::stamp::Stamp;

/// Longest name of a backup in bytes: the name of a file also has the time and the UUID.
const NAME_BYTES_MAX: usize = 100;

/// The name of a backup, as a part of the names of its snapshots and files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// # Errors
    /// For a text with other bytes than letters, digits and `-_.+@`, and for one that begins with a dot.
    pub fn new(text: &str) -> Result<Self, NotName> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+@".contains(&byte);
        let is_name = !text.is_empty() && !text.starts_with('.') && text.len() <= NAME_BYTES_MAX;
        if is_name && text.bytes().all(is_allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(NotName(text.to_owned()))
    }

    /// The name after the subvolume at `path`; `root` for the root.
    ///
    /// # Errors
    /// As [`Name::new`].
    pub fn of_path(path: &Path) -> Result<Self, NotName> {
        Self::new(&path.file_name().map_or("root".into(), |name| name.to_string_lossy()))
    }

    /// The name.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The name of a state.
    pub(crate) fn at(&self, stamp: Stamp) -> String {
        format!("{}.{stamp}", self.0)
    }
}

/// The text is no [`Name`].
///
/// To do: use letters, digits and `-_.+@`, without a dot in front.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: a name of backups has 1 to {NAME_BYTES_MAX} letters, digits and any of - _ . + @")]
pub struct NotName(String);
