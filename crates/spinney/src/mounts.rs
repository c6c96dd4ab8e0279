//! Finds mounts of images: in the kernel's table of mounts, and among the servers of this program that have an image
//! open. The commands call it to find the mount of an image, `umount` and benchmarks too.
//!
//! A mount is believed only as far as the user who asks made it: another user's server may hang, or lie.
//! Other systems than Linux have no mounts of this program: there nothing is found.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use blockdev::{Identity, Locator};
#[cfg(target_os = "linux")]
use fuse::ServedFile;
#[cfg(target_os = "linux")]
use rustix::fs::{AtFlags, CWD, StatxFlags};

/// The types under which the kernel lists our mounts: those that it treats as any FUSE mount, and
/// those on a block device, which it syncs as a whole.
const TYPES: [&str; 2] = ["fuse.spinney", TYPE_SYNCED];
const TYPE_SYNCED: &str = "fuseblk.spinney";

/// The mounts in this process's namespace.
#[cfg(target_os = "linux")]
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// Bytes of a table of some hundred mounts.
#[cfg(target_os = "linux")]
const TABLE_LEN: usize = 64 << 10;

/// Longest wait for the answer of a mount; the kernel answers at once for a dead one.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// `STATX_MNT_ID_UNIQUE`.
#[cfg(target_os = "linux")]
const MOUNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The device number of the file system, as `major:minor`; all mounts of one file system share it.
    pub device: String,
    /// The mounted directory, from the root of the file system.
    pub root: PathBuf,
    /// The mount point.
    pub dir: PathBuf,
    /// The type of file system, such as `tmpfs`.
    pub kind: String,
    /// The source: the image or device.
    pub source: PathBuf,
    /// True if it is mounted read-only.
    pub read_only: bool,
    /// The user who mounted it; only for FUSE.
    pub user: Option<u32>,
}

impl Mount {
    /// Major and minor number of the file system.
    #[must_use]
    pub fn device_numbers(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.device.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// True for a mount that this program serves.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        TYPES.contains(&self.kind.as_str())
    }

    /// True for a mount that this process's user made. Another user chose the source that the table shows for a FUSE
    /// mount, and its server may never answer.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.user == Some(rustix::process::geteuid().as_raw())
    }

    /// True for a mount of this program for which the kernel waits for the server when it unmounts.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.kind == TYPE_SYNCED
    }

    /// True for two mounts of one file system, while both are there.
    #[must_use]
    pub fn is_of_the_same(&self, other: &Self) -> bool {
        (&self.device, &self.kind, &self.source) == (&other.device, &other.kind, &other.source)
    }

    /// The image that the server reads: for a mount on a loop device the file behind that.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        if !self.is_synced() || !self.shows_anchor() {
            return self.source.clone();
        }
        behind_loop(&self.source).unwrap_or_else(|| self.source.clone())
    }

    /// True if the source is the block device of the mount itself, not the served image.
    fn shows_anchor(&self) -> bool {
        std::fs::metadata(&self.source).is_ok_and(|source| self.device == numbers(source.rdev()))
    }

    /// The directory in `/sys` with the settings of its writeback.
    #[must_use]
    pub fn backing_info(&self) -> PathBuf {
        let suffix = if self.is_synced() { "-fuseblk" } else { "" };
        Path::new("/sys/class/bdi").join(format!("{}{suffix}", self.device))
    }
}

/// The unique number of the mount seen at `dir`, which no earlier or later mount has; `None` on a kernel without such
/// numbers. The server of the mount is not asked for it.
#[must_use]
#[cfg(target_os = "linux")]
pub fn identity(dir: &Path) -> Option<u64> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
    let found = rustix::fs::statx(CWD, dir, flags, MOUNT_ID_UNIQUE).ok()?;
    let has_it = found.stx_mask & MOUNT_ID_UNIQUE.bits() != 0;
    has_it.then_some(found.stx_mnt_id)
}

/// True if the server of the mount at `dir` is gone: `statfs` fails with `ENOTCONN`. A server that does not answer
/// within a second counts as alive.
#[must_use]
#[cfg(target_os = "linux")]
pub fn is_dead(dir: &Path) -> bool {
    let error = answered_soon(dir, |dir| rustix::fs::statfs(dir).err()).flatten();
    matches!(error, Some(rustix::io::Errno::NOTCONN | rustix::io::Errno::CONNABORTED))
}

/// The answer of `ask` about a mount; `None` if it takes too long: a server that hangs must not block the caller.
fn answered_soon<T: Send + 'static>(dir: &Path, ask: impl FnOnce(&Path) -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    let dir = dir.to_owned();
    let asking = move || tell.send(ask(&dir)).unwrap_or_default();
    thread::Builder::new().name("ask".to_owned()).spawn(asking).ok()?;
    told.recv_timeout(ANSWER_MAX).ok()
}

