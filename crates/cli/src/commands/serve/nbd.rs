//! `spinney serve nbd`: an image, a part of it, or files in it as disks. Called by `serve`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use spinney::nbd::{DEFAULT_PORT, Export, Server};
use spinney::{Files, VolumeFileDevice};

use super::target::{Opened, Target, name_of};
use super::{Bound, ListenArgs, Service, run};
use crate::commands::failure::Failure;
use crate::commands::output::Output;

/// Serve an image, a partition, or files in an image as disks, by NBD
///
/// QEMU, the kernel (nbd-client), qemu-img, nbdcopy and this program use such disks. A file in an image can have
/// snapshots at no cost: serve it through a mount of its image, and take snapshots there. Every flush of a client is
/// one fsync of the file.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney serve nbd site.img                          the image as a disk, on 127.0.0.1:10809\n",
    "  spinney serve nbd 'disk.img?offset=1048576'         a partition of a disk image\n",
    "  spinney serve nbd --socket /run/vm.sock vms.img:/debian.raw\n",
    "  spinney serve nbd /mnt/vms/a.raw /mnt/vms/b.raw     two files of a mount, chosen by name\n",
    "\n",
    "  qemu-system-x86_64 -drive file=nbd:unix:/run/vm.sock,format=raw\n",
    "  nbd-client 127.0.0.1 /dev/nbd0\n",
    "  spinney ls nbd://127.0.0.1/"
))]
pub(crate) struct Nbd {
    /// An image (a file, a block device, IMAGE?offset=N), or files in one image or mount: IMAGE:/PATH
    #[arg(required = true, value_name = "IMAGE")]
    targets: Vec<OsString>,
    /// Serve this file in IMAGE; as IMAGE:/PATH. May be given several times
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,
    #[command(flatten)]
    listen: ListenArgs,
}

/// The disks that are served, and the files behind them.
struct Disks {
    server: Server,
    files: Option<Files>,
}

impl Service for Disks {
    fn serve(&self, socket: Arc<OwnedFd>, _peer: Option<SocketAddr>) {
        if let Err(error) = self.server.serve(socket) {
            tracing::debug!(%error, "a client lost its connection");
        }
    }

    fn end(&self) -> Result<()> {
        for export in self.server.exports().iter().filter(|export| !export.read_only) {
            export.device.flush()?;
        }
        if let Some(files) = self.files.as_ref().filter(|files| !files.file_system().is_read_only()) {
            files.sync()?;
        }
        Ok(())
    }
}

impl Nbd {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(super) fn run(&self, out: &mut Output) -> Result<()> {
        let (image, paths) = self.chosen()?;
        let opened = Opened::open(&image, self.listen.read_only)?;
        let read_only = self.listen.read_only;
        let shown = image.image.display().to_string();
        let open = |opened: Opened| match paths.is_empty() {
            true => whole(opened, read_only),
            false => files(opened, &paths, read_only),
        };
        let describe = |disks: &Disks, bound: &[Bound]| describe(disks, &shown, bound);
        run(&self.listen, DEFAULT_PORT, opened, open, describe, out)
    }

    /// The image or mount, and the files in it; none for the image itself.
    fn chosen(&self) -> Result<(Target, Vec<PathBuf>)> {
        let targets: Vec<Target> = self.targets.iter().map(|word| Target::parse(word)).collect();
        let Some(first) = targets.first().cloned() else { return Err(Failure::usage("nothing to serve").into()) };
        if let Some(other) = targets.iter().find(|target| target.image != first.image) {
            let (one, other) = (first.image.display(), other.image.display());
            let text = format!("{one} and {other}: expected files of one image or mount; start one server for each");
            return Err(Failure::usage(text).into());
        }
        let mut paths: Vec<PathBuf> = targets.iter().filter_map(|target| target.path.clone()).collect();
        if paths.len() + 1 < targets.len() || (!paths.is_empty() && paths.len() < targets.len()) {
            return Err(Failure::usage("expected either an image or files in it, not both").into());
        }
        paths.extend(self.file.iter().map(|path| Path::new("/").join(path)));
        Ok((first, paths))
    }
}

/// The image itself.
fn whole(opened: Opened, read_only: bool) -> Result<Disks> {
    let device = opened.into_device()?;
    let name = Path::new(device.name()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let export = Export { name, description: String::new(), device, read_only };
    Ok(Disks { server: Server::new(vec![export]), files: None })
}

/// Files of the image.
fn files(opened: Opened, paths: &[PathBuf], read_only: bool) -> Result<Disks> {
    let files = opened.into_files()?;
    let export = |path: &PathBuf| {
        let device = VolumeFileDevice::open(&files, path, read_only)?;
        Ok(Export { name: name_of(path), description: String::new(), device: Arc::new(device), read_only })
    };
    let exports = paths.iter().map(export).collect::<Result<_>>()?;
    Ok(Disks { server: Server::new(exports), files: Some(files) })
}

/// A line for each disk, and one with a command that uses the first.
fn describe(disks: &Disks, image: &str, bound: &[Bound]) -> Vec<String> {
    let exports = disks.server.exports();
    let mut lines = Vec::new();
    for place in bound {
        for export in exports {
            let how = if export.read_only { "read-only" } else { "read-write" };
            let uri = uri(place, &export.name);
            let path = if disks.files.is_some() { format!(":/{}", export.name) } else { String::new() };
            lines.push(format!("{image}{path}: {} bytes, {how}, at {uri}", export.device.size_bytes()));
        }
        let name = if exports.len() > 1 { exports.first().map_or("", |export| export.name.as_str()) } else { "" };
        lines.push(match place {
            Bound::Tcp(address) => {
                let name = if name.is_empty() { String::new() } else { format!(" -N '{name}'") };
                format!("use it with: nbd-client {} {} /dev/nbd0{name}", address.ip(), address.port())
            }
            _ => format!("use it with: qemu-img info '{}'", uri(place, name)),
        });
    }
    lines
}

/// The locator of an export.
fn uri(place: &Bound, name: &str) -> String {
    let encode = |text: &str, kept: &[u8]| -> String {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) || kept.contains(byte);
        let one = |byte: u8| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        text.bytes().map(one).collect()
    };
    match place {
        Bound::Tcp(address) => format!("nbd://{address}/{}", encode(name, b"")),
        Bound::Unix(path) => {
            format!("nbd+unix:///{}?socket={}", encode(name, b""), encode(&path.to_string_lossy(), b""))
        }
        Bound::Passed => "a socket of systemd".to_owned(),
    }
}
