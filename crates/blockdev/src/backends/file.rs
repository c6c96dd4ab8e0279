//! Implements a device over a regular file or a block device: opening and locking it, positioned reads and writes,
//! discards and flushes. `locator` opens it for a path; tests and benchmarks open it directly.

use super::direct_io::{self, Direct};
use super::file_length::FileLength;
use super::file_options::FileOptions;
use super::holders::{SYS_BLOCK, loop_device_of};
use super::raw::{PARTS_MAX, RawFile};
use crate::convert::to_u64;
use crate::device::{check_range, check_writable, parts_len};
use crate::{Device, Error, Holes, Op, Result, Write};
use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Seek as _, SeekFrom};
use std::mem::ManuallyDrop;
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes written to a file before its file system is asked again for its free space.
const UNASKED_BYTES_MAX: u64 = 64 << 20;

/// A regular file or block device, locked for as long as this value lives.
///
/// A writer excludes all other programs that open the file this way; readers share it. A block device is also claimed
/// in the kernel, so that a mounted one is refused, and so is a regular file behind a loop device.
///
/// A block device opened for writing is read and written past the page cache (`O_DIRECT`), if its blocks and the given
/// part of it allow that: data is cached above, and writes begin at once.
#[derive(Debug)]
pub struct FileDevice {
    raw: RawFile,
    length: FileLength,
    read_only: bool,
    /// Replaces a block device that is closed.
    nothing: Option<OwnedFd>,
    /// Bytes that may be written before the file system is asked again for its free space; `None` for a block device.
    unasked: Option<AtomicU64>,
    /// For a file that is opened past the page cache.
    direct: Option<Direct>,
}

impl Drop for FileDevice {
    /// A child process that another thread has just forked has the file open too, until it runs
    /// its program, and would keep the lock that long.
    fn drop(&mut self) {
        self.release_lock();
    }
}

impl FileDevice {
    /// Opens and locks the file or block device at `path`; its name is taken literally.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::NotADevice`]; [`Error::Locked`] or [`Error::Busy`] where another
    /// program uses it; [`Error::OutOfRange`] where `offset` or `size` lie outside the file.
    pub fn open(path: impl AsRef<Path>, options: &FileOptions) -> Result<Self> {
        let (path, options) = (path.as_ref(), *options);
        let name = path.display().to_string();
        let file = open_file(path, &name, &options)?;
        let found = file.metadata().map_err(|error| open_error(&name, error))?;
        if !found.is_file() && !found.file_type().is_block_device() {
            return Err(Error::NotADevice { device: name });
        }
        // A block device that is written is claimed in any case.
        if !(options.unlocked && (options.read_only || found.file_type().is_block_device())) {
            lock(&file, &name, &options)?;
        }
        if !options.read_only {
            refuse_loop_backing(&found, &name)?;
        }
        let file_bytes = file_len(&file, &found, &name, &options)?;
        let size_bytes = options.window(&name, file_bytes)?;
        let is_disk = found.file_type().is_block_device() && !options.read_only;
        let direct = if is_disk { pass_the_cache(&file, options.offset, size_bytes) } else { None };
        Ok(Self {
            raw: RawFile { name, file, start: options.offset },
            length: FileLength::new(
                size_bytes,
                options.offset,
                found.is_file() && (options.size.is_none() || options.create),
            ),
            read_only: options.read_only,
            nothing: found.file_type().is_block_device().then(open_nothing).flatten(),
            unasked: found.is_file().then(AtomicU64::default),
            direct,
        })
    }

