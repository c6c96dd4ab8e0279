//! Serves the connection of a virtual machine monitor (VMM), from its first message to its end.

use crate::device::Device;
use crate::mounted::OpenVolume;
use fuse::SessionOptions;
use std::fmt;
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use vhost::vhost_user::{Error as VhostError, Listener};
use vhost_user_backend::{Error as DaemonError, ShutdownHandle, VhostUserDaemon};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

/// Failures of a connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The VMM broke the vhost-user protocol, or the system refused a resource.
    ///
    /// To do: start the virtual machine again; give it shared memory (`share=on`).
    #[error("the virtual machine's connection failed: {0}")]
    Connection(String),
    /// The guest's last changes could not be made durable.
    ///
    /// To do: see the cause behind the colon, then `spinney check IMAGE`.
    #[error("the last changes of the guest could not be written: {0}")]
    End(io::Error),
}

/// Result of serving a guest.
pub type Result<T> = std::result::Result<T, Error>;

/// A connected VMM.
pub struct Guest {
    daemon: VhostUserDaemon<Device>,
    device: Device,
}

/// Ends the connection of a guest from another thread.
#[derive(Clone)]
pub struct Ender(Option<ShutdownHandle>);

impl Ender {
    /// Ends the connection: [`Guest::serve`] returns.
    pub fn end(&self) {
        if let Some(handle) = &self.0 {
            handle.shutdown();
        }
    }
}

impl fmt::Debug for Ender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ender").finish_non_exhaustive()
    }
}

impl Guest {
    /// Accepts the next connection at `listener`. `open` opens the volume when the guest mounts it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn accept(listener: UnixListener, open: Arc<OpenVolume>, options: SessionOptions) -> Result<Self> {
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let device =
            Device::new(open, options, memory.clone()).map_err(|error| Error::Connection(error.to_string()))?;
        let mut daemon = VhostUserDaemon::new("vhost-user".to_owned(), device.clone(), memory).map_err(failed)?;
        let threads = daemon.get_epoll_handlers();
        let watched = threads.iter().try_for_each(|thread| device.watch_end(thread));
        let started = match watched {
            Ok(()) => daemon.start(&mut Listener::from(listener)).map_err(failed),
            Err(error) => Err(Error::Connection(error.to_string())),
        };
        if started.is_err() {
            device.end_queues();
        }
        started.map(|()| Self { daemon, device })
    }

    /// The means to end the connection from another thread.
    #[must_use]
    pub fn ender(&self) -> Ender {
        Ender(self.daemon.shutdown_handle())
    }

    /// Serves the guest until the VMM ends the connection; then makes everything durable.
    ///
    /// # Errors
    /// The VMM broke the protocol; the last changes could not be written.
    pub fn serve(mut self) -> Result<()> {
        let served = match self.daemon.wait() {
            Err(DaemonError::HandleRequest(VhostError::Disconnected | VhostError::PartialMessage)) => Ok(()),
            served => served.map_err(failed),
        };
        self.device.end_queues();
        // Joins the threads of the queues.
        drop(self.daemon);
        self.device.end().map_err(Error::End)?;
        served
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").finish_non_exhaustive()
    }
}

fn failed(error: DaemonError) -> Error {
    Error::Connection(error.to_string())
}
