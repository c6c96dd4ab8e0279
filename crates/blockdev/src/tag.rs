//! Describes the purpose of a request (data, metadata, log, ...), for observers of the device. It changes nothing. Set
//! by the code that makes a request, read by `recording`.

use std::cell::Cell;
use std::fmt;

/// The kind of a request's bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Untagged.
    #[default]
    Other,
    /// Contents of files.
    Data,
    /// Metadata of the format.
    Metadata,
    /// The log of fsyncs, which makes them durable before the metadata is.
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

/// The purpose of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tag {
    /// The kind of its bytes.
    pub kind: Kind,
    /// Which copy they are, from 0.
    pub mirror: u32,
}

thread_local! {
    static TAG: Cell<Tag> = const { Cell::new(Tag { kind: Kind::Other, mirror: 0 }) };
}

/// The tag of this thread's requests.
#[must_use]
pub fn tag() -> Tag {
    TAG.get()
}

/// Runs `request` with the given tag.
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
