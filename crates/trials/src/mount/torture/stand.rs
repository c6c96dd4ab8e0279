//! Makes and mounts an image for one side: by the kernel's btrfs, or by a server of ours. Called by `enospc`.

use super::super::fresh_mount::{Served, make_image, server_of};
use crate::formats::Kind;
use crate::system::{self, Mount};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Options of every mount of ours: snapshots are made through it.
const OPTIONS: &str = "allow_other,user_subvol_ioctls";

/// The system that mounts the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Side {
    /// Linux itself, through a loop device.
    Kernel,
    /// `spinney mount`.
    Plain,
    /// `spinney mount -o writeback`.
    Writeback,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Plain => "plain",
            Self::Writeback => "writeback",
        }
    }

    /// True if the kernel takes data before the server can check for space.
    pub(super) fn tells_late(self) -> bool {
        self == Self::Writeback
    }
}

#[derive(Debug)]
enum Mounted {
    Kernel(Mount),
    Ours(Served),
}

/// A mounted image.
#[derive(Debug)]
pub(super) struct Stand {
    side: Side,
    image: PathBuf,
    mounted: Mounted,
}

impl Stand {
    /// Makes an image of `bytes` with the side's own mkfs.
    pub(super) fn make(program: &Path, side: Side, image: &Path, bytes: u64) -> Result<()> {
        let _ = std::fs::remove_file(image);
        if side != Side::Kernel {
            return make_image(Kind::Btrfs, program, image, bytes);
        }
        system::make_image(image, bytes, &[])
    }

    /// Mounts it on `dir` (or the kernel's default directory), with `more` options.
    pub(super) fn mount(program: &Path, side: Side, image: &Path, dir: &Path, more: &str) -> Result<Self> {
        let options = |first: &str| match more {
            "" => first.to_owned(),
            more => format!("{first},{more}"),
        };
        let mounted = match side {
            Side::Kernel => Mounted::Kernel(Mount::new(image, &options("noatime,commit=5"))?),
            Side::Plain => Mounted::Ours(Served::of(Kind::Btrfs, program, image, dir, &options(OPTIONS))?),
            Side::Writeback => {
                Mounted::Ours(Served::of(Kind::Btrfs, program, image, dir, &options(&format!("{OPTIONS},writeback")))?)
            }
        };
        Ok(Self { side, image: image.to_owned(), mounted })
    }

    pub(super) fn side(&self) -> Side {
        self.side
    }

    pub(super) fn dir(&self) -> &Path {
        match &self.mounted {
            Mounted::Kernel(mount) => mount.path(),
            Mounted::Ours(served) => served.dir(),
        }
    }

    /// The process that serves it; `None` for the kernel.
    pub(super) fn server(&self) -> Option<i32> {
        match self.side {
            Side::Kernel => None,
            Side::Plain | Side::Writeback => server_of(&self.image),
        }
    }

    /// Available bytes according to `df`.
    pub(super) fn available(&self) -> Result<u64> {
        let status = rustix::fs::statvfs(self.dir())?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    /// `syncfs(2)`.
    pub(super) fn sync(&self) -> rustix::io::Result<()> {
        sync_of(self.dir())
    }

    pub(super) fn unmount(self) -> Result<()> {
        match self.mounted {
            Mounted::Kernel(mount) => mount.unmount(),
            Mounted::Ours(mut served) => served.unmount(),
        }
    }

    /// Runs a step with a time limit. A step that exceeds it is ended by killing the server, and is an error; one of
    /// the kernel cannot be ended.
    pub(super) fn within<T: Send>(
        &self,
        limit: Duration,
        what: &str,
        step: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            // The receiver is gone after the time limit.
            scope.spawn(move || drop(tell.send(step())));
            told.recv_timeout(limit).unwrap_or_else(|_| {
                if let Some(server) = self.server().and_then(Pid::from_raw) {
                    kill_process(server, Signal::KILL)?;
                }
                anyhow::bail!("HANGS: not done after {} s", limit.as_secs())
            })
        })
        .with_context(|| what.to_owned())
    }
}

/// `syncfs(2)` of the file system that `dir` is in.
pub(super) fn sync_of(dir: &Path) -> rustix::io::Result<()> {
    let dir = rustix::fs::open(dir, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())?;
    rustix::fs::syncfs(dir)
}