    /// A device over a file or block device that another process opened for writing, and locked, by this descriptor:
    /// the lock goes on here. `name` is its name in messages; the device begins at `offset`. For a process that may not
    /// open files. A block device is written through the page cache.
    ///
    /// # Errors
    /// As [`Self::open`]; [`Error::ReadOnly`] for a descriptor that is open for reading alone.
    pub fn of_descriptor(descriptor: OwnedFd, name: &str, (offset, size): (u64, Option<u64>)) -> Result<Self> {
        let (name, file) = (name.to_owned(), File::from(descriptor));
        let found = file.metadata().map_err(|error| open_error(&name, error))?;
        if !found.is_file() && !found.file_type().is_block_device() {
            return Err(Error::NotADevice { device: name });
        }
        let flags = rustix::fs::fcntl_getfl(&file).map_err(|error| open_error(&name, error))?;
        if flags & OFlags::RWMODE != OFlags::RDWR {
            return Err(Error::ReadOnly { op: Op::Open, device: name });
        }
        rustix::fs::fcntl_setfl(&file, flags - OFlags::DIRECT).map_err(|error| open_error(&name, error))?;
        let options = FileOptions { offset, size, ..FileOptions::default() };
        let file_bytes = file_len(&file, &found, &name, &options)?;
        let size_bytes = options.window(&name, file_bytes)?;
        Ok(Self {
            raw: RawFile { name, file, start: offset },
            length: FileLength::new(size_bytes, offset, found.is_file() && size.is_none()),
            read_only: false,
            nothing: found.file_type().is_block_device().then(open_nothing).flatten(),
            unasked: found.is_file().then(AtomicU64::default),
            direct: None,
        })
    }