/// The identity of an image, in the form in which its server answers.
#[must_use]
#[cfg(target_os = "linux")]
pub fn served_file(image: &std::fs::Metadata) -> ServedFile {
    let Identity { device, inode, number } = Identity::of(image);
    ServedFile { device, inode, number }
}

/// True if the server of the mount at `dir` has `image` open: the name in the table of mounts may lead to another file
/// by now. `None` if it does not answer. The mount has to be one that the user made.
#[must_use]
#[cfg(target_os = "linux")]
pub fn serves(dir: &Path, image: &std::fs::Metadata) -> Option<bool> {
    use std::os::fd::AsFd as _;

    let served = fuse::served_file(std::fs::File::open(dir).ok()?.as_fd()).ok()??;
    Some(served.is_same(&served_file(image)))
}

/// `None`: there are no mounts here.
#[must_use]
#[cfg(not(target_os = "linux"))]
pub fn serves(_dir: &Path, _image: &std::fs::Metadata) -> Option<bool> {
    None
}

/// A device number, as the table has it.
fn numbers(device: u64) -> String {
    let (major, minor) =
        (((device >> 32) & 0xffff_f000) | ((device >> 8) & 0xfff), ((device >> 12) & 0xffff_ff00) | (device & 0xff));
    format!("{major}:{minor}")
}

/// The kernel's table of mounts. It makes the table anew for each of the reads; a buffer for all of it saves most.
#[cfg(target_os = "linux")]
fn table() -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;

    let mut text = Vec::with_capacity(TABLE_LEN);
    std::fs::File::open(MOUNTINFO)?.read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(not(target_os = "linux"))]
fn table() -> std::io::Result<Vec<u8>> {
    Ok(Vec::new())
}

/// The mount of this program that a file is in.
///
/// # Errors
/// Those of the host.
pub fn of(found: &std::fs::Metadata) -> std::io::Result<Option<Mount>> {
    let device = numbers(found.dev());
    let text = table()?;
    let mut rows = text.split(|byte| *byte == b'\n').filter_map(row);
    Ok(rows.find(|row| row.is_ours() && row.device == device))
}

/// The mount that is seen at `dir`, which is absolute and free of links; the last one of several on top of each other.
///
/// # Errors
/// Those of the host.
pub fn find(dir: &Path) -> std::io::Result<Option<Mount>> {
    let text = table()?;
    Ok(find_in(&text, dir))
}

/// The last mount of this program that the user made and for which `is_it` is true.
///
/// # Errors
/// Those of the host.
pub fn serving(is_it: impl Fn(&Mount) -> bool) -> std::io::Result<Option<Mount>> {
    let text = table()?;
    let mut rows = text.split(|byte| *byte == b'\n').filter_map(row).filter(|row| row.is_ours() && row.is_own());
    Ok(rows.rfind(|row| is_it(row)))
}

/// The last mount of this program, made by the user, that serves any of these devices of a volume. A server that does
/// not answer is believed to serve the file that the name of its image leads to.
///
/// # Errors
/// Those of the host.
pub fn serving_any(devices: &[Locator]) -> std::io::Result<Option<Mount>> {
    for path in devices.iter().filter_map(Locator::path) {
        if let Some(mount) = find_image(path)? {
            return Ok(Some(mount));
        }
    }
    Ok(None)
}

/// As [`serving_any`], for the image `file`; `None` for a file that can be no image.
///
/// # Errors
/// Those of the host.
pub fn find_image(file: &Path) -> std::io::Result<Option<Mount>> {
    let wanted = std::fs::metadata(file)?;
    let kind = wanted.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(None);
    }
    let own = Identity::of(&wanted);
    serving(|row| {
        // A path below a mount of another user that covers this one would reach that user's server.
        if !find(&row.dir).is_ok_and(|seen| seen.as_ref() == Some(row)) {
            return false;
        }
        let images = Locator::parse_list(row.image()).unwrap_or_default();
        let is_it =
            |image: &Locator| image.identity().is_ok_and(|found| found.is_some_and(|found| found.is_same(&own)));
        if images.len() > 1 {
            // A server reports only its first device.
            return images.iter().any(is_it);
        }
        let wanted = wanted.clone();
        images.iter().any(is_it) && answered_soon(&row.dir, move |dir| serves(dir, &wanted)).flatten() != Some(false)
    })
}

