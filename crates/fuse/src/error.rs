//! Defines the errors outside of requests: of mounting, serving and unmounting. `mount`, `server` and `transport`
//! return them.

use std::io;
use std::path::PathBuf;
use vfs::Errno;

/// Result of a call by a front end.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a mount could not be made, served or ended.
///
/// To do: see the cause behind the colon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's path cannot be mounted on.
    ///
    /// To do: give an empty directory of yours.
    #[error("{path}: {source}", path = .path.display())]
    MountPoint {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The caller's options cannot be passed on.
    #[error("a mount option holds a zero byte")]
    Option,
    /// The system refused to mount.
    #[error("cannot mount on {path}: {source}", path = .path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refused to unmount.
    #[error("cannot unmount {path}: {source}", path = .path.display())]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The program that mounts for unprivileged users cannot be run.
    ///
    /// To do: install the package `fuse3`.
    #[error("cannot run fusermount3: {0}")]
    Helper(io::Error),
    /// `fusermount3`, which mounts for unprivileged users, is in no directory of `PATH`.
    ///
    /// To do: install the package `fuse3`.
    #[error("fusermount3 is not installed: install the package fuse3{}", unreadable_note(.unreadable))]
    HelperMissing {
        /// Directories of the path that this user may not search.
        unreadable: Vec<PathBuf>,
    },
    /// The program that mounts for unprivileged users refused.
    ///
    /// To do: do as the message says; `allow_other` needs `user_allow_other` in /etc/fuse.conf.
    #[error("{text}{}", refusal_advice(.text, *.advice))]
    HelperRefused {
        /// Its messages.
        text: String,
        /// The reason, as far as this process can detect it.
        advice: Limit,
    },
    /// `/dev/fuse` cannot be opened.
    ///
    /// To do: load the module `fuse`, or give the container the device /dev/fuse.
    #[error("cannot open /dev/fuse: {source}; {}", device_advice(.source))]
    NoDevice {
        /// The error of `open(2)`.
        source: io::Error,
    },
    /// The FUSE device failed.
    #[error("/dev/fuse: {0}")]
    Device(io::Error),
    /// The kernel's protocol is too old, or unknown.
    ///
    /// To do: use a kernel from 5.17 on.
    #[error("the kernel speaks FUSE {major}.{minor}, which is not supported")]
    Protocol {
        /// Major version, 0 if the message was no offer.
        major: u32,
        /// Minor version.
        minor: u32,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A worker ended unexpectedly.
    ///
    /// To do: report it with `spinney version --verbose`; after that, open the volume again.
    #[error("a worker of the server ended unexpectedly")]
    Worker,
    /// The file system could not make all data durable at the end.
    ///
    /// To do: the image has the last commit; see the cause, and copy again what you wrote after it.
    #[error("not everything could be written: {0}")]
    FinalSync(Errno),
}

/// The reasons why `fusermount3` cannot become root, or cannot mount as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// This process is root without CAP_SYS_ADMIN, as in a container.
    NoCapability,
    /// This process has `no_new_privs`, so set-user bits of programs have no effect.
    NoNewPrivileges,
    /// This process is in a user namespace.
    UserNamespace,
    /// AppArmor is active and may restrict this process or `fusermount3`.
    SecurityModule,
    /// No known reason.
    Unknown,
}

fn unreadable_note(dirs: &[PathBuf]) -> String {
    if dirs.is_empty() {
        return String::new();
    }
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    format!(" (this user may not search {}, which PATH names)", dirs.join(" and "))
}

fn device_advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => {
            "load the kernel module (`modprobe fuse`); a container gets the device with `--device /dev/fuse`"
        }
        io::ErrorKind::PermissionDenied => {
            "root has to let this user use it (`chmod 666 /dev/fuse`); a container gets it with `--device /dev/fuse`"
        }
        _ => "load the kernel module (`modprobe fuse`)",
    }
}

fn refusal_advice(text: &str, limit: Limit) -> &'static str {
    if text.contains("allow_other") {
        return "";
    }
    let is_denied = text.contains("ermission denied") || text.contains("not permitted");
    match limit {
        Limit::NoCapability if is_denied => {
            "; this container may not mount: start it with `--device /dev/fuse --cap-add SYS_ADMIN --security-opt \
             apparmor=unconfined`"
        }
        Limit::NoNewPrivileges if is_denied => {
            "; fusermount3 cannot become root here, as this process was started without the right to gain privileges \
             (no_new_privs: NoNewPrivileges= of systemd, or `no-new-privileges` of a container)"
        }
        Limit::UserNamespace if is_denied => {
            "; fusermount3 cannot become root in a namespace of users: mount from outside of it, or make a namespace \
             of mounts as well (`unshare -rm`)"
        }
        Limit::SecurityModule if is_denied => {
            "; AppArmor may forbid it: its profile of fusermount3 allows mounts below the home directory, /mnt, \
             /media, /tmp and /run/user (`aa-status` and the kernel's log say more)"
        }
        _ => "",
    }
}
