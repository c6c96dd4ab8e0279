//! Shows a file system to browsers and other clients of HTTP/1.1, for reading alone.
//!
//! ```text
//!  socket (time limits) --> head (one request) --> answer --+-- file      contents, ranges
//!                                                           +-- listing   a page for a directory
//!                                                           +-- download  a directory as .tar or .zip, streamed
//! ```
//!
//! Invariants
//! * A request is GET or HEAD without a body; its head has at most [`HEAD_BYTES_MAX`] bytes.
//! * A path never leads out of the file system that the site has: `..` is refused, and links are resolved inside it. A
//!   site that shows one directory is made with a file system whose root is that directory.
//! * What a client may not read is not sent: the file system decides (`access::Permitted`).
//! * A client that reads too slowly, or does not end its request, loses its connection.
//!
//! Failure: a wrong request is answered with its status; an error in the middle of a body ends the connection, so that
//! the client sees that it is not whole. Caller: the command `serve http`.

mod answer;
mod content_type;
mod download;
mod file;
mod head;
mod listing;
mod reply;
mod socket;
mod stream;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vfs::Volume;

pub use head::{HEAD_BYTES_MAX, Head, Refusal, Target};

use socket::Socket;

/// Requests that one connection may make.
const REQUESTS_MAX: usize = 10_000;

/// Most archives that are sent at once.
const ARCHIVES_MAX: usize = 16;

/// The files that are served.
#[derive(Debug)]
pub struct Site {
    volume: Volume,
    title: String,
    /// Archives on their way: each has buffers of megabytes, and is as slow as its client.
    archives: AtomicUsize,
    /// Only requests to these hosts, to `localhost` and to addresses of numbers are answered.
    hosts: Option<Vec<String>>,
}

impl Site {
    /// The files of `volume`, from its root on; `title` names them on pages.
    #[must_use]
    pub fn new(volume: Volume, title: impl Into<String>) -> Self {
        Self { volume, title: title.into(), archives: AtomicUsize::new(0), hosts: None }
    }

    /// Answers only requests that name this machine as `localhost`, by an address of numbers, or by one of `hosts`: a
    /// web page of somebody else, opened in a browser here, can make its own name lead to this machine.
    #[must_use]
    pub fn for_hosts(self, hosts: Vec<String>) -> Self {
        Self { hosts: Some(hosts), ..self }
    }

    /// Answers the requests of a connection until it ends. The socket is not shut down.
    pub fn serve(&self, socket: Arc<OwnedFd>) {
        let mut socket = Socket::new(socket);
        for _ in 0..REQUESTS_MAX {
            match self.answer_next(&mut socket) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::debug!(%error, "a connection ended");
                    break;
                }
            }
        }
    }

    /// Answers one request; false at the end of the connection.
    fn answer_next(&self, socket: &mut Socket) -> std::io::Result<bool> {
        let head = match socket.read_head()? {
            None => return Ok(false),
            Some(Ok(head)) => head,
            Some(Err(refusal)) => {
                reply::refuse(socket, refusal, false, false)?;
                return Ok(false);
            }
        };
        let keeps = head.keeps_connection;
        let is_known = head.host.as_deref().is_some_and(|host| self.is_own_host(host));
        if self.hosts.is_some() && !is_known {
            reply::refuse(socket, Refusal::WrongHost, head.is_head, keeps)?;
            return Ok(keeps);
        }
        answer::answer(self, &head, socket)?;
        Ok(keeps)
    }

    /// A place among the archives on their way, until it is dropped; `None` if all are taken.
    fn take_archive(&self) -> Option<ArchivePlace<'_>> {
        let taken = self.archives.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
            (count < ARCHIVES_MAX).then(|| count.saturating_add(1))
        });
        taken.ok().map(|_| ArchivePlace(&self.archives))
    }

    fn is_own_host(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let is_named = |own: &String| own.eq_ignore_ascii_case(name);
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<std::net::IpAddr>().is_ok()
            || self.hosts.as_ref().is_some_and(|hosts| hosts.iter().any(is_named))
    }
}

/// The place of one archive.
struct ArchivePlace<'a>(&'a AtomicUsize);

impl Drop for ArchivePlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_archives_are_sent_at_once() {
        let volume = Volume::new(Arc::new(vfs_conformance::MemoryFs::new(&vfs_conformance::MemoryOptions::default())));
        let site = Site::new(volume, "site");
        let mut taken: Vec<_> = (0..ARCHIVES_MAX).map(|_| site.take_archive().unwrap()).collect();
        assert!(site.take_archive().is_none());
        taken.pop();
        assert!(site.take_archive().is_some());
    }

    #[test]
    fn only_names_of_this_machine_are_its_hosts() {
        let volume = Volume::new(Arc::new(vfs_conformance::MemoryFs::new(&vfs_conformance::MemoryOptions::default())));
        let site = Site::new(volume, "site").for_hosts(vec!["files.example".to_owned()]);
        for own in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080", "[::1]", "files.example:80"] {
            assert!(site.is_own_host(own), "{own}");
        }
        for other in ["evil.example", "", "localhost.evil.example", "127.0.0.1.evil.example"] {
            assert!(!site.is_own_host(other), "{other}");
        }
    }
}
