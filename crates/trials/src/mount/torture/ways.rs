//! Fills a volume in one of ten ways. Each continues until it finds no space, and can be called again after a sync.
//! Called by `enospc`.

use super::super::promises::Maker;
use super::filling::{BLOCK_BYTES, Filling, PIECE_BYTES, Room, room};
use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, IFlags, XattrFlags};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use testkit::Random;

/// Files of a directory.
const FOLDER_FILES: u64 = 1000;
/// Bytes of the names of directories: long names fill the volume sooner.
const NAME_LEN: usize = 200;
/// Attributes of a file, and most bytes of each.
const FILE_XATTRS: u64 = 8;
const XATTR_BYTES_MAX: u64 = 3500;
/// Most bytes of an inline file.
const INLINE_BYTES_MAX: u64 = 2000;
/// Bytes of large files.
const LARGE_BYTES: u64 = 64 << 20;
/// Bytes that are overwritten together.
const OVERWRITE_BYTES: u64 = 64 << 10;
/// Names of subvolumes.
const BASE: &str = "base";
const SNAPSHOT: &str = "snapshot-";
/// Number of files in every snapshot.
const BASE_FILES: u64 = 16;
/// Most snapshots of one volume.
const SNAPSHOTS_MAX: u64 = 500;
/// Compressed data ends at this many times the space: it shrinks to a third or a quarter.
const COMPRESSED_TIMES_MAX: u64 = 8;
/// Threads that fill together, and how often in a row one finds no space before it ends.
const THREADS: u64 = 8;
const REFUSED_MAX: u32 = 12;

/// A way to fill a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Way {
    /// A few large files.
    Large,
    /// Files of 4 to 64 KiB.
    Small,
    /// Inline files.
    Inline,
    /// Directories with long names.
    Directories,
    /// Extended attributes.
    Xattrs,
    /// Snapshots of files that are then overwritten.
    Snapshots,
    /// Preallocated space, then written.
    Preallocated,
    /// Files without copy on write, which are then overwritten.
    Nocow,
    /// Compressed data (compress-force=zstd:1).
    Compressed,
    /// All of it by eight threads.
    Mix,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Large => "large",
            Self::Small => "small",
            Self::Inline => "inline",
            Self::Directories => "directories",
            Self::Xattrs => "xattrs",
            Self::Snapshots => "snapshots",
            Self::Preallocated => "preallocated",
            Self::Nocow => "nocow",
            Self::Compressed => "compressed",
            Self::Mix => "mix",
        }
    }

    /// Further mount options.
    pub(super) fn options(self) -> &'static str {
        match self {
            Self::Compressed => "compress-force=zstd:1",
            _ => "",
        }
    }

    /// True if the number of things counts, rather than bytes.
    pub(super) fn counts_things(self) -> bool {
        matches!(self, Self::Inline | Self::Directories | Self::Xattrs)
    }

    /// True if written bytes take as much space, and are written once.
    pub(super) fn takes_bytes_as_they_are(self) -> bool {
        matches!(self, Self::Large | Self::Small | Self::Nocow)
    }

    /// Fills until there is no space.
    pub(super) fn fill(self, filling: &Filling<'_>) -> Result<()> {
        match self {
            Self::Large => large(filling, &filling.folder("large")?),
            Self::Small => each_folder(filling, |random, folder| {
                let len = random.between(1, 16).saturating_mul(BLOCK_BYTES);
                filling.file(folder, len)
            }),
            Self::Inline => each_folder(filling, |random, folder| {
                let len = random.between(1, INLINE_BYTES_MAX);
                filling.file(folder, len)
            }),
            Self::Directories => each_folder(filling, |_, folder| {
                let name = format!("{:0>NAME_LEN$}", filling.number());
                let found = room(std::fs::create_dir(folder.join(name)))?;
                if found == Room::Had {
                    filling.made_one();
                }
                Ok(found)
            }),
            Self::Xattrs => each_folder(filling, |random, folder| xattrs(filling, random, folder)),
            Self::Snapshots => snapshots(filling),
            Self::Preallocated => preallocate(filling, &filling.folder("preallocated")?),
            Self::Nocow => {
                let folder = filling.folder("nocow")?;
                let flags = rustix::fs::ioctl_getflags(File::open(&folder)?)?;
                rustix::fs::ioctl_setflags(File::open(&folder)?, flags | IFlags::NOCOW)?;
                large(filling, &folder)
            }
            Self::Compressed => compressed(filling, &filling.folder("compressed")?),
            Self::Mix => mix(filling),
        }
    }

    /// Writes into allocated space, which must be possible on the full volume.
    pub(super) fn use_promised(self, filling: &Filling<'_>) -> Result<()> {
        let folder = match self {
            Self::Preallocated => "preallocated",
            // With late errors, a file may be longer than its stored data.
            Self::Nocow if !filling.tells_late() => "nocow",
            _ => return Ok(()),
        };
        for entry in std::fs::read_dir(filling.dir().join(folder))? {
            let path = entry?.path();
            let file = File::options().write(true).open(&path)?;
            let len = file.metadata()?.len();
            let number = number_of(&path)?;
            let mut at = 0;
            while at < len {
                let wanted = PIECE_BYTES.min(len.saturating_sub(at));
                let written = filling.put(&file, number, at, wanted)?;
                ensure!(written == wanted, "{}: no space at byte {at} of the file's allocated space", path.display());
                at = at.saturating_add(wanted);
            }
            file.sync_data().with_context(|| format!("{}: overwritten", path.display()))?;
            if self == Self::Preallocated {
                filling.remember(path, number, len);
            }
        }
        Ok(())
    }
}

