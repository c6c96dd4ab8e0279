//! The operations of a workload, and how they are written down.

use std::fmt;

/// How bytes get into a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteHow {
    /// `write`: into the cache.
    Buffered,
    /// `dwrite`: into the cache, and from there to the device at once. Nothing is promised, as with `O_DIRECT`.
    Direct,
    /// `mmapwrite`: over bytes that are there; without a mount, a write of that range.
    Mapped,
}

/// What `falloc` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// Space for a range; the file grows.
    Grow,
    /// Space for a range; the size stays.
    KeepSize,
    /// A hole; the size stays.
    Punch,
    /// Zeros that have space; the file grows.
    Zero,
}

/// One operation. Paths are below the top of the volume, without a slash in front.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant's sentence speaks of its fields")]
pub enum Step {
    /// An empty file, unless there is one.
    Create { path: String },
    /// A directory.
    CreateDir { path: String },
    /// `len` bytes that nobody else writes.
    Write { how: WriteHow, path: String, offset: u64, len: u64 },
    /// Reserves, punches or zeroes.
    Allocate { reserve: Reserve, path: String, offset: u64, len: u64 },
    /// One more name.
    Link { original: String, path: String },
    /// A symbolic link.
    Symlink { target: String, path: String },
    /// Removes a name that is no directory.
    Remove { path: String },
    /// Removes an empty directory.
    RemoveDir { path: String },
    /// Renames, over what is there.
    Rename { from: String, to: String },
    /// Cuts or extends.
    Truncate { path: String, len: u64 },
    /// Sets an extended attribute.
    SetXattr { path: String, name: String, value: String },
    /// Removes one.
    RemoveXattr { path: String, name: String },
    /// Makes a file or directory durable.
    Fsync { path: String },
    /// Makes a file's data durable.
    Fdatasync { path: String },
    /// Makes everything durable.
    Sync,
}

impl Step {
    /// True when it promises something.
    #[must_use]
    pub fn is_sync(&self) -> bool {
        matches!(self, Self::Fsync { .. } | Self::Fdatasync { .. } | Self::Sync)
    }

    /// The paths it speaks of; the target of a symbolic link is none.
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::Link { original: first, path: second } | Self::Rename { from: first, to: second } => {
                vec![first, second]
            }
            Self::Create { path }
            | Self::CreateDir { path }
            | Self::Write { path, .. }
            | Self::Allocate { path, .. }
            | Self::Symlink { path, .. }
            | Self::Remove { path }
            | Self::RemoveDir { path }
            | Self::Truncate { path, .. }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::Fsync { path }
            | Self::Fdatasync { path } => vec![path],
            Self::Sync => Vec::new(),
        }
    }
}

/// A word of the language: what would end or hide it is written as `\xNN`.
struct Word<'a>(&'a str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        for character in self.0.chars() {
            match character {
                '\\' | '#' => write!(f, "\\x{:02x}", u32::from(character))?,
                _ if character.is_whitespace() || character.is_control() => {
                    let mut bytes = [0; 4];
                    for byte in character.encode_utf8(&mut bytes).bytes() {
                        write!(f, "\\x{byte:02x}")?;
                    }
                }
                _ => write!(f, "{character}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |text| Word(text);
        match self {
            Self::Create { path } => write!(f, "creat {}", word(path)),
            Self::CreateDir { path } => write!(f, "mkdir {}", word(path)),
            Self::Write { how, path, offset, len } => {
                let name = match how {
                    WriteHow::Buffered => "write",
                    WriteHow::Direct => "dwrite",
                    WriteHow::Mapped => "mmapwrite",
                };
                write!(f, "{name} {} {offset} {len}", word(path))
            }
            Self::Allocate { reserve, path, offset, len } => {
                let mode = match reserve {
                    Reserve::Grow => "",
                    Reserve::KeepSize => " keep-size",
                    Reserve::Punch => " punch",
                    Reserve::Zero => " zero",
                };
                write!(f, "falloc {} {offset} {len}{mode}", word(path))
            }
            Self::Link { original, path } => write!(f, "link {} {}", word(original), word(path)),
            Self::Symlink { target, path } => write!(f, "symlink {} {}", word(target), word(path)),
            Self::Remove { path } => write!(f, "unlink {}", word(path)),
            Self::RemoveDir { path } => write!(f, "rmdir {}", word(path)),
            Self::Rename { from, to } => write!(f, "rename {} {}", word(from), word(to)),
            Self::Truncate { path, len } => write!(f, "truncate {} {len}", word(path)),
            Self::SetXattr { path, name, value } => {
                write!(f, "setxattr {} {} {}", word(path), word(name), word(value))
            }
            Self::RemoveXattr { path, name } => write!(f, "removexattr {} {}", word(path), word(name)),
            Self::Fsync { path } => write!(f, "fsync {}", word(path)),
            Self::Fdatasync { path } => write!(f, "fdatasync {}", word(path)),
            Self::Sync => f.write_str("sync"),
        }
    }
}
