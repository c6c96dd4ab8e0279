//! Connects a client to the socket at which the server of a mount takes commands. Called by `image`; `client_socket`
//! names its socket with it.

use std::path::Path;
#[cfg(target_os = "linux")]
use std::{fs::File, io, os::fd::AsFd as _, os::linux::net::SocketAddrExt as _, os::unix::net};

use anyhow::Result;
use spinney::remote::Remote;

/// The name of the socket with this number.
#[cfg(target_os = "linux")]
pub(crate) fn address([upper, lower]: [u64; 2]) -> io::Result<net::SocketAddr> {
    net::SocketAddr::from_abstract_name(format!("spinney-{upper:016x}{lower:016x}"))
}

/// Connects to the server of the mount of a directory, past the kernel; `None` if it takes no clients.
///
/// # Errors
/// The system's; the server's.
#[cfg(target_os = "linux")]
pub(crate) fn connect(dir: &Path) -> Result<Option<Remote>> {
    let opened = File::open(dir)?;
    let Some(number) = super::kernel::socket_number(opened.as_fd())? else { return Ok(None) };
    let stream = net::UnixStream::connect_addr(&address(number)?)?;
    Ok(Some(Remote::new(stream, opened)?))
}

/// There are no mounts here.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub(crate) fn connect(_dir: &Path) -> Result<Option<Remote>> {
    Ok(None)
}
