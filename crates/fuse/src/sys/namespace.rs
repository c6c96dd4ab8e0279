//! A process with no mounts to see, and none to keep.

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use std::io;
use std::path::Path;

/// Moves this process, which must have one thread, into a mount namespace of its own with nothing in it but an empty,
/// read-only directory. What is open stays open. `dir` is any directory; nothing happens to it.
///
/// The last process of a mount namespace unmounts what is in it while it ends, and the kernel waits for the server of a
/// mount on a block device then. A server that is this last process would wait for itself, killed or not, and `sync(2)`
/// of the whole machine behind it. (`do_exit` gives up namespaces before it closes the FUSE device.)
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`. The process may be in the new namespace already, with copies of the mounts that it
/// had; these are its own, and nothing that is mounted later appears among them.
pub fn leave_mounts(dir: &Path) -> io::Result<()> {
    // SAFETY: descriptors stay shared with nobody new: the table of open files is not unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)? };
    let own = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", own)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("none", dir, "tmpfs", flags, Some(c"mode=555,nr_inodes=1,size=4k"))?;
    rustix::process::chdir(dir)?;
    // The old root ends up below the new one, in the same place, from where it is let go with everything on it.
    match rustix::process::pivot_root(".", ".") {
        Ok(()) => rustix::mount::unmount(".", UnmountFlags::DETACH)?,
        // The first root of a machine (of an initramfs) cannot be left in this way; it can be covered.
        Err(rustix::io::Errno::INVAL) => {
            rustix::mount::mount_move(".", "/")?;
            rustix::process::chroot(".")?;
        }
        Err(error) => return Err(error.into()),
    }
    rustix::process::chdir("/")?;
    Ok(())
}