/// The mount that has the directory `dir`, which is absolute and free of links, of any file system.
///
/// # Errors
/// Those of the host.
pub fn with(dir: &Path) -> std::io::Result<Option<Mount>> {
    let text = table()?;
    let rows = text.split(|byte| *byte == b'\n').filter_map(row).filter(|row| dir.starts_with(&row.dir));
    // Of several on top of each other, the last one is seen.
    Ok(rows.max_by_key(|row| row.dir.as_os_str().len()))
}

/// A writable mount of `file` by the kernel's own file system `kind`: of the block device, or through a loop device of
/// the regular file.
///
/// # Errors
/// Those of the host.
pub fn find_kernel(file: &Path, kind: &str) -> std::io::Result<Option<Mount>> {
    let wanted = std::fs::metadata(file)?;
    let text = table()?;
    let mut rows = text.split(|byte| *byte == b'\n').filter_map(row).filter(|row| row.kind == kind && !row.read_only);
    let is_it = |row: &Mount| {
        let Ok(source) = std::fs::metadata(&row.source) else { return false };
        let is_block = source.file_type().is_block_device();
        if wanted.file_type().is_block_device() {
            return is_block && source.rdev() == wanted.rdev();
        }
        let behind = behind_loop(&row.source).and_then(|path| std::fs::metadata(path).ok());
        behind.is_some_and(|file| (file.dev(), file.ino()) == (wanted.dev(), wanted.ino()))
    };
    Ok(rows.find(is_it))
}

/// The file behind a loop device.
fn behind_loop(device: &Path) -> Option<PathBuf> {
    let behind = Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file");
    let path = std::fs::read(behind).ok()?;
    Some(PathBuf::from(OsString::from_vec(path.trim_ascii_end().to_vec())))
}

/// All mounts of the file system of `row`, in the order in which they were mounted.
///
/// # Errors
/// Those of the host.
pub fn alike(row: &Mount) -> std::io::Result<Vec<Mount>> {
    let text = table()?;
    let rows = text.split(|byte| *byte == b'\n').filter_map(self::row);
    Ok(rows.filter(|other| other.is_of_the_same(row)).collect())
}

fn find_in(text: &[u8], dir: &Path) -> Option<Mount> {
    let mut rows = text.split(|byte| *byte == b'\n').filter_map(row);
    rows.rfind(|row| row.dir == dir)
}

/// `36 35 98:0 /root /dir rw,noatime shared:1 - type source options`
fn row(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = words.iter().position(|word| *word == b"-")?;
    let text = |index: usize| Some(String::from_utf8_lossy(words.get(index)?).into_owned());
    let has_ro = |index: usize| {
        let options = words.get(index).copied().unwrap_or_default();
        options.split(|byte| *byte == b',').any(|option| option == b"ro")
    };
    let user = words.get(dash + 3).copied().unwrap_or_default();
    let user = user.split(|byte| *byte == b',').find_map(|option| option.strip_prefix(b"user_id="));
    Some(Mount {
        device: text(2)?,
        root: unescape(words.get(3)?),
        dir: unescape(words.get(4)?),
        kind: text(dash + 1)?,
        source: unescape(words.get(dash + 2)?),
        read_only: has_ro(5) || has_ro(dash + 3),
        user: user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok()),
    })
}

/// Blanks, newlines and backslashes are written as `\ooo`.
fn unescape(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_is_found_with_its_escapes() {
        let text = b"22 1 254:0 / / rw,relatime - vfat /dev/vda rw\n\
            40 22 0:50 / /mnt/a\\040b rw,nosuid - fuse.other x rw,user_id=0\n\
            41 40 0:51 / /mnt/a\\040b rw,nosuid shared:3 - fuse.spinney /tmp/a\\134b.img ro,user_id=0\n";
        let row = find_in(text, Path::new("/mnt/a b")).unwrap();
        assert_eq!((row.kind.as_str(), row.device.as_str()), ("fuse.spinney", "0:51"));
        assert!(row.is_ours() && !row.is_synced());
        assert_eq!(row.backing_info(), Path::new("/sys/class/bdi/0:51"));
        assert_eq!(row.source, Path::new("/tmp/a\\b.img"));
        assert!(row.read_only);
        assert_eq!((row.user, row.root.as_path()), (Some(0), Path::new("/")));
        assert!(!find_in(text, Path::new("/")).unwrap().read_only);
        assert_eq!(find_in(text, Path::new("/mnt")), None);
        let synced = b"41 40 7:3 / /m rw - fuseblk.spinney /dev/loop3 rw\n";
        let row = find_in(synced, Path::new("/m")).unwrap();
        assert!(row.is_ours() && row.is_synced());
        assert_eq!(row.backing_info(), Path::new("/sys/class/bdi/7:3-fuseblk"));
    }
}
