//! Sends requests by the client `ureq`: connections that are kept, TLS, time limits, proxies.
//!
//! The addresses of a host are looked up once, when it is first reached, and certificates of authorities are read from
//! the system's store when the client is made. A process may so give up the right to open files afterwards, and still
//! connect anew.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ureq::config::Config;
use ureq::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectProxyConnector, Connector as _, NextTimeout, RustlsConnector};
use ureq::{Agent, Body, BodyReader};

use super::dial::{self, Dial};
use crate::error::{Error, Result};

/// Bytes of an answer before its body.
const HEADER_BYTES_MAX: usize = 32 << 10;
/// Connections that are kept for the next request.
const IDLE_MAX: usize = 6;

/// Sends requests.
pub(crate) struct Transport {
    agent: Agent,
    timeout: Duration,
}

/// An answer whose body was not read yet.
pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    reader: BodyReader<'static>,
}

impl Answer {
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    pub(crate) fn reader(&mut self) -> &mut BodyReader<'static> {
        &mut self.reader
    }
}

impl Transport {
    /// A client with the system's certificates. A server has to begin its answer within `timeout`.
    ///
    /// # Errors
    /// None so far; certificates are missed when they are needed.
    pub(crate) fn new(timeout: Duration) -> Result<Self> {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::debug!(%error, "certificates");
        }
        let roots: Vec<_> = found.certs.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .build();
        let config = Config::builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("spinney/", env!("CARGO_PKG_VERSION")))
            .max_response_header_size(HEADER_BYTES_MAX)
            .max_idle_connections(IDLE_MAX)
            .max_idle_connections_per_host(IDLE_MAX)
            .timeout_connect(Some(timeout))
            .timeout_send_request(Some(timeout))
            .timeout_recv_response(Some(timeout))
            .build();
        let connector = ().chain(ConnectProxyConnector::default()).chain(Dial).chain(RustlsConnector::default());
        let agent = Agent::with_parts(config, connector, Known::default());
        Ok(Self { agent, timeout })
    }

    /// Sends a request, and receives the head of its answer. The body has to come within `body_limit`.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::Timeout`].
    pub(crate) fn get(&self, address: &Uri, headers: HeaderMap, body_limit: Duration) -> Result<Answer> {
        let mut request = self.agent.get(address);
        if let Some(own) = request.headers_mut() {
            own.extend(headers);
        }
        let sent = request.config().timeout_recv_body(Some(body_limit)).build().call();
        let response: Response<Body> = sent.map_err(|error| self.error(error))?;
        let (parts, body) = response.into_parts();
        Ok(Answer { status: parts.status, headers: parts.headers, reader: body.into_reader() })
    }

    /// Sends a request with a body, which may be empty. The body, and that of the answer, have to pass within `limit`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub(crate) fn send(
        &self,
        method: Method,
        address: &Uri,
        headers: HeaderMap,
        body: &[u8],
        limit: Duration,
    ) -> Result<Answer> {
        let has_body = method == Method::PUT;
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, address.clone(), headers);
        let request = self.agent.configure_request(request);
        let request = request.timeout_send_body(Some(limit)).timeout_recv_body(Some(limit)).build();
        let sent = match has_body {
            true => self.agent.run(request.map(|()| body)),
            false => self.agent.run(request),
        };
        let (parts, body) = sent.map_err(|error| self.error(error))?.into_parts();
        Ok(Answer { status: parts.status, headers: parts.headers, reader: body.into_reader() })
    }

    /// The error of reading a body.
    pub(crate) fn error_of(&self, error: io::Error) -> Error {
        self.error(ureq::Error::from(error))
    }

    fn error(&self, error: ureq::Error) -> Error {
        let other = |kind, text: String| Error::Connection(Arc::new(io::Error::new(kind, text)));
        match error {
            ureq::Error::Io(error) => Error::Connection(Arc::new(error)),
            ureq::Error::Timeout(during) => {
                Error::Timeout { seconds: self.timeout.as_secs(), during: during.to_string() }
            }
            ureq::Error::HostNotFound => other(io::ErrorKind::InvalidData, "the host is unknown".to_owned()),
            error => other(io::ErrorKind::InvalidData, error.to_string()),
        }
    }
}

/// The addresses of hosts, each looked up once.
#[derive(Default)]
struct Known(Mutex<HashMap<String, Vec<SocketAddr>>>);

impl fmt::Debug for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").finish_non_exhaustive()
    }
}

impl Resolver for Known {
    fn resolve(&self, uri: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let place = uri.scheme().zip(uri.authority());
        let place = place.and_then(|(scheme, authority)| DefaultResolver::host_and_port(scheme, authority));
        let place = place.ok_or(ureq::Error::HostNotFound)?;
        let known = self.0.lock().get(&place).cloned();
        let found = match known {
            Some(known) => known,
            None => {
                let found: Vec<SocketAddr> =
                    place.to_socket_addrs().map_err(|_| ureq::Error::HostNotFound)?.take(8).collect();
                self.0.lock().insert(place, found.clone());
                found
            }
        };
        let mut addresses = self.empty();
        for address in found {
            dial::note(address);
            addresses.push(address);
        }
        if addresses.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(addresses) }
    }
}
