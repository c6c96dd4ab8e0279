//! `spinney serve http`: the files of an image or mount, for browsers. Called by `serve`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use spinney::access::{Permitted, User};
use spinney::vfs::file_system::Follow;
use spinney::web::server::Site;
use spinney::{Errno, Error, Files};

use super::target::{Opened, Target};
use super::{Bound, ListenArgs, Service, run};
use crate::commands::failure::Failure;
use crate::commands::output::Output;

/// Port of servers that are for one machine.
const DEFAULT_PORT: u16 = 8080;
/// Stands for all hosts.
const ANY_HOST: &str = "*";

/// Show the files of an image or mount to browsers, read-only
///
/// Directories are pages, with their sizes and times; `?tar`, `?zip` and the names DIR.tar and DIR.zip are archives
/// of them. Files come whole or in ranges, so that players can seek and downloads can go on. Nothing can be changed.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney serve http site.img                   at http://127.0.0.1:8080/\n",
    "  spinney serve http site.img:/home/ada         one directory\n",
    "  spinney serve http https://host/site.img      an image that is on a web server\n",
    "  spinney serve http --listen 0.0.0.0:80 --host files.example /mnt/site/pub\n",
    "\n",
    "  curl -O http://127.0.0.1:8080/home.tar"
))]
pub(crate) struct Http {
    /// An image, a directory in it (IMAGE:/DIR), or a directory of a mount
    #[arg(value_name = "IMAGE")]
    target: OsString,
    #[command(flatten)]
    listen: ListenArgs,
    /// Show what this user of the image may read: yourself (the default), or root, who may read everything
    #[arg(long = "as", value_name = "USER", default_value = "me")]
    reader: Reader,
    /// Answer for this name of the machine too, beside `localhost` and addresses of numbers; * for any name
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
}

/// The user whose permissions count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Reader {
    /// The user who runs the command.
    Me,
    /// The image's root.
    Root,
}

struct Pages(Site);

impl Service for Pages {
    fn serve(&self, socket: Arc<OwnedFd>, _peer: Option<SocketAddr>) {
        self.0.serve(socket);
    }

    fn end(&self) -> Result<()> {
        Ok(())
    }
}

impl Http {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(super) fn run(&self, out: &mut Output) -> Result<()> {
        let target = Target::parse(&self.target);
        let opened = Opened::open(&target, true)?;
        let is_mount = matches!(opened, Opened::Mount(_));
        if is_mount && self.reader == Reader::Root && !rustix::process::geteuid().is_root() {
            let text = "--as root applies to images: the server of a mount gives this user what he may read";
            return Err(Failure::usage(text).into());
        }
        let title = Path::new(&self.target).file_name().unwrap_or(&self.target).to_string_lossy().into_owned();
        let path = target.path.unwrap_or_else(|| PathBuf::from("/"));
        // Before the sandbox, which has no call for groups.
        let user = self.user()?;
        let open = |opened: Opened| {
            let files = seen(&opened.into_files()?, &path, user)?;
            let site = Site::new(files, title);
            let is_open = self.host.iter().any(|host| host == ANY_HOST);
            Ok(Pages(if is_open { site } else { site.for_hosts(self.host.clone()) }))
        };
        let shown = self.target.display();
        let describe = |_: &Pages, bound: &[Bound]| bound.iter().map(|place| describe(place, &shown)).collect();
        run(&self.listen, DEFAULT_PORT, opened, open, describe, out)
    }

    fn user(&self) -> Result<User> {
        if self.reader == Reader::Root {
            return Ok(User { uid: 0, gid: 0, groups: Vec::new(), serves: true });
        }
        let groups = rustix::process::getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(User { uid, gid, groups, serves: true })
    }
}

/// The files below a directory, as a user may see them.
fn seen(files: &Files, path: &Path, user: User) -> Result<Files> {
    let file_system = Arc::clone(files.file_system());
    let base = file_system.resolve(path.as_os_str().as_encoded_bytes(), Follow::Last);
    let base = base.map_err(|error| error.at(path))?;
    if !base.attr.is_dir() {
        return Err(Error::from(Errno::ENOTDIR).during("serve").at(path)).context("expected a directory");
    }
    Ok(Files::new(Arc::new(Permitted::new(file_system, user, base.node, true))))
}

/// The line that says how a browser finds the files.
fn describe(place: &Bound, shown: &impl std::fmt::Display) -> String {
    match place {
        Bound::Tcp(address) => format!("{shown}, read-only, at http://{address}/"),
        Bound::Unix(path) => {
            let path = path.display();
            format!("{shown}, read-only: curl --unix-socket {path} http://localhost/")
        }
        Bound::Passed => format!("{shown}, read-only, on a socket of systemd"),
    }
}
