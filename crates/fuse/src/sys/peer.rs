//! Identifies the user at the other end of a socket, and the node and server of an open directory of a mount. Called by
//! the server of the `mount` command for its clients, and by those that look for an existing mount (`spinney::mounts`).

use rustix::fd::{AsRawFd as _, BorrowedFd};
use rustix::ioctl;
use std::io;
use vfs::NodeId;

/// Returns the number of the socket for clients besides the kernel; 0 if there is none.
pub(crate) const SOCKET: ioctl::Opcode = ioctl::opcode::read::<[u64; 2]>(b'S', 0xbb);

/// Returns the [`ServedFile`] of the server as three numbers, all 0 if the server does not tell.
pub(crate) const SERVED: ioctl::Opcode = ioctl::opcode::read::<[u64; 3]>(b'S', 0xbc);

/// Identity of the file that a server has open as its image, whatever its name leads to by now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServedFile {
    /// Device number of the file system that holds the file.
    pub device: u64,
    /// Its inode number.
    pub inode: u64,
    /// Its device number if it is a block device; 0 for a regular file.
    pub number: u64,
}

impl ServedFile {
    pub(crate) const fn numbers(self) -> [u64; 3] {
        [self.device, self.inode, self.number]
    }

    /// True for two names of one image.
    #[must_use]
    pub const fn is_same(&self, other: &Self) -> bool {
        match (self.number, other.number) {
            (0, 0) => self.device == other.device && self.inode == other.inode,
            (one, another) => one == another,
        }
    }
}

/// Most groups of a process in Linux.
const GROUPS_MAX: usize = 65_536;
/// Type of the kernel's handles for FUSE (`FILEID_INO64_GEN`): the upper and the lower half of the node's number, and
/// its generation.
const HANDLE_TYPE: i32 = 0x81;

/// The number of the socket at which the server of a mount takes clients besides the kernel; `dir` is an open directory
/// of that mount. `None` if it takes none.
///
/// # Errors
/// The system's, if the server cannot be asked.
pub fn socket_number(dir: BorrowedFd<'_>) -> io::Result<Option<[u64; 2]>> {
    // SAFETY: the operation writes two u64 through the pointer it is given, and `Getter` gives it a pointer to two that
    // live as long as the call, and take any value.
    let number = unsafe { ioctl::ioctl(dir, ioctl::Getter::<SOCKET, [u64; 2]>::new()) };
    match number {
        Ok([0, 0]) | Err(rustix::io::Errno::NOTTY | rustix::io::Errno::NOSYS) => Ok(None),
        Ok(number) => Ok(Some(number)),
        Err(error) => Err(error.into()),
    }
}

/// The file that the server of a mount has open as its image; `dir` is an open directory of that mount. `None` if the
/// server does not tell.
///
/// # Errors
/// The system's, if the server cannot be asked.
pub fn served_file(dir: BorrowedFd<'_>) -> io::Result<Option<ServedFile>> {
    // SAFETY: the operation writes three u64 through the pointer it is given, and `Getter` gives it a pointer to three
    // that live as long as the call, and take any value.
    let numbers = unsafe { ioctl::ioctl(dir, ioctl::Getter::<SERVED, [u64; 3]>::new()) };
    match numbers {
        Ok([0, 0, 0]) | Err(rustix::io::Errno::NOTTY | rustix::io::Errno::NOSYS) => Ok(None),
        Ok([device, inode, number]) => Ok(Some(ServedFile { device, inode, number })),
        Err(error) => Err(error.into()),
    }
}

/// Supplementary groups that a process had when it connected a Unix socket.
///
/// # Errors
/// The system's.
pub fn peer_groups(stream: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut bytes = libc_len(groups.len())?;
        // SAFETY: the option writes at most `bytes` bytes to where `groups` are, which has as many and takes any value,
        // and to `bytes` how many it has; both outlive the call.
        let done = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = usize::try_from(bytes).map_err(io::Error::other)? / size_of::<u32>();
        if done == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        // The kernel has returned their number.
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() || count > GROUPS_MAX {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

fn libc_len(count: usize) -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(count.saturating_mul(size_of::<u32>())).map_err(io::Error::other)
}

/// The FUSE node of a descriptor; the server is not asked.
///
/// # Errors
/// `InvalidInput` for a descriptor of another file system; the system's.
pub fn node_of(descriptor: BorrowedFd<'_>) -> io::Result<NodeId> {
    const WORDS: usize = 3;
    #[repr(C)]
    struct FileHandle {
        bytes: u32,
        kind: i32,
        words: [u32; WORDS],
    }
    let bytes = u32::try_from(WORDS * size_of::<u32>()).map_err(io::Error::other)?;
    let mut handle = FileHandle { bytes, kind: 0, words: [0; WORDS] };
    let mut mount = 0_i32;
    // SAFETY: the path is an empty string; the kernel writes at most `bytes` bytes behind both numbers of the handle,
    // which are there, and one i32 to `mount`; all outlive the call. The layout is that of `struct file_handle`.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            descriptor.as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let [upper, lower, _] = handle.words;
    match handle.kind {
        HANDLE_TYPE if handle.bytes == bytes => Ok(NodeId(u64::from(upper) << 32 | u64::from(lower))),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}
