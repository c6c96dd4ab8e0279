//! Defines the operations of a workload, and how they are written down. The generators (`ace`, `programs`, ...) and
//! `language` make steps, `drive` runs them.

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

/// The operation of `falloc`.
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

/// How a range of one file gets into another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloneHow {
    /// `reflink`: whole sectors, which both files share then.
    Reflink,
    /// `copy`: as `copy_file_range`, shared where that is possible.
    Copy,
}

/// One operation. Paths are below the top of the volume, without a slash in front.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant's sentence speaks of its fields")]
pub enum Step {
    /// An empty file, unless there is one.
    Create { path: String },
    /// A directory.
    CreateDir { path: String },
    /// `len` bytes with values of their own.
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
    /// Renames, replacing an existing target.
    Rename { from: String, to: String },
    /// Cuts or extends.
    Truncate { path: String, len: u64 },
    /// Lays out the contents of a file anew, compressed if an algorithm is named.
    Defrag { path: String, compression: Option<&'static str> },
    /// Sets an extended attribute.
    SetXattr { path: String, name: String, value: String },
    /// Removes one.
    RemoveXattr { path: String, name: String },
    /// Sets permission bits.
    Chmod { path: String, mode: u32 },
    /// Sets owner and group.
    Chown { path: String, uid: u32, gid: u32 },
    /// Sets the times of access and modification, in seconds.
    Utimes { path: String, atime: i64, mtime: i64 },
    /// Sets these of the flags `A`, `d` and `S`, as chattr(1) calls them, and clears the others.
    Chattr { path: String, flags: String },
    /// Shares (`reflink`) or copies (`copy`) a range of another file.
    Clone { how: CloneHow, source: String, source_offset: u64, path: String, offset: u64, len: u64 },
    /// A file that is made without a name, filled, and then linked.
    Unnamed { path: String, len: u64 },
    /// Two names change places.
    Exchange { from: String, to: String },
    /// Opens a file and keeps it open: later writes go through it, also when its name is gone.
    Hold { path: String },
    /// Closes all files that are kept open.
    Release,
    /// An empty subvolume.
    Subvolume { path: String },
    /// A snapshot that can be changed.
    Snapshot { source: String, path: String },
    /// Deletes a subvolume with all that is in it.
    DeleteSubvolume { path: String },
    /// Makes a file or directory durable.
    Fsync { path: String },
    /// Makes a file's data durable.
    Fdatasync { path: String },
    /// Makes everything durable.
    Sync,
    /// Tells the device all that is free.
    Trim,
    /// Makes the volume so many bytes long, or as short as it can be.
    Resize { bytes: Option<u64> },
    /// Carries out an order of the format's own, then makes everything durable.
    Order { name: String, value: String },
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
            Self::Link { original: first, path: second }
            | Self::Rename { from: first, to: second }
            | Self::Exchange { from: first, to: second }
            | Self::Snapshot { source: first, path: second }
            | Self::Clone { source: first, path: second, .. } => vec![first, second],
            Self::Create { path }
            | Self::CreateDir { path }
            | Self::Write { path, .. }
            | Self::Allocate { path, .. }
            | Self::Symlink { path, .. }
            | Self::Remove { path }
            | Self::RemoveDir { path }
            | Self::Truncate { path, .. }
            | Self::Defrag { path, .. }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::Chmod { path, .. }
            | Self::Chown { path, .. }
            | Self::Utimes { path, .. }
            | Self::Chattr { path, .. }
            | Self::Unnamed { path, .. }
            | Self::Hold { path }
            | Self::Subvolume { path }
            | Self::DeleteSubvolume { path }
            | Self::Fsync { path }
            | Self::Fdatasync { path } => vec![path],
            Self::Sync | Self::Trim | Self::Resize { .. } | Self::Order { .. } | Self::Release => Vec::new(),
        }
    }
}

/// A word of the language: bytes that would end or hide it are written as `\xNN`.
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
            Self::Trim => f.write_str("trim"),
            Self::Resize { bytes: None } => f.write_str("resize min"),
            Self::Resize { bytes: Some(bytes) } => write!(f, "resize {bytes}"),
            Self::Order { name, value } => write!(f, "order {} {value}", word(name)),
            other => other.fmt_more(f),
        }
    }
}

impl Step {
    fn fmt_more(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |text| Word(text);
        match self {
            Self::Chmod { path, mode } => write!(f, "chmod {} {mode:o}", word(path)),
            Self::Chown { path, uid, gid } => write!(f, "chown {} {uid} {gid}", word(path)),
            Self::Utimes { path, atime, mtime } => write!(f, "utimes {} {atime} {mtime}", word(path)),
            Self::Chattr { path, flags } => write!(f, "chattr {} ={flags}", word(path)),
            Self::Clone { how, source, source_offset, path, offset, len } => {
                let name = match how {
                    CloneHow::Reflink => "reflink",
                    CloneHow::Copy => "copy",
                };
                write!(f, "{name} {} {source_offset} {} {offset} {len}", word(source), word(path))
            }
            Self::Defrag { path, compression: None } => write!(f, "defrag {}", word(path)),
            Self::Defrag { path, compression: Some(name) } => write!(f, "defrag {} {name}", word(path)),
            Self::Unnamed { path, len } => write!(f, "tmpfile {} {len}", word(path)),
            Self::Exchange { from, to } => write!(f, "exchange {} {}", word(from), word(to)),
            Self::Hold { path } => write!(f, "hold {}", word(path)),
            Self::Release => f.write_str("release"),
            Self::Subvolume { path } => write!(f, "subvol {}", word(path)),
            Self::Snapshot { source, path } => write!(f, "snapshot {} {}", word(source), word(path)),
            Self::DeleteSubvolume { path } => write!(f, "delsubvol {}", word(path)),
            // The others are written above.
            _ => Ok(()),
        }
    }
}
