//! Accepts the connections of a server, gives each a thread, and ends them. Called by `serve`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags};
use rustix::process::{Resource, Rlimit};

use super::Service;
use super::listen::Listener;
use crate::commands::mount::signals::Signals;

/// Connections that are served at the same time; further ones are closed at once.
const CONNECTIONS_MAX: usize = 512;
/// Descriptors that the server needs: one a connection, and some for the image and itself.
const DESCRIPTORS_WANTED: u64 = 4096;
/// Pause after an error of the system that may pass, such as a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Time that connections get to end after their sockets were shut down.
const END_MAX: Duration = Duration::from_secs(10);

/// Allows this process more open descriptors, where the limit is low and may be raised.
pub(super) fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(DESCRIPTORS_WANTED, |maximum| maximum.min(DESCRIPTORS_WANTED));
    if limit.current.is_some_and(|current| current < wanted) {
        // With fewer descriptors fewer connections are accepted.
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

/// The connections that are served.
#[derive(Default)]
struct Open {
    sockets: Mutex<HashMap<u64, Arc<OwnedFd>>>,
    ended: Condvar,
}

/// Takes a connection out of the list when its thread ends, however that happens.
struct Entry {
    open: Arc<Open>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.open.sockets.lock().remove(&self.number);
        self.open.ended.notify_all();
    }
}

/// Serves every connection until a signal asks for the end; then ends all connections.
///
/// # Errors
/// The system's.
pub(super) fn accept<S: Service>(listener: &Listener, mut signals: Signals, service: &Arc<S>) -> Result<()> {
    let open = Arc::<Open>::default();
    let mut number = 0;
    loop {
        let waited = wait(listener, signals.as_fd())?;
        if signals.take() {
            break;
        }
        for socket in listener.sockets().zip(waited).filter_map(|(socket, is_ready)| is_ready.then_some(socket)) {
            match rustix::net::acceptfrom_with(socket, SocketFlags::CLOEXEC) {
                Ok((connection, peer)) => {
                    number += 1;
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    start((Arc::new(connection), peer), number, &open, service);
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot accept connections");
                    thread::sleep(PAUSE);
                }
            }
        }
    }
    open.end();
    Ok(())
}

/// Waits for connections or a signal: one flag for each socket.
fn wait(listener: &Listener, signals: BorrowedFd<'_>) -> Result<Vec<bool>> {
    let watched = listener.sockets().chain(std::iter::once(signals));
    let mut polled: Vec<_> = watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, None)).context("waiting for connections")?;
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}

/// Serves a connection on a thread of its own; closes it where there are too many.
fn start<S: Service>(
    (socket, peer): (Arc<OwnedFd>, Option<SocketAddr>),
    number: u64,
    open: &Arc<Open>,
    service: &Arc<S>,
) {
    let mut sockets = open.sockets.lock();
    if sockets.len() >= CONNECTIONS_MAX {
        tracing::debug!("a connection was closed: {CONNECTIONS_MAX} are open");
        return;
    }
    sockets.insert(number, Arc::clone(&socket));
    drop(sockets);
    let (entry, service) = (Entry { open: Arc::clone(open), number }, Arc::clone(service));
    let run = move || {
        service.serve(Arc::clone(&socket), peer);
        // Threads of the protocol may still hold the socket.
        let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        drop(entry);
    };
    if let Err(error) = thread::Builder::new().name("connection".to_owned()).spawn(run) {
        tracing::debug!(%error, "a connection was not taken");
    }
}

impl Open {
    /// Shuts all sockets down, and waits for their threads for a limited time.
    fn end(&self) {
        let deadline = Instant::now() + END_MAX;
        let mut sockets = self.sockets.lock();
        for socket in sockets.values() {
            // Fails where the client has closed it.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
        while !sockets.is_empty() && !self.ended.wait_until(&mut sockets, deadline).timed_out() {}
        if !sockets.is_empty() {
            tracing::warn!("{} connections do not end", sockets.len());
        }
    }
}
