//! A format whose volumes are used through NBD: each time one is opened to run a workload, a server in this process
//! serves its device, and the volume is opened on a client. States are opened as they are. Called by `nbd`.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;

use ::nbd::{Export, Server};
use anyhow::Result;
use blockdev::{Device, Locator};
use crash_explorer::{Access, Form, Format, Step};

/// A format, used through NBD.
pub(super) struct Served<F>(F);

impl<F> Served<F> {
    pub(super) fn new(format: F) -> Self {
        Self(format)
    }
}

impl<F: Format> Format for Served<F> {
    fn make(&self, form: Form) -> Result<Arc<dyn Device>> {
        self.0.make(form)
    }

    fn base(&self, form: Form) -> Form {
        self.0.base(form)
    }

    fn open(&self, form: Form, device: Arc<dyn Device>, access: Access) -> Result<vfs::Volume> {
        let client = client_of(device, access == Access::ReadOnly)?;
        self.0.open(form, client, access)
    }

    fn open_state(&self, form: Form, device: Arc<dyn Device>, access: Access) -> Result<vfs::Volume> {
        self.0.open_state(form, device, access)
    }

    fn has_log(&self, device: &dyn Device) -> bool {
        self.0.has_log(device)
    }

    fn inode_count(&self, device: &dyn Device) -> Result<Option<u64>> {
        self.0.inode_count(device)
    }

    fn check(&self, device: &dyn Device) -> Result<()> {
        self.0.check(device)
    }

    fn can(&self, step: &Step) -> bool {
        self.0.can(step)
    }
}

/// Serves a device as long as the client lives, and returns the client.
fn client_of(device: Arc<dyn Device>, read_only: bool) -> Result<Arc<dyn Device>> {
    let export = Export { name: "recorded".to_owned(), description: String::new(), device, read_only };
    let server = Server::new(vec![export]);
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket)?;
    listener.set_nonblocking(true)?;
    let locator = Locator::parse(format!("nbd+unix:///recorded?socket={}", socket.display()))?;
    let access = blockdev::Access { read_only, ..blockdev::Access::WRITE };
    let is_open = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let accept = || {
            // The client makes all its connections while it is opened.
            while !is_open.load(std::sync::atomic::Ordering::Acquire) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let server = server.clone();
                        thread::spawn(move || {
                            let served = stream.set_nonblocking(false).map(|()| server.serve(Arc::new(stream.into())));
                            if let Ok(Err(error)) = served {
                                eprintln!("the server ended a connection: {error}");
                            }
                        });
                    }
                    Err(_) => thread::sleep(std::time::Duration::from_micros(50)),
                }
            }
        };
        scope.spawn(accept);
        let opened = ::nbd::open(&locator, access);
        is_open.store(true, std::sync::atomic::Ordering::Release);
        Ok(opened?)
    })
}
