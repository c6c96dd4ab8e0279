//! Our server on a socket, scripted servers, and servers of other programs.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use blockdev::{Access, Device, Locator};
use nbd::wire::{Greeting, Info, OptionReply, option, rep, transmission};
use nbd::{Export, Server};

/// A server in this process, on a socket of its own. It goes with its directory.
pub(crate) struct Own {
    dir: tempfile::TempDir,
}

impl Own {
    pub(crate) fn start(device: Arc<dyn Device>, read_only: bool) -> Self {
        let export = Export { name: "disk".to_owned(), description: String::new(), device, read_only };
        let server = Server::new(vec![export]);
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                // Errors of hostile clients are expected.
                thread::spawn(move || drop(server.serve(Arc::new(stream.into()))));
            }
        });
        Self { dir }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    pub(crate) fn locator(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.socket().display())
    }

    pub(crate) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

pub(crate) fn try_open(locator: &str, access: Access) -> blockdev::Result<Arc<dyn Device>> {
    nbd::open(&Locator::parse(locator).unwrap(), access)
}

pub(crate) fn open(locator: &str) -> Arc<dyn Device> {
    try_open(locator, Access::WRITE).unwrap()
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// A server that runs a script for each connection, one after the other.
pub(crate) struct Scripted {
    dir: tempfile::TempDir,
}

impl Scripted {
    pub(crate) fn start(script: impl Fn(usize, &mut UnixStream) + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().flatten().enumerate() {
                let mut stream = stream;
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                script(number, &mut stream);
            }
        });
        Self { dir }
    }

    pub(crate) fn locator(&self, query: &str) -> String {
        format!("nbd+unix:///?socket={}{query}", self.dir.path().join("socket").display())
    }
}

/// Reads exactly `N` bytes.
pub(crate) fn take<const N: usize>(stream: &mut UnixStream) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// The size of the export of [`shake_hands`].
pub(crate) const SIZE: u64 = 1 << 20;

/// The server's side of a handshake without structured replies.
pub(crate) fn shake_hands(stream: &mut UnixStream) -> Option<()> {
    let flags = transmission::HAS_FLAGS | transmission::SEND_FLUSH | transmission::SEND_TRIM;
    shake_hands_as(stream, SIZE, flags, false)
}

pub(crate) fn shake_hands_as(stream: &mut UnixStream, size: u64, flags: u16, is_structured: bool) -> Option<()> {
    stream.write_all(&Greeting { flags: 3 }.encode()).ok()?;
    take::<4>(stream)?;
    loop {
        let header = nbd::wire::OptionHeader::decode(&take::<16>(stream)?).unwrap();
        let mut payload = vec![0; header.len as usize];
        stream.read_exact(&mut payload).ok()?;
        let reply = |kind, payload: &[u8]| OptionReply::encode(header.option, kind, payload);
        match header.option {
            option::GO => {
                stream.write_all(&reply(rep::INFO, &Info::Export { size, flags }.encode())).ok()?;
                stream.write_all(&reply(rep::ACK, b"")).ok()?;
                return Some(());
            }
            option::STRUCTURED_REPLY if is_structured => stream.write_all(&reply(rep::ACK, b"")).ok()?,
            _ => stream.write_all(&reply(rep::ERR_UNSUP, b"")).ok()?,
        }
    }
}

/// A server of another program; killed when it is dropped.
pub(crate) struct Other {
    pub(crate) child: Child,
    dir: tempfile::TempDir,
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True if a program is here; in CI it has to be.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("SKIPPED: {program} is not here");
    }
    found
}

impl Other {
    /// `nbdkit` with these words, on a socket; `DIR` in them is its directory.
    pub(crate) fn nbdkit(words: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start_in(dir, words)
    }

    pub(crate) fn start_in(dir: tempfile::TempDir, words: &[&str]) -> Self {
        let socket = dir.path().join("socket");
        let path = dir.path().to_str().unwrap();
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket);
        command.args(words.iter().map(|word| word.replace("DIR", path)));
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        let found = Self { child, dir };
        found.wait_for_socket();
        found
    }

    /// Any server that makes its socket at the path that `command` is given.
    pub(crate) fn start(command: impl FnOnce(&std::path::Path) -> Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let child = command(dir.path()).stderr(Stdio::null()).spawn().unwrap();
        let found = Self { child, dir };
        found.wait_for_socket();
        found
    }

    fn wait_for_socket(&self) {
        let socket = self.dir.path().join("socket");
        let deadline = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < deadline, "the server does not start");
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn locator(&self, query: &str) -> String {
        format!("nbd+unix:///?socket={}{query}", self.path("socket").display())
    }

    /// Ends the server at once, and waits until it is gone; its directory stays.
    pub(crate) fn kill(mut self) -> tempfile::TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::fs::remove_file(self.path("socket")).unwrap();
        let empty = tempfile::tempdir().unwrap();
        std::mem::replace(&mut self.dir, empty)
    }
}
