//! `spinney serve nfs`: exports an image, or a directory in it, over NFS. Called by `serve`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use spinney::Files;
use spinney::nfs::{DEFAULT_PORT, Options, Server, Squash};

use super::target::{Opened, Target};
use super::{Bound, ListenArgs, Service, key, run};
use crate::commands::failure::Failure;
use crate::commands::output::Output;

/// Let this machine and others mount an image by NFS version 3, without FUSE
///
/// The server prints the commands that mount it. Changes of names and attributes are durable before the server replies,
/// written data when the client syncs or closes the file. Mounts survive a restart of the server. It trusts the numbers
/// of users that clients send: serve only to machines that you trust.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney serve nfs site.img                        on 127.0.0.1:2049\n",
    "  spinney serve nfs site.img:/home/ada --listen 0   one directory, on a free port, which is printed\n",
    "  spinney serve nfs --all-squash 1000:1000 site.img all clients act as this user of the image\n",
    "\n",
    "  mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,nolock 127.0.0.1:/ /mnt              Linux\n",
    "  mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,locallocks 127.0.0.1:/ /Volumes/site  macOS\n",
    "\n",
    "File handles are signed with the key in $XDG_STATE_HOME/spinney/nfs.key (~/.local/state/spinney without it),\n",
    "which the server makes when it is first started."
))]
pub(crate) struct Nfs {
    /// An image, or a directory in it (IMAGE:/DIR)
    #[arg(value_name = "IMAGE")]
    target: OsString,
    #[command(flatten)]
    listen: ListenArgs,
    /// Give root on clients the rights of root; by default it acts as user and group 65534
    #[arg(long, conflicts_with = "all_squash")]
    no_root_squash: bool,
    /// Treat all users of clients as this user and group
    #[arg(long, value_name = "UID:GID")]
    all_squash: Option<Owner>,
    /// Sign file handles with the key in this file, which is made if it is missing
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// A user and a group.
#[derive(Debug, Clone, Copy)]
struct Owner {
    uid: u32,
    gid: u32,
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed: Option<(u32, u32)> =
            text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
        let valid = parsed.filter(|(uid, gid)| *uid != u32::MAX && *gid != u32::MAX);
        let (uid, gid) = valid.ok_or("expected two numbers of a user and a group, UID:GID")?;
        Ok(Self { uid, gid })
    }
}

/// The server, and the file system that it exports.
struct Exported {
    server: Server,
    files: Files,
}

impl Service for Exported {
    fn serve(&self, socket: Arc<OwnedFd>, peer: Option<SocketAddr>) {
        if let Err(error) = self.server.serve(socket, peer) {
            tracing::debug!(%error, "a client lost its connection");
        }
    }

    fn end(&self) -> Result<()> {
        if !self.files.file_system().is_read_only() {
            self.files.sync()?;
        }
        Ok(())
    }
}

impl Nfs {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(super) fn run(&self, out: &mut Output) -> Result<()> {
        let target = Target::parse(&self.target);
        if target.is_mount() {
            let name = target.image.display();
            let text = format!("{name} is a mount; serve nfs takes images: unmount it first, or export the mount");
            return Err(Failure::refused(format!("{text} with the NFS server of this machine")).into());
        }
        let read_only = self.listen.read_only;
        let opened = Opened::open(&target, read_only)?;
        // Read before the server enters its sandbox, in which it cannot open files.
        let key = key::read_or_make(self.key.as_deref())?;
        let path = target.path.clone().unwrap_or_else(|| PathBuf::from("/"));
        let squash = self.squash();
        let open = |opened: Opened| {
            let (files, uuid) = opened.into_volume()?;
            let path_bytes = path.as_os_str().as_bytes().to_vec();
            let options = Options { path: path_bytes, uuid, key, squash, read_only };
            let server = Server::new(Arc::clone(files.file_system()), &options);
            let server = server.map_err(|error| error.during("serve").at(&path)).context("expected a directory")?;
            Ok(Exported { server, files })
        };
        let shown = Path::new(&self.target).display();
        let how = if read_only { "read-only" } else { "read-write" };
        let describe = |_: &Exported, bound: &[Bound]| {
            bound.iter().flat_map(|place| describe(place, &format!("{shown}, {how}"))).collect()
        };
        run(&self.listen, DEFAULT_PORT, opened, open, describe, out)
    }

    fn squash(&self) -> Squash {
        match self.all_squash {
            Some(Owner { uid, gid }) => Squash::All { uid, gid },
            None if self.no_root_squash => Squash::None,
            None => Squash::Root,
        }
    }
}

/// The lines that name the address of the server, and the commands to mount it.
fn describe(place: &Bound, shown: &str) -> Vec<String> {
    let Bound::Tcp(address) = place else { return vec![format!("{shown}, at {place}")] };
    let port = address.port();
    let host = match address {
        SocketAddr::V4(address) if address.ip().is_unspecified() => "HOST".to_owned(),
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) if address.ip().is_unspecified() => "HOST".to_owned(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    };
    let proto = if address.is_ipv6() { "tcp6" } else { "tcp" };
    let mount = |locks: &str| {
        format!("mount -t nfs -o vers=3,proto={proto},port={port},mountport={port},{locks} {host}:/ DIR")
            .replace("proto=tcp,", "tcp,")
    };
    vec![
        format!("{shown}, at {address}"),
        format!("mount it on Linux: {}", mount("nolock")),
        format!("mount it on macOS: {}", mount("locallocks")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_that_mount_name_the_port_twice() {
        let lines = describe(&Bound::Tcp(SocketAddr::from(([127, 0, 0, 1], 81))), "a.img, read-write");
        assert_eq!(lines[0], "a.img, read-write, at 127.0.0.1:81");
        let linux = "mount -t nfs -o vers=3,tcp,port=81,mountport=81,nolock 127.0.0.1:/ DIR";
        assert_eq!(lines[1], format!("mount it on Linux: {linux}"));
        assert!("1000:100".parse::<Owner>().is_ok() && "ada".parse::<Owner>().is_err());
    }
}