/// True for the root of a subvolume: a mount shows it under an ordinary number.
pub(super) fn is_subvolume(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name == BASE || name.starts_with(SNAPSHOT)
}

fn number_of(path: &Path) -> Result<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit('-').next().unwrap_or_default().parse().with_context(|| path.display().to_string())
}

/// Calls `make` until it finds no space, in directories of a thousand each.
fn each_folder(filling: &Filling<'_>, mut make: impl FnMut(&mut Random, &Path) -> Result<Room>) -> Result<()> {
    let mut random = filling.random(1);
    loop {
        let folder = match filling.folder(&format!("folder-{}", filling.number())) {
            Ok(folder) => folder,
            Err(error) => {
                room(Err(error))?;
                return Ok(());
            }
        };
        for _ in 0..FOLDER_FILES {
            if make(&mut random, &folder)? == Room::None || filling.is_endless() {
                return Ok(());
            }
        }
    }
}

/// Large files, in smaller and smaller pieces when space is short.
fn large(filling: &Filling<'_>, folder: &Path) -> Result<()> {
    let mut len = PIECE_BYTES;
    loop {
        let number = filling.number();
        let path = folder.join(format!("file-{number}"));
        let Some(file) = make(&path)? else { return Ok(()) };
        filling.made_one();
        let mut at = 0;
        while at < LARGE_BYTES && len >= BLOCK_BYTES && !filling.is_endless() {
            let written = filling.put(&file, number, at, len)?;
            filling.took(written);
            at = at.saturating_add(written);
            if written < len {
                // A partial block is not compared.
                at -= at % BLOCK_BYTES;
                len /= 2;
            }
        }
        filling.remember(path, number, at);
        if at < LARGE_BYTES {
            return Ok(());
        }
    }
}

fn xattrs(filling: &Filling<'_>, random: &mut Random, folder: &Path) -> Result<Room> {
    let path = folder.join(format!("file-{}", filling.number()));
    let Some(file) = make(&path)? else { return Ok(Room::None) };
    for index in 0..FILE_XATTRS {
        let len = random.between(1, XATTR_BYTES_MAX);
        let value = random.noise(usize::try_from(len)?);
        let name = format!("user.attribute-{index}");
        let set = rustix::fs::fsetxattr(&file, name, &value, XattrFlags::CREATE).map_err(io::Error::from);
        if room(set)? == Room::None {
            return Ok(Room::None);
        }
        filling.took(len);
        filling.made_one();
    }
    Ok(Room::Had)
}

