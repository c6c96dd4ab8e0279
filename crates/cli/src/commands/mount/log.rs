//! Starts the log of a mount: in the foreground the standard error, in the background the system's log or, without one,
//! a file of this user; or the file of `--log`. Callers: the supervisor and the server.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustix::fs::OFlags;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Socket of `syslog(3)`.
const SYSTEM_LOG: &str = "/dev/log";
/// Name of the file if there is no such socket.
const OWN_LOG: &str = "spinney.log";
/// At this size the file is emptied.
const OWN_LOG_BYTES_MAX: u64 = 1 << 20;
/// A daemon's messages (`LOG_DAEMON`); the urgency is added.
const FACILITY_DAEMON: u8 = 3 << 3;

/// Starts logging at the level of `RUST_LOG`, or else warnings, and a level more with each `-v`. Everything is opened
/// here, since the sandboxed server can open nothing later.
pub(super) fn start(verbosity: u8, file: Option<&Path>, in_background: bool) -> Result<()> {
    let level = match verbosity {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    let system = match file {
        None if in_background => SystemLog::open(),
        _ => None,
    };
    let file = match file {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            Some(file.with_context(|| path.display().to_string())?)
        }
        // The reason why a server ended must be recorded somewhere.
        None if in_background && system.is_none() => open_own(),
        None => None,
    };
    // It fails if logging was started already, which is as good.
    let _ = if let Some(file) = file {
        builder.with_ansi(false).with_writer(Arc::new(file)).try_init()
    } else if let Some(log) = system {
        builder.with_ansi(false).without_time().with_level(false).with_writer(log).try_init()
    } else {
        builder.without_time().with_ansi(false).with_writer(io::stderr).try_init()
    };
    std::panic::set_hook(Box::new(|panic| tracing::error!("a bug in this program: {panic}")));
    Ok(())
}

/// The log on a machine without a system log: in the user's directory for session files.
fn open_own() -> Option<File> {
    let dir = match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/run"),
        false => PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?),
    };
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    let file = options.open(dir.join(OWN_LOG)).ok()?;
    if file.metadata().is_ok_and(|metadata| metadata.len() > OWN_LOG_BYTES_MAX) {
        // Old messages do not matter; a file that cannot be emptied grows.
        let _ = file.set_len(0);
    }
    Some(file)
}

/// The system's log.
struct SystemLog {
    socket: UnixDatagram,
}

impl SystemLog {
    /// `None` if the machine has no such log.
    fn open() -> Option<Self> {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.connect(SYSTEM_LOG)?;
            // A blocked log must not block the file system.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        socket.ok().map(|socket| Self { socket })
    }

    fn entry(&self, urgency: u8) -> Entry<'_> {
        let pid = std::process::id();
        let text = format!("<{}>spinney[{pid}]: ", FACILITY_DAEMON | urgency).into_bytes();
        Entry { log: self, text }
    }
}

/// One message, which is sent as a whole.
struct Entry<'a> {
    log: &'a SystemLog,
    text: Vec<u8>,
}

impl Write for Entry<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        // The log socket is gone, so the failure to log cannot be reported either.
        let _ = self.log.socket.send(self.text.trim_ascii_end());
    }
}

impl<'a> MakeWriter<'a> for SystemLog {
    type Writer = Entry<'a>;

    fn make_writer(&'a self) -> Entry<'a> {
        self.entry(urgency(Level::INFO))
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Entry<'a> {
        self.entry(urgency(*meta.level()))
    }
}

/// The severity in `syslog(3)`: error, warning, informational, debug.
fn urgency(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
