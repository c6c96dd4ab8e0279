//! Makes mount namespaces: a process without mounts, and a thread that sees a single device. Called by the sandbox of
//! the `mount` command, and by `mount/direct`.

use rustix::fs::{FileType, Mode};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use std::io;
use std::path::Path;

/// Runs `work` on a thread whose root directory is empty except for the block device `node`, at the absolute `path`. (A
/// mount namespace would do, too, but would hold copies of all mounts for a moment, and unmounting one of them just
/// then would not wait for its server.)
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
    // Attached nowhere: it is freed with its last user.
    let root = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let inside = path.strip_prefix("/").map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut above: Vec<&Path> = inside.ancestors().skip(1).collect();
    above.pop();
    for dir in above.into_iter().rev() {
        rustix::fs::mkdirat(&root, dir, Mode::RWXU)?;
    }
    rustix::fs::mknodat(&root, inside, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, number)?;
    let apart = || {
        // SAFETY: only the root and working directory of this thread are no longer shared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS)? };
        rustix::process::fchdir(&root)?;
        rustix::process::chroot(".")?;
        work()
    };
    let run = std::thread::scope(|scope| scope.spawn(apart).join());
    run.unwrap_or_else(|_| Err(io::Error::other("the thread that mounts ended")))
}

/// Moves this process, which must have one thread, into a mount namespace of its own with copies of all mounts; into a
/// user namespace first where `user` asks for it, and into a network namespace without a network where `network` does.
/// No mount of it reaches the other namespace. Mounts that end there end here, too: a copy would keep them busy.
///
/// # Errors
/// `EPERM` where the kernel allows no user namespaces; `ENOSPC` for too many of them.
pub fn enter_namespaces(user: bool, network: bool) -> io::Result<()> {
    let mut flags = UnshareFlags::NEWNS;
    flags.set(UnshareFlags::NEWUSER, user);
    flags.set(UnshareFlags::NEWNET, network);
    // SAFETY: the table of open files is not unshared, so descriptors are shared as before.
    unsafe { rustix::thread::unshare_unsafe(flags)? };
    let own = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", own)?)
}

/// Moves this process, which must have one thread, into a mount namespace of its own with only an empty, read-only
/// directory. Open files stay open. `dir` is any directory but the root; it is not changed.
///
/// The last process of a mount namespace unmounts its mounts while it ends, and for a mount on a block device the
/// kernel waits for the server then. A server that is this last process would wait for itself, killed or not, and
/// `sync(2)` of the whole machine would wait for it. (`do_exit` gives up namespaces before it closes the FUSE device.)
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`. The process may be in the new namespace already, with copies of its mounts; later
/// mounts do not appear among them.
pub fn leave_mounts(dir: &Path) -> io::Result<()> {
    // SAFETY: the table of open files is not unshared, so descriptors are shared as before.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)? };
    let own = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", own)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("none", dir, "tmpfs", flags, Some(c"mode=555,nr_inodes=1,size=4k"))?;
    rustix::process::chdir(dir)?;
    // The old root ends up below the new one, at the same path, from where it is detached with everything on it.
    match rustix::process::pivot_root(".", ".") {
        Ok(()) => rustix::mount::unmount(".", UnmountFlags::DETACH)?,
        // The first root of a machine (of an initramfs) cannot be left in this way, but can be covered.
        Err(rustix::io::Errno::INVAL) => {
            rustix::mount::mount_move(".", "/")?;
            rustix::process::chroot(".")?;
        }
        Err(error) => return Err(error.into()),
    }
    rustix::process::chdir("/")?;
    Ok(())
}
