//! A process with no mounts to see, and none to keep; a thread that sees next to nothing.

use rustix::fs::{FileType, Mode};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use std::io;
use std::path::Path;

/// What `work` does on a thread to which the root directory is an empty one but for the block device `node`, at the
/// absolute `path`. (A namespace of mounts would do, too, but would keep a copy of everybody's mounts for a moment, and
/// so who unmounts one just then would not have waited for its server.)
///
/// # Errors
/// `EPERM` without the rights to mount and to make nodes; those of `work`.
pub(crate) fn with_node_at<T: Send>(
    node: &str,
    path: &Path,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let number = rustix::fs::stat(node)?.st_rdev;
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    // Attached nowhere: it goes with its last user.
    let root = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let inside = path.strip_prefix("/").map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut above: Vec<&Path> = inside.ancestors().skip(1).collect();
    above.pop();
    for dir in above.into_iter().rev() {
        rustix::fs::mkdirat(&root, dir, Mode::RWXU)?;
    }
    rustix::fs::mknodat(&root, inside, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, number)?;
    let apart = || {
        // SAFETY: only where this thread is in the tree of files is no longer shared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS)? };
        rustix::process::fchdir(&root)?;
        rustix::process::chroot(".")?;
        work()
    };
    let run = std::thread::scope(|scope| scope.spawn(apart).join());
    run.unwrap_or_else(|_| Err(io::Error::other("the thread that mounts ended")))
}

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
