//! Connects a client to the socket at which the server of a mount takes commands. Called by `image`; `client_socket`
//! names its socket with it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;

use anyhow::Result;
use spinney::remote::Remote;

/// The name of the socket with this number.
pub(crate) fn address([upper, lower]: [u64; 2]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("spinney-{upper:016x}{lower:016x}"))
}

/// Connects to the server of the mount of a directory, past the kernel; `None` if it takes no clients.
///
/// # Errors
/// The system's; the server's.
pub(crate) fn connect(dir: &Path) -> Result<Option<Remote>> {
    let opened = File::open(dir)?;
    let Some(number) = spinney::fuse::socket_number(opened.as_fd())? else { return Ok(None) };
    let stream = UnixStream::connect_addr(&address(number)?)?;
    Ok(Some(Remote::new(stream, opened)?))
}