    /// The open file, to be passed to another process ([`Self::of_descriptor`]), which then has the lock:
    /// [`Self::keep_lock`].
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.raw.file.as_fd()
    }

    /// Forgets the device without releasing its lock, which ends with the last descriptor of the open file.
    pub fn keep_lock(self) {
        std::mem::forget(self);
    }

    /// The same device past the page cache, as a disk is; `None` where the file system of the file does not let it.
    #[cfg(test)]
    pub(super) fn past_the_cache(mut self) -> Option<Self> {
        let flags = rustix::fs::fcntl_getfl(&self.raw.file).ok()?;
        rustix::fs::fcntl_setfl(&self.raw.file, flags | OFlags::DIRECT).ok()?;
        self.direct = Some(Direct::new(direct_io::BLOCK_BYTES_MAX));
        Some(self)
    }

    #[cfg(test)]
    pub(super) const fn raw(&self) -> &RawFile {
        &self.raw
    }

    #[cfg(test)]
    pub(super) fn idle_rings(&self) -> usize {
        self.direct.as_ref().map_or(0, Direct::idle_rings)
    }

    /// Lets others lock the file, before this value goes. Nothing may be written to it afterwards.
    pub fn release_lock(&self) {
        // Where that fails, the lock goes with the file.
        let _ = rustix::fs::flock(&self.raw.file, FlockOperation::Unlock);
    }
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.raw.name
    }

    fn size_bytes(&self) -> u64 {
        self.length.bytes()
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self, Op::Read, offset, to_u64(buf.len()))?;
        if let Some(direct) = &self.direct {
            return direct.read(&self.raw, self.size_bytes(), offset, &mut [buf]);
        }
        self.raw.read_batch(offset, &mut [IoSliceMut::new(buf)])
    }

    fn will_read(&self, offset: u64, len: u64) {
        let (Some(len), None) = (NonZeroU64::new(len), &self.direct) else { return };
        if check_range(self, Op::Read, offset, len.get()).is_ok() {
            // If the kernel ignores the advice, the read itself fetches the data.
            let _ = rustix::fs::fadvise(&self.raw.file, self.raw.position(offset), Some(len), Advice::WillNeed);
        }
    }

    /// Moves the offset of the open file, which nothing here uses: all reads and writes say where.
    fn next_data(&self, offset: u64) -> u64 {
        let size = self.size_bytes();
        match rustix::fs::seek(&self.raw.file, rustix::fs::SeekFrom::Data(self.raw.position(offset))) {
            Ok(position) => self.raw.offset_of(position).clamp(offset, size.max(offset)),
            // Only a hole follows, or nothing.
            Err(Errno::NXIO) => size.max(offset),
            // Not all file systems can tell.
            Err(_) => offset,
        }
    }

    /// As [`Device::next_data`].
    fn next_hole(&self, offset: u64) -> u64 {
        let size = self.size_bytes();
        match rustix::fs::seek(&self.raw.file, rustix::fs::SeekFrom::Hole(self.raw.position(offset))) {
            Ok(position) => self.raw.offset_of(position).clamp(offset, size.max(offset)),
            Err(_) => size.max(offset),
        }
    }

    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<()> {
        let len = parts.iter().map(|part| to_u64(part.len())).sum();
        check_range(self, Op::Read, offset, len)?;
        if let Some(direct) = &self.direct {
            return direct.read(&self.raw, self.size_bytes(), offset, parts);
        }
        let mut at = offset;
        for some in parts.chunks_mut(PARTS_MAX) {
            let len: u64 = some.iter().map(|part| to_u64(part.len())).sum();
            let mut batch: Vec<_> = some.iter_mut().map(|part| IoSliceMut::new(part)).collect();
            self.raw.read_batch(at, &mut batch)?;
            at += len;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        check_writable(self, Op::Write)?;
        check_range(self, Op::Write, offset, parts_len(parts))?;
        if let Some(direct) = &self.direct {
            return direct.write(&self.raw, offset, parts);
        }
        let mut at = offset;
        for some in parts.chunks(PARTS_MAX) {
            let mut batch: Vec<_> = some.iter().map(|part| IoSlice::new(part)).collect();
            self.raw.write_batch(at, &mut batch)?;
            at += parts_len(some);
        }
        Ok(())
    }

    fn submit(&self, writes: &[Write<'_>]) -> Vec<Result<()>> {
        let allowed = |write: &Write<'_>| {
            check_writable(self, Op::Write)?;
            check_range(self, Op::Write, write.offset, parts_len(write.parts))
        };
        match &self.direct {
            Some(direct) if writes.iter().all(|write| allowed(write).is_ok()) => direct.submit(&self.raw, writes),
            _ => writes.iter().map(|write| self.write_at(write.offset, write.parts)).collect(),
        }
    }

    fn queue_depth(&self) -> usize {
        if self.uses_rings() { direct_io::QUEUE_DEPTH_HINT } else { 1 }
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        // Not retried when interrupted: a second fdatasync may report success for pages whose
        // write-back failed during the first.
        rustix::fs::fdatasync(&self.raw.file).map_err(|error| self.raw.error(Op::Flush, 0, 0, error))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(self, Op::Discard)?;
        check_range(self, Op::Discard, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = rustix::fs::fallocate(&self.raw.file, flags, self.raw.position(offset), len);
        if let Some(direct) = &self.direct {
            direct.forget(offset, len);
        }
        match punched {
            // A discard is advice: without it, unused ranges only keep their old bytes.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => Ok(()),
            Err(error) => Err(self.raw.error(Op::Discard, offset, len, error)),
        }
    }

    fn write_zeroes(&self, offset: u64, len: u64, holes: Holes) -> Result<bool> {
        check_writable(self, Op::Write)?;
        check_range(self, Op::Write, offset, len)?;
        if len == 0 {
            return Ok(true);
        }
        let kind = match holes {
            Holes::Allowed => FallocateFlags::PUNCH_HOLE,
            Holes::Forbidden => FallocateFlags::ZERO_RANGE,
        };
        let flags = kind | FallocateFlags::KEEP_SIZE;
        let position = self.raw.position(offset);
        let zeroed = rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.raw.file, flags, position, len));
        if let Some(direct) = &self.direct {
            direct.forget(offset, len);
        }
        match zeroed {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
            Err(error) => Err(self.raw.error(Op::Write, offset, len, error)),
        }
    }

    fn check_room(&self, offset: u64, len: u64, spare: u64) -> Result<()> {
        let Some(unasked) = &self.unasked else { return Ok(()) };
        let pay = |left: u64| left.checked_sub(len);
        if unasked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok() {
            return Ok(());
        }
        // Some file systems do not say how large they are.
        let host = rustix::fs::fstatvfs(&self.raw.file).ok().filter(|host| host.f_blocks > 0);
        let Some(host) = host else { return Ok(()) };
        let free = host.f_bavail.saturating_mul(host.f_frsize);
        if let Some(left) = free.checked_sub(spare.saturating_add(len)) {
            unasked.store((left / 2).min(UNASKED_BYTES_MAX), Ordering::Relaxed);
            return Ok(());
        }
        // Allocated ranges need no space.
        let position = self.raw.start.saturating_add(offset);
        match rustix::fs::seek(&self.raw.file, rustix::fs::SeekFrom::Hole(position)) {
            Ok(hole) if hole < position.saturating_add(len) => {
                Err(self.raw.error(Op::Write, offset, len, Errno::NOSPC))
            }
            _ => Ok(()),
        }
    }

    fn grow(&self, size_bytes: u64) -> Result<()> {
        check_writable(self, Op::Grow)?;
        self.length.grow(&self.raw.file, &self.raw.name, size_bytes)
    }

    fn shrink(&self, size_bytes: u64) -> Result<()> {
        check_writable(self, Op::Shrink)?;
        self.length.shrink(&self.raw.file, &self.raw.name, size_bytes)
    }

    fn host_metadata(&self) -> Result<Option<Metadata>> {
        self.raw.file.metadata().map(Some).map_err(|error| open_error(&self.raw.name, error))
    }

    fn check_length(&self) -> Result<()> {
        let found = self.raw.file.metadata().map_err(|error| self.raw.error(Op::Flush, 0, 0, error))?;
        let expected = self.raw.position(self.size_bytes());
        if !found.is_file() || found.len() >= expected {
            return Ok(());
        }
        let text = format!("the file was truncated to {} bytes while in use; it had {expected}", found.len());
        Err(self.raw.error(Op::Flush, 0, 0, io::Error::other(text)))
    }

    fn uses_rings(&self) -> bool {
        self.direct.as_ref().is_some_and(|direct| direct.has_rings)
    }

    /// Of a block device nothing can be read afterwards.
    #[expect(unsafe_code, reason = "a descriptor is replaced while others may use it")]
    fn let_go(&self) {
        self.release_lock();
        let Some(nothing) = &self.nothing else { return };
        // SAFETY: the number stays an open descriptor that this value owns; `ManuallyDrop` keeps this second owner from
        // closing it.
        let mut file = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.raw.file.as_raw_fd()) });
        // Where that fails, the device is let go when this value goes.
        let _ = rustix::io::dup3(nothing, &mut file, rustix::io::DupFlags::CLOEXEC);
    }
}

