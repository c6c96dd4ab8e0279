//! Identifies a file or block device of the host, and finds the processes that have it locked. Callers: `locator`, and
//! the code that looks for existing mounts of an image (`spinney::mounts`, `second_mount`).

#[cfg(unix)]
use std::fs::Metadata;
use std::io;

/// Device and inode number of a file of the host. Compare with [`Identity::is_same`]: `==` takes two device nodes of
/// one block device for different ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Identity {
    /// The device that the file is on.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
    /// The number of the block device that it is; 0 for any other file.
    pub number: u64,
}

impl Identity {
    /// The identity of the file that the host describes so.
    #[must_use]
    #[cfg(unix)]
    pub fn of(found: &Metadata) -> Self {
        use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
        let number = if found.file_type().is_block_device() { found.rdev() } else { 0 };
        Self { device: found.dev(), inode: found.ino(), number }
    }

    /// True for two names of one file, or of one block device.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.number, other.number) {
            (0, 0) => (self.device, self.inode) == (other.device, other.inode),
            (one, other) => one == other,
        }
    }

    /// The processes that hold a lock on it, as an open device does ([`crate::backends::FileDevice`]): those that this
    /// process may see. Only Linux tells.
    ///
    /// # Errors
    /// Those of reading `/proc/locks`; `Unsupported` on other systems.
    #[cfg(target_os = "linux")]
    pub fn holders(&self) -> io::Result<Vec<Holder>> {
        let locks = std::fs::read_to_string("/proc/locks")?;
        let mut found: Vec<u32> = locks.lines().filter_map(|line| self.holder(line)).collect();
        found.sort_unstable();
        found.dedup();
        let named = found.into_iter().filter_map(|process| {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
            Some(Holder { process, name: name.trim_end().to_owned() })
        });
        Ok(named.collect())
    }

    /// The processes that hold a lock on it. Only Linux tells.
    ///
    /// # Errors
    /// `Unsupported`.
    #[cfg(not(target_os = "linux"))]
    pub fn holders(&self) -> io::Result<Vec<Holder>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The process of a line of `/proc/locks` about it: `1: FLOCK  ADVISORY  WRITE 731 fe:00:1234 0 EOF`.
    #[cfg(target_os = "linux")]
    fn holder(&self, line: &str) -> Option<u32> {
        let mut words = line.split_whitespace().skip(1);
        // A process that waits for the lock has an arrow before the kind.
        let is_held = words.next()? == "FLOCK";
        let (process, file) = (words.nth(2)?.parse().ok()?, words.next()?);
        let (major, minor) = (rustix::fs::major(self.device), rustix::fs::minor(self.device));
        (is_held && file == format!("{major:02x}:{minor:02x}:{}", self.inode)).then_some(process)
    }
}

/// A process that has a file locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Number of the process.
    pub process: u32,
    /// Name of its program, of at most 15 bytes.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let identity = Identity::of(&file.as_file().metadata().unwrap());
        assert_eq!(identity.holders().unwrap(), []);
        let own = Identity { device: rustix::fs::makedev(0xfe, 0), inode: 1234, number: 0 };
        assert_eq!(own.holder("1: FLOCK  ADVISORY  WRITE 731 fe:00:1234 0 EOF"), Some(731));
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 731 fe:00:1234 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 731 fe:00:1235 0 EOF",
            "2: POSIX  ADVISORY  WRITE 731 fe:00:1234 0 EOF",
            "3: OFDLCK ADVISORY  READ -1 fe:00:1234 0 EOF",
            "",
        ] {
            assert_eq!(own.holder(other), None, "{other}");
        }
        file.as_file().lock().unwrap();
        let holders = identity.holders().unwrap();
        assert!(holders.iter().all(|holder| holder.process == std::process::id()), "{holders:?}");
    }
}
