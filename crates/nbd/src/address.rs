//! Addresses of exports, as the specification of NBD's URIs has them, and connections to them.
//!
//! `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`; the query may also have `timeout=SECONDS`, `offset=N`
//! and `size=M`. With TLS the schemes are `nbds` and `nbds+unix`, and the query may have `tls-certificates=DIR` and
//! `tls-hostname=NAME`. A process in a sandbox cannot connect: it says by [`dial_by`] who does it instead.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use blockdev::Locator;

use crate::tls::Settings;

/// The port of NBD.
pub const DEFAULT_PORT: u16 = 10809;
/// Default time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time limit that can be asked for.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The address of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The server.
    server: Server,
    /// The name of the export; empty for the default one.
    pub export: String,
    /// Time limit of each request.
    pub timeout: Duration,
    /// First byte of the device on the export.
    pub offset: u64,
    /// Bytes of the device, if the address says it.
    pub size: Option<u64>,
    /// For an encrypted connection.
    pub(crate) tls: Option<Settings>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Server {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Server::Tcp(host, port) => write!(f, "{host}:{port}"),
            Server::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Address {
    /// The address that a locator names.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn of(locator: &Locator) -> io::Result<Self> {
        Self::parse(locator.scheme().unwrap_or_default(), &locator.target().to_string_lossy())
    }

    /// Parses what follows the scheme and its `://`.
    ///
    /// # Errors
    /// `InvalidInput`, with what is wrong.
    pub fn parse(scheme: &str, target: &str) -> io::Result<Self> {
        let (rest, query) = target.split_once('?').unwrap_or((target, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let (mut socket, mut certificates, mut host) = (None, None, None);
        let plain = match scheme {
            "nbds" => "nbd",
            "nbds+unix" => "nbd+unix",
            scheme => scheme,
        };
        let is_encrypted = plain != scheme;
        let mut address = Self {
            server: Server::Unix(PathBuf::new()),
            export: text(export)?,
            timeout: TIMEOUT,
            offset: 0,
            size: None,
            tls: None,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let number = || value.parse::<u64>().map_err(|_| wrong(format!("`{pair}`: expected a number")));
            match key {
                "socket" => socket = Some(PathBuf::from(std::ffi::OsString::from_vec(decoded(value)?))),
                "tls-certificates" if is_encrypted => {
                    certificates = Some(PathBuf::from(std::ffi::OsString::from_vec(decoded(value)?)));
                }
                "tls-hostname" if is_encrypted => host = Some(text(value)?),
                "timeout" => address.timeout = Duration::from_secs(number()?).min(TIMEOUT_MAX),
                "offset" => address.offset = number()?,
                "size" => address.size = Some(number()?),
                "tls-certificates" | "tls-hostname" => {
                    return Err(wrong(format!("`{pair}`: TLS is for nbds:// and nbds+unix://")));
                }
                _ => return Err(wrong(format!("`{pair}`: expected socket, timeout, offset, size or tls-..."))),
            }
        }
        if address.timeout.is_zero() {
            return Err(wrong("`timeout=0`: expected at least one second".to_owned()));
        }
        address.server = match (plain, socket) {
            ("nbd", None) => tcp(authority)?,
            ("nbd+unix", Some(path)) if authority.is_empty() => Server::Unix(path),
            ("nbd+unix", Some(_)) => return Err(wrong(format!("`{authority}`: a Unix socket has no host"))),
            ("nbd+unix", None) => return Err(wrong("expected `?socket=PATH`".to_owned())),
            (_, Some(_)) => return Err(wrong("`socket=` is for nbd+unix://".to_owned())),
            _ => return Err(io::Error::new(io::ErrorKind::Unsupported, format!("`{scheme}://` is not supported"))),
        };
        if is_encrypted {
            let own = match &address.server {
                Server::Tcp(host, _) => host.clone(),
                Server::Unix(_) => "localhost".to_owned(),
            };
            address.tls = Some(Settings { host: host.unwrap_or(own), certificates });
        }
        Ok(address)
    }
}

/// The host and port of an authority.
fn tcp(authority: &str) -> io::Result<Server> {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of an address of IPv6 stand in brackets.
        Some((host, port)) if is_port(port) && (!host.contains(':') || host.ends_with(']')) => (host, port),
        _ => (authority, ""),
    };
    let port = match port {
        "" => DEFAULT_PORT,
        port => port.parse().map_err(|_| wrong(format!("`{port}`: expected a port")))?,
    };
    let host = host.trim_matches(['[', ']']);
    if host.is_empty() {
        return Err(wrong("expected a host".to_owned()));
    }
    Ok(Server::Tcp(text(host)?, port))
}

fn wrong(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Bytes of a text in which `%41` stands for `A`.
fn decoded(text: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| wrong(format!("`{text}`: expected two hexadecimal digits behind `%`")))?);
        rest = behind.get(2..).unwrap_or_default();
    }
    Ok(bytes)
}

