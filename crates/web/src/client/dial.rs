//! Connects to servers. A process that may not make sockets, in the sandbox of a server, has another process connect
//! ([`dial_by`]), to addresses that were looked up before ([`addresses`]).

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
};

use crate::polled;

/// Time in which a connection to one address has to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Addresses that are remembered, of all devices of the process.
const ADDRESSES_MAX: usize = 1024;

/// Connects to an address in place of this process.
pub type Dialer = Box<dyn Fn(SocketAddr) -> io::Result<OwnedFd> + Send + Sync>;

static DIALER: RwLock<Option<Dialer>> = RwLock::new(None);
static ADDRESSES: RwLock<Vec<SocketAddr>> = RwLock::new(Vec::new());

/// Has all connections of this process made by `dialer` from now on.
pub fn dial_by(dialer: Dialer) {
    *DIALER.write().unwrap_or_else(PoisonError::into_inner) = Some(dialer);
}

/// The addresses of the servers that devices of this process reached so far: these are the ones to which they may have
/// to connect again.
#[must_use]
pub fn addresses() -> Vec<SocketAddr> {
    ADDRESSES.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Remembers an address that was looked up.
pub(super) fn note(address: SocketAddr) {
    let mut known = ADDRESSES.write().unwrap_or_else(PoisonError::into_inner);
    if known.len() < ADDRESSES_MAX && !known.contains(&address) {
        known.push(address);
    }
}

/// Connects to an address.
///
/// # Errors
/// The system's; `TimedOut` after 10 seconds.
pub fn dial(address: SocketAddr) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    match &*DIALER.read().unwrap_or_else(PoisonError::into_inner) {
        Some(dialer) => dialer(address),
        None => dial(address),
    }
}

/// Makes connections for the client.
#[derive(Debug, Default)]
pub(super) struct Dial;

impl<In: Transport> Connector<In> for Dial {
    type Out = Either<In, Connection>;

    /// Tries the addresses one after the other; a connection through a proxy is there already.
    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        if let Some(chained) = chained {
            return Ok(Some(Either::A(chained)));
        }
        let deadline = deadline(details.timeout);
        let mut last = Error::HostNotFound;
        for address in &details.addrs {
            if Instant::now() >= deadline {
                return Err(Error::Timeout(details.timeout.reason));
            }
            match connect(*address) {
                Ok(socket) => {
                    let config = details.config;
                    let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
                    return Ok(Some(Either::B(Connection { socket, buffers })));
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => last = Error::Timeout(details.timeout.reason),
                Err(error) => last = Error::Io(error),
            }
        }
        Err(last)
    }
}

fn deadline(timeout: NextTimeout) -> Instant {
    polled::within(timeout.not_zero().map(|limit| *limit))
}

/// A connection.
pub(super) struct Connection {
    socket: OwnedFd,
    buffers: LazyBuffers,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// The client's error: of a deadline that has passed, which one.
fn failed(timeout: NextTimeout) -> impl Fn(io::Error) -> Error {
    move |error| match error.kind() {
        io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        polled::send_all(&self.socket, output, deadline(timeout)).map_err(failed(timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        let input = self.buffers.input_append_buf();
        let count = polled::receive(&self.socket, input, deadline(timeout)).map_err(failed(timeout))?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        polled::is_idle(&self.socket)
    }
}