/// Overwrites a quarter of the base after each snapshot of it.
fn snapshots(filling: &Filling<'_>) -> Result<()> {
    let mut maker = Maker::start()?;
    let base = filling.dir().join(BASE);
    let len = filling.available() / (BASE_FILES * 8);
    let len = len - len % OVERWRITE_BYTES;
    if !base.exists() {
        maker.make(&base)?;
        for _ in 0..BASE_FILES {
            ensure!(filling.file(&base, len)? == Room::Had, "an eighth of the volume does not fit");
        }
        filling.sync()?;
    }
    let files: Vec<PathBuf> = std::fs::read_dir(&base)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    let mut random = filling.random(2);
    for _ in 0..SNAPSHOTS_MAX {
        let to = filling.dir().join(format!("{SNAPSHOT}{}", filling.number()));
        if room(maker.snapshot(&base, &to))? == Room::None {
            return Ok(());
        }
        filling.made_one();
        for path in &files {
            let number = number_of(path)?;
            let file = File::options().write(true).open(path)?;
            for _ in 0..len / OVERWRITE_BYTES / 4 {
                let at = random.below(len / OVERWRITE_BYTES).saturating_mul(OVERWRITE_BYTES);
                let written = filling.put(&file, number, at, OVERWRITE_BYTES)?;
                filling.took(written);
                if written < OVERWRITE_BYTES || filling.is_endless() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// A new file; `None` without space.
fn make(path: &Path) -> Result<Option<File>> {
    match File::create_new(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) => {
            room(Err(error))?;
            Ok(None)
        }
    }
}

fn preallocate(filling: &Filling<'_>, folder: &Path) -> Result<()> {
    let mut len = LARGE_BYTES / 4;
    while len >= BLOCK_BYTES {
        let number = filling.number();
        let Some(file) = make(&folder.join(format!("file-{number}")))? else { return Ok(()) };
        let allocated = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len).map_err(io::Error::from);
        match room(allocated)? {
            Room::Had => {
                filling.took(len);
                filling.made_one();
            }
            // It keeps its allocated part, as after posix_fallocate; the next file is smaller.
            Room::None => {
                rustix::fs::ftruncate(&file, 0)?;
                len /= 2;
            }
        }
    }
    Ok(())
}

/// Text, which zstd compresses to a third.
fn compressed(filling: &Filling<'_>, folder: &Path) -> Result<()> {
    let mut random = filling.random(3);
    let pieces: Vec<Vec<u8>> = (0..8).map(|_| random.text(usize::try_from(PIECE_BYTES).unwrap_or(0))).collect();
    loop {
        let number = filling.number();
        let Some(file) = make(&folder.join(format!("file-{number}")))? else { return Ok(()) };
        filling.made_one();
        for (at, piece) in (0..LARGE_BYTES / PIECE_BYTES).map(|index| index * PIECE_BYTES).zip(pieces.iter().cycle()) {
            let written = filling.put_bytes(&file, at, piece)?;
            filling.took(written);
            if written < PIECE_BYTES || filling.taken().bytes > filling.available().saturating_mul(COMPRESSED_TIMES_MAX)
            {
                return Ok(());
            }
        }
    }
}

fn mix(filling: &Filling<'_>) -> Result<()> {
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || mixed(filling, thread))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<()>>| {
            thread.join().unwrap_or_else(|_| anyhow::bail!("a thread failed in a way of its own"))
        };
        threads.into_iter().map(join).collect()
    });
    results.into_iter().collect()
}

/// One thread of the mix: it ends when it has found no space for a while.
fn mixed(filling: &Filling<'_>, thread: u64) -> Result<()> {
    let mut random = filling.random(100_u64.saturating_add(thread).saturating_add(filling.taken().count));
    let folder = match filling.folder(&format!("thread-{thread}")) {
        Ok(folder) => folder,
        Err(error) => {
            room(Err(error))?;
            return Ok(());
        }
    };
    let mut refused = 0_u32;
    while refused < REFUSED_MAX && !filling.is_endless() {
        let found = match random.below(8) {
            0 => {
                let len = random.between(1, 16) << 18;
                filling.file(&folder, len)?
            }
            1..=3 => {
                let len = random.between(1, 16).saturating_mul(BLOCK_BYTES);
                filling.file(&folder, len)?
            }
            4..=5 => {
                let len = random.between(1, INLINE_BYTES_MAX);
                filling.file(&folder, len)?
            }
            6 => room(std::fs::create_dir(folder.join(format!("{:0>NAME_LEN$}", filling.number()))))?,
            _ => xattrs(filling, &mut random, &folder)?,
        };
        refused = match found {
            Room::Had => 0,
            Room::None => refused.saturating_add(1),
        };
    }
    Ok(())
}
