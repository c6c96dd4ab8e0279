//! TLS over a socket, by rustls, for the client: the settings of an address, and a session that several threads use.
//!
//! Invariants: nothing is sent in plain text after the server has agreed to TLS, and nothing that it sent before counts
//! afterwards. A certificate that does not fit ends the connection; there is no way to go on without TLS.
//!
//! Certificates are read when a device first connects, and kept: a process in a sandbox may open no files later.
//! Called by `stream` and `client`.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Flag of a write to a peer that may be gone: an error is wanted, no signal. Apple's systems have no such flag;
/// programs in Rust ignore the signal.
#[cfg(not(target_vendor = "apple"))]
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
pub(crate) const NO_SIGNAL: SendFlags = SendFlags::empty();

/// Sets of certificates that are kept.
const CONFIGS_MAX: usize = 64;
/// Files of a directory of certificates, with the names that other clients of NBD give them.
const AUTHORITY: &str = "ca-cert.pem";
const OWN: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";

/// The settings of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The name that the server's certificate has to have.
    pub(crate) host: String,
    /// A directory with certificates; without it the authorities of the system count.
    pub(crate) certificates: Option<PathBuf>,
}

static CONFIGS: Mutex<Vec<(Option<PathBuf>, Arc<ClientConfig>)>> = Mutex::new(Vec::new());

impl Settings {
    fn config(&self) -> io::Result<Arc<ClientConfig>> {
        let mut known = CONFIGS.lock();
        if let Some((_, config)) = known.iter().find(|(dir, _)| *dir == self.certificates) {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(config(self.certificates.as_deref())?);
        if known.len() < CONFIGS_MAX {
            known.push((self.certificates.clone(), Arc::clone(&config)));
        }
        Ok(config)
    }
}

fn config(dir: Option<&Path>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match dir {
        Some(dir) => {
            for cert in certificates(&dir.join(AUTHORITY))? {
                roots.add(cert).map_err(|error| named(&dir.join(AUTHORITY), error))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            for error in &found.errors {
                tracing::debug!(%error, "certificates");
            }
            roots.add_parsable_certificates(found.certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?.with_root_certificates(roots);
    match dir.map(|dir| (dir.join(OWN), dir.join(KEY))).filter(|(own, _)| own.exists()) {
        None => Ok(builder.with_no_client_auth()),
        Some((own, key)) => {
            let secret = PrivateKeyDer::from_pem_file(&key).map_err(|error| named(&key, error))?;
            builder.with_client_auth_cert(certificates(&own)?, secret).map_err(|error| named(&own, error))
        }
    }
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| named(path, error))?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(|error| named(path, error))?;
    if found.is_empty() { Err(named(path, "no certificate in it")) } else { Ok(found) }
}

fn named(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, format!("{}: {error}", path.display()))
}

/// An encrypted connection.
pub(crate) struct Tls {
    socket: Arc<OwnedFd>,
    session: Mutex<ClientConnection>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// A socket that never waits.
struct Socket<'a>(&'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match rustix::net::recv(self.0, buf, RecvFlags::DONTWAIT) {
            Ok((count, _)) => Ok(count),
            Err(Errno::AGAIN) => Err(ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | NO_SIGNAL;
        match rustix::net::sendmsg(self.0, &[IoSlice::new(bytes)], &mut SendAncillaryBuffer::default(), flags) {
            Err(Errno::AGAIN) => Err(ErrorKind::WouldBlock.into()),
            sent => Ok(sent?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tls {
    /// Begins a session on a connected socket, as its client.
    ///
    /// # Errors
    /// Certificates that cannot be read, a name that no certificate can have.
    pub(crate) fn begin(socket: Arc<OwnedFd>, settings: &Settings) -> io::Result<Self> {
        let name = ServerName::try_from(settings.host.clone());
        let name = name.map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let session = ClientConnection::new(settings.config()?, name).map_err(io::Error::other)?;
        Ok(Self { socket, session: Mutex::new(session) })
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.lock().is_handshaking()
    }

    /// Receives what is there; `None` if nothing is there for the caller yet.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end, `InvalidData` for what breaks the protocol, those of the socket.
    pub(crate) fn receive_some(&self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let mut session = self.session.lock();
        loop {
            // An error that was met before is met again.
            session.process_new_packets().map_err(broken)?;
            match session.reader().read(buf) {
                Ok(0) if !buf.is_empty() => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if !take_in(&mut session, &self.socket)? {
                flush(&mut session, &self.socket)?;
                return Ok(None);
            }
        }
    }

    /// True if a caller that receives now does not wait.
    ///
    /// # Errors
    /// As [`Self::receive_some`].
    pub(crate) fn has_input(&self) -> io::Result<bool> {
        let mut session = self.session.lock();
        loop {
            let Ok(state) = session.process_new_packets() else { return Ok(true) };
            if state.plaintext_bytes_to_read() > 0 || state.peer_has_closed() {
                return Ok(true);
            }
            match take_in(&mut session, &self.socket) {
                Ok(true) => {}
                Ok(false) => return flush(&mut session, &self.socket).map(|_| false),
                // A caller that receives gets the error.
                Err(_) => return Ok(true),
            }
        }
    }

    /// Takes bytes to be sent, and sends what the socket takes; 0 where it takes none.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn send_some(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut session = self.session.lock();
        if !flush(&mut session, &self.socket)? {
            return Ok(0);
        }
        let count = session.writer().write_vectored(parts)?;
        flush(&mut session, &self.socket)?;
        Ok(count)
    }

    /// Sends what was taken; false while the socket does not take all of it.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn flush(&self) -> io::Result<bool> {
        flush(&mut self.session.lock(), &self.socket)
    }

    /// Tells the other side that no more comes.
    pub(crate) fn end(&self) {
        let mut session = self.session.lock();
        session.send_close_notify();
        // The connection ends in any case.
        let _ = flush(&mut session, &self.socket);
    }
}

/// Reads from the socket; false if nothing is there.
fn take_in(session: &mut ClientConnection, socket: &OwnedFd) -> io::Result<bool> {
    match session.read_tls(&mut Socket(socket)) {
        // An end without a farewell may be the work of somebody between.
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => {
            let processed = session.process_new_packets().map_err(broken);
            if processed.is_err() {
                // Tells the server why.
                let _ = flush(session, socket);
            }
            processed.map(|_| true)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error),
    }
}

fn flush(session: &mut ClientConnection, socket: &OwnedFd) -> io::Result<bool> {
    while session.wants_write() {
        match session.write_tls(&mut Socket(socket)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            written => {
                written?;
            }
        }
    }
    Ok(true)
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("TLS: {error}"))
}
