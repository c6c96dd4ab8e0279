//! What a request is for: said by who makes it, read by who watches the device. It changes nothing.

use std::cell::Cell;
use std::fmt;

/// What the bytes of a request are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Nobody said.
    #[default]
    Other,
    /// Contents of files.
    Data,
    /// What the format keeps about them.
    Metadata,
    /// What makes syncs durable before the metadata is.
    Log,
    /// Where everything begins.
    Superblock,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Other, Self::Data, Self::Metadata, Self::Log, Self::Superblock];

    /// Its name in a recording.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Data => "data",
            Self::Metadata => "metadata",
            Self::Log => "log",
            Self::Superblock => "superblock",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a request is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tag {
    /// What its bytes are.
    pub kind: Kind,
    /// Which copy they are, from 0.
    pub mirror: u32,
}

thread_local! {
    static TAG: Cell<Tag> = const { Cell::new(Tag { kind: Kind::Other, mirror: 0 }) };
}

/// What the requests of this thread are for.
#[must_use]
pub fn tag() -> Tag {
    TAG.get()
}

/// Runs `request`, which is for what `tag` says.
pub fn tagged<R>(tag: Tag, request: impl FnOnce() -> R) -> R {
    let before = TAG.replace(tag);
    let answer = request();
    TAG.set(before);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_nest_and_names_are_read_back() {
        let log = Tag { kind: Kind::Log, mirror: 1 };
        let inside = tagged(log, || {
            tagged(Tag::default(), || assert_eq!(tag(), Tag::default()));
            tag()
        });
        assert_eq!((inside, tag()), (log, Tag::default()));
        assert!(Kind::ALL.into_iter().all(|kind| Kind::from_name(kind.name()) == Some(kind)));
        assert_eq!(Kind::from_name("logs"), None);
    }
}