fn open_error(name: &str, error: impl Into<io::Error>) -> Error {
    Error::io(Op::Open, name, 0, 0, error.into())
}

/// Opens a regular file or a block device. Anything else is not even opened: with some devices, and with pipes, that
/// alone has effects.
fn open_file(path: &Path, name: &str, options: &FileOptions) -> Result<File> {
    let found = look_at(path, name, options)?;
    let is_block = found.as_ref().is_some_and(|(_, is_block)| *is_block);
    // The opened file, even if the path leads elsewhere by now.
    let seen = found.as_ref().map(|(file, _)| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    let path = seen.as_deref().filter(|seen| seen.exists()).unwrap_or(path);
    let mut open = OpenOptions::new();
    open.read(true).write(!options.read_only);
    if is_block && !options.read_only {
        // On a block device, O_EXCL asks the kernel for an exclusive claim, which fails while the device is mounted.
        open.custom_flags(OFlags::EXCL.bits().cast_signed());
    } else if options.create && !options.read_only {
        open.create(true).truncate(false);
    }
    open.open(path).map_err(|error| {
        if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
            let holder = "mounted, or part of another device".to_owned();
            return Error::Busy { device: name.to_owned(), holder };
        }
        open_error(name, error)
    })
}

/// Opens a disk past the page cache, where the device begins and ends with whole blocks of it.
fn pass_the_cache(file: &File, start: u64, size_bytes: u64) -> Option<Direct> {
    let block = u64::from(rustix::fs::ioctl_blksszget(file).ok()?);
    let fits = block.is_power_of_two() && block <= direct_io::BLOCK_BYTES_MAX;
    if !fits || !start.is_multiple_of(block) || !size_bytes.is_multiple_of(block) {
        return None;
    }
    let flags = rustix::fs::fcntl_getfl(file).ok()?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
    Some(Direct::new(block))
}

