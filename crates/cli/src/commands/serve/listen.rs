//! Decides where clients of `serve` connect: an address, a path, or sockets that systemd passes. Every protocol has its
//! arguments.

use std::fmt;
use std::fs::Permissions;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use rustix::net::AddressFamily;

use crate::commands::failure::Failure;
use crate::commands::output;

/// Permissions of a socket that is made at a path: the user's own.
const SOCKET_MODE: u32 = 0o600;
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 128;

/// Where clients connect, and what they may do.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListenArgs {
    /// Listen on this address: HOST, PORT or HOST:PORT; by default 127.0.0.1 and the port of the protocol. Port 0
    /// takes a free one, which is printed
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Listen on a Unix socket, which is made at PATH for this user alone (mode 0600)
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// Refuse every change
    #[arg(long)]
    pub(super) read_only: bool,
    /// Do not restrict the server, to debug it
    #[arg(long)]
    pub(super) no_sandbox: bool,
}

/// A place where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bound {
    /// An address of TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
    /// A socket that systemd passed, whose address it knows.
    Passed,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
            Self::Passed => f.write_str("a socket of systemd"),
        }
    }
}

/// Sockets that are listened on.
#[derive(Debug)]
pub(super) struct Listener {
    sockets: Vec<OwnedFd>,
    bound: Vec<Bound>,
    own_path: Option<PathBuf>,
}

impl Listener {
    pub(super) fn bound(&self) -> &[Bound] {
        &self.bound
    }

    /// The socket that was made here, and is removed at the end.
    pub(super) fn own_path(&self) -> Option<&Path> {
        self.own_path.as_deref()
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(OwnedFd::as_fd)
    }
}

impl ListenArgs {
    /// Listens: on sockets that systemd passed, or else as the arguments say. `port` is the protocol's.
    ///
    /// # Errors
    /// `Usage` for an address that is none; errors of the system.
    pub(super) fn listen(&self, port: u16) -> Result<Listener> {
        let passed = spinney::fuse::passed_listeners().context("sockets of systemd")?;
        if !passed.is_empty() {
            if self.listen.is_some() || self.socket.is_some() {
                let text = "systemd passes sockets: --listen and --socket do not apply (LISTEN_FDS is set)";
                return Err(Failure::usage(text).into());
            }
            let bound = passed.iter().map(bound_of).collect();
            return Ok(Listener { sockets: passed, bound, own_path: None });
        }
        match &self.socket {
            Some(path) => listen_at(path).with_context(|| path.display().to_string()),
            None => self.listen_tcp(port),
        }
    }

    fn listen_tcp(&self, port: u16) -> Result<Listener> {
        let asked = self.listen.as_deref().unwrap_or_default();
        let addresses = addresses(asked, port)?;
        let listener = TcpListener::bind(addresses.as_slice()).with_context(|| format!("{addresses:?}"))?;
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() {
            output::warn(&format!("{address} is reachable from other machines, by everybody and without encryption"));
        }
        let socket = OwnedFd::from(listener);
        // Accepted connections inherit it.
        rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
        Ok(Listener { sockets: vec![socket], bound: vec![Bound::Tcp(address)], own_path: None })
    }
}

/// The addresses that the text of `--listen` names.
fn addresses(text: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let wrong = || Failure::usage(format!("--listen {text}: expected HOST, PORT or HOST:PORT"));
    if text.is_empty() {
        return Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
    }
    if let Ok(port) = text.parse::<u16>() {
        return Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found: io::Result<Vec<_>> = match text.contains(':') {
        true => text.to_socket_addrs().map(Iterator::collect),
        false => (text, port).to_socket_addrs().map(Iterator::collect),
    };
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(wrong().into()),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(wrong().into()),
        Err(error) => Err(error).with_context(|| format!("--listen {text}")),
    }
}

/// Makes a socket at a path. One that an earlier server left, and that nobody listens on, is replaced.
fn listen_at(path: &Path) -> io::Result<Listener> {
    let path = std::path::absolute(path)?;
    if let Ok(found) = std::fs::symlink_metadata(&path)
        && found.file_type().is_socket()
        && UnixStream::connect(&path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(&path)?;
    }
    // No other user may connect before the mode is set.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let made = UnixListener::bind(&path);
    rustix::process::umask(before);
    let listener = made?;
    std::fs::set_permissions(&path, Permissions::from_mode(SOCKET_MODE))?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(Listener { sockets: vec![listener.into()], bound: vec![Bound::Unix(path.clone())], own_path: Some(path) })
}

/// The address of a socket that was passed.
fn bound_of(socket: &OwnedFd) -> Bound {
    let is_unix = rustix::net::sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX);
    let Ok(copy) = socket.try_clone() else { return Bound::Passed };
    if is_unix {
        let address = UnixListener::from(copy).local_addr().ok();
        return address
            .and_then(|address| Some(Bound::Unix(address.as_pathname()?.to_owned())))
            .unwrap_or(Bound::Passed);
    }
    TcpListener::from(copy).local_addr().map_or(Bound::Passed, Bound::Tcp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_leave_out_its_host_or_port() {
        let local = |port| vec![SocketAddr::from(([127, 0, 0, 1], port))];
        assert_eq!(addresses("", 80).unwrap(), local(80));
        assert_eq!(addresses("0", 80).unwrap(), local(0));
        assert_eq!(addresses("127.0.0.1", 80).unwrap(), local(80));
        assert_eq!(addresses("127.0.0.1:81", 80).unwrap(), local(81));
        assert_eq!(addresses("[::1]", 80).unwrap(), ["[::1]:80".parse().unwrap()]);
        assert_eq!(addresses("[::1]:81", 80).unwrap(), ["[::1]:81".parse().unwrap()]);
        assert!(addresses("127.0.0.1:many", 80).is_err());
    }

    #[test]
    fn a_socket_is_the_users_own_and_replaces_one_that_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let first = listen_at(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(listen_at(&path).is_err(), "it is in use");
        drop(first);
        listen_at(&path).unwrap();
        std::fs::write(dir.path().join("file"), "kept").unwrap();
        assert!(listen_at(&dir.path().join("file")).is_err());
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"kept");
    }
}