fn text(encoded: &str) -> io::Result<String> {
    let limit = crate::number::to_usize(u64::from(crate::wire::STRING_BYTES_MAX));
    let text = String::from_utf8(decoded(encoded)?).map_err(|_| wrong(format!("`{encoded}`: expected UTF-8")))?;
    if text.len() > limit {
        return Err(wrong("the name of the export has more than 4096 bytes".to_owned()));
    }
    Ok(text)
}

/// Connects to a server, with the options that requests need. The socket's calls fail after the time limit.
///
/// # Errors
/// The system's.
pub fn dial(address: &Address) -> io::Result<OwnedFd> {
    let socket: OwnedFd = match &address.server {
        Server::Unix(path) => UnixStream::connect(path)?.into(),
        Server::Tcp(host, port) => {
            let mut failure = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
            let mut found = None;
            for one in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&one, address.timeout) {
                    Ok(stream) => {
                        found = Some(stream);
                        break;
                    }
                    Err(error) => failure = error,
                }
            }
            let stream = found.ok_or(failure)?;
            stream.set_nodelay(true)?;
            stream.into()
        }
    };
    // A server that has vanished is noticed by the time limit of requests, and by this while there are none.
    rustix::net::sockopt::set_socket_keepalive(&socket, true)?;
    Ok(socket)
}

/// Connects for a process that cannot.
pub type Dialer = Box<dyn Fn(&Address) -> io::Result<OwnedFd> + Send + Sync>;

static DIALER: OnceLock<Dialer> = OnceLock::new();

/// Has all devices of this process connect by `dialer` from now on; called once, before a sandbox is entered.
pub fn dial_by(dialer: Dialer) {
    // The first one stays.
    let _ = DIALER.set(dialer);
}

/// Connects to a server, in the way that this process has.
pub(crate) fn connect(address: &Address) -> io::Result<OwnedFd> {
    match DIALER.get() {
        Some(dialer) => dialer(address),
        None => dial(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(scheme: &str, target: &str) -> Address {
        Address::parse(scheme, target).unwrap()
    }

    #[test]
    fn addresses_are_those_of_the_specification() {
        let plain = parse("nbd", "example.com/disk%20one");
        assert_eq!(plain.server, Server::Tcp("example.com".to_owned(), 10809));
        assert_eq!((plain.export.as_str(), plain.timeout), ("disk one", TIMEOUT));
        assert_eq!(parse("nbd", "[::1]:99/").server, Server::Tcp("::1".to_owned(), 99));
        assert_eq!(parse("nbd", "[::1]").server, Server::Tcp("::1".to_owned(), DEFAULT_PORT));
        assert_eq!(parse("nbd", "host").export, "");
        assert_eq!(parse("nbd", "host//two").export, "/two");
        let unix = parse("nbd+unix", "/a/b?socket=%2Frun/x%3f&timeout=5&offset=512&size=4096");
        assert_eq!(unix.server, Server::Unix(PathBuf::from("/run/x?")));
        assert_eq!((unix.export.as_str(), unix.timeout.as_secs()), ("a/b", 5));
        assert_eq!((unix.offset, unix.size, unix.tls), (512, Some(4096), None));
        let tls = parse("nbds", "host:9/x").tls.unwrap();
        assert_eq!((tls.host.as_str(), tls.certificates), ("host", None));
        let tls = parse("nbds+unix", "/?socket=/x&tls-certificates=/a%20b&tls-hostname=store").tls.unwrap();
        assert_eq!((tls.host.as_str(), tls.certificates), ("store", Some(PathBuf::from("/a b"))));
    }

    #[test]
    fn wrong_addresses_are_refused_with_the_reason() {
        for (scheme, target, reason) in [
            ("nbd", "/export", "host"),
            ("nbd", "host:99999/", "port"),
            ("nbd", "host/%zz", "hexadecimal"),
            ("nbd", "host/?socket=/x", "nbd+unix"),
            ("nbd", "host/?speed=9", "speed=9"),
            ("nbd", "host/?timeout=0", "timeout=0"),
            ("nbd", "host/?size=1M", "number"),
            ("nbd+unix", "/export", "socket"),
            ("nbd+unix", "host/?socket=/x", "host"),
            ("nbdx", "host/", "not supported"),
            ("nbd", "host/?tls-hostname=x", "nbds"),
            ("nbds", "host/?socket=/x", "nbd+unix"),
        ] {
            let error = Address::parse(scheme, target).unwrap_err().to_string();
            assert!(error.contains(reason), "{target}: {error}");
        }
    }
}