/// A descriptor of which nothing can be read, and to which nothing can be written.
fn open_nothing() -> Option<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// An `O_PATH` handle on the file at `path`, which does not open the device behind it, and whether it is a block
/// device. `None` where the path does not exist and the options allow creating it.
fn look_at(path: &Path, name: &str, options: &FileOptions) -> Result<Option<(File, bool)>> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, options.no_follow);
    let handle = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(handle) => File::from(handle),
        Err(Errno::NOENT) if options.create && !options.read_only => return Ok(None),
        Err(error) => return Err(open_error(name, error)),
    };
    let kind = handle.metadata().map_err(|error| open_error(name, error))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(Error::NotADevice { device: name.to_owned() });
    }
    Ok(Some((handle, kind.is_block_device())))
}

fn lock(file: &File, name: &str, options: &FileOptions) -> Result<()> {
    let kind = match (options.read_only, options.wait) {
        (true, false) => FlockOperation::NonBlockingLockShared,
        (true, true) => FlockOperation::LockShared,
        (false, false) => FlockOperation::NonBlockingLockExclusive,
        (false, true) => FlockOperation::LockExclusive,
    };
    match rustix::io::retry_on_intr(|| rustix::fs::flock(file, kind)) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::Locked { device: name.to_owned() }),
        // Some network file systems have no locks. Reading is harmless there.
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) if options.read_only => Ok(()),
        Err(error) => Err(open_error(name, error)),
    }
}

fn refuse_loop_backing(found: &Metadata, name: &str) -> Result<()> {
    if !found.is_file() {
        return Ok(());
    }
    match loop_device_of(Path::new(SYS_BLOCK), found.dev(), found.ino()) {
        Some(holder) => Err(Error::Busy { device: name.to_owned(), holder }),
        None => Ok(()),
    }
}

/// Bytes of the file, made longer first where the options ask for it.
fn file_len(file: &File, found: &Metadata, name: &str, options: &FileOptions) -> Result<u64> {
    // The metadata of a block device has no length; its end does.
    let mut handle = file;
    let len = handle.seek(SeekFrom::End(0)).map_err(|error| open_error(name, error))?;
    let wanted = options.offset.saturating_add(options.size.unwrap_or(0));
    if !options.create || options.read_only || !found.is_file() || len >= wanted {
        return Ok(len);
    }
    file.set_len(wanted).map_err(|error| open_error(name, error))?;
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As root, `spinney umount` opened any path that the mounting user had given as the source: for example a watchdog
    /// device, whose timer starts when it is opened.
    #[test]
    fn what_is_no_device_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        // A writer that waits for a reader would see one come.
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                let flags = OFlags::WRONLY | OFlags::NONBLOCK;
                let start = std::time::Instant::now();
                while start.elapsed() < std::time::Duration::from_millis(300) {
                    if rustix::fs::open(&pipe, flags, Mode::empty()).is_ok() {
                        return true;
                    }
                }
                false
            }
        });
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        while !writer.is_finished() {
            assert!(matches!(FileDevice::open(&pipe, &options), Err(Error::NotADevice { .. })));
        }
        assert!(!writer.join().unwrap(), "the pipe was opened");
        let image = dir.path().join("image");
        std::fs::write(&image, [0; 4096]).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&image, &link).unwrap();
        FileDevice::open(&link, &options).unwrap();
        let own = FileOptions { no_follow: true, ..options };
        assert!(matches!(FileDevice::open(&link, &own), Err(Error::NotADevice { .. })));
    }

    /// Four threads with an image each ran a checker at once, and one of them found its image in use: by a child
    /// between fork and exec, which had the files of all threads.
    #[test]
    fn the_lock_goes_with_the_device_even_if_a_child_has_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let options = FileOptions { create: true, size: Some(1 << 20), ..FileOptions::default() };
        let device = FileDevice::open(&path, &options).unwrap();
        let kept = device.raw.file.try_clone().unwrap();
        drop(device);
        FileDevice::open(&path, &options).unwrap();
        drop(kept);
    }
}
