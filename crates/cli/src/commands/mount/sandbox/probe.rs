//! Tries to escape from the sandbox, as a self-test: the hidden `spinney mount --sandbox-self-test`. Called by `mount`.

use std::io::Write as _;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use rustix::process::{Pid, PidfdFlags};

use crate::commands::output::Output;

/// Number of further threads that try.
const THREADS: usize = 3;

/// A way out, and the result of trying it.
type Attempt = (&'static str, Result<(), std::io::Error>);

/// Tries every way on this thread and on new ones, and reports each. Fails if one succeeds. The number of the parent
/// has to be read before the sandbox is entered.
pub(crate) fn run(image: &Path, parent: Option<Pid>, out: &mut Output) -> Result<()> {
    let mut all = vec![("main", attempts(image, parent))];
    let others: Vec<_> = (0..THREADS)
        .map(|_| {
            let image = image.to_owned();
            std::thread::spawn(move || attempts(&image, parent))
        })
        .collect();
    for other in others {
        match other.join() {
            Ok(attempts) => all.push(("thread", attempts)),
            Err(_) => bail!("a thread panicked"),
        }
    }
    let mut open = Vec::new();
    for (thread, attempts) in all {
        for (name, result) in attempts {
            match result {
                Ok(()) => open.push(name),
                Err(error) => writeln!(out, "{thread}: {name}: {error}")?,
            }
        }
    }
    if !open.is_empty() {
        bail!("the sandbox has holes: {}", open.join(", "));
    }
    Ok(())
}

fn attempts(image: &Path, parent: Option<Pid>) -> Vec<Attempt> {
    let own = std::env::temp_dir().join(format!("spinney-probe-{}", std::process::id()));
    let kill = parent.map_or(Ok(()), rustix::process::test_kill_process);
    let pidfd = parent.map_or(Ok(()), |parent| rustix::process::pidfd_open(parent, PidfdFlags::empty()).map(drop));
    vec![
        ("read /etc/passwd", std::fs::read("/etc/passwd").map(drop)),
        ("read its own memory map", std::fs::read("/proc/self/maps").map(drop)),
        ("open the image again", std::fs::File::open(image).map(drop)),
        ("list /", std::fs::read_dir("/").map(drop)),
        ("make a file", std::fs::write(&own, "x")),
        ("make a directory", std::fs::create_dir(&own)),
        ("remove the image", std::fs::remove_file(image)),
        ("rename the image", std::fs::rename(image, &own)),
        ("link the image", std::fs::hard_link(image, &own)),
        ("look at a path", std::fs::metadata("/etc/passwd").map(drop)),
        ("make a TCP connection", TcpStream::connect(("127.0.0.1", 1)).map(drop).or_else(refused)),
        ("make a UDP socket", UdpSocket::bind(("127.0.0.1", 0)).map(drop)),
        ("make a local socket", UnixDatagram::unbound().map(drop)),
        ("start a program", Command::new("/bin/true").status().map(drop)),
        ("become a program", Err(Command::new("/bin/false").exec())),
        ("signal the parent", kill.map_err(Into::into)),
        ("get hold of the parent", pidfd.map_err(Into::into)),
    ]
}

/// A refused connection means that the socket itself could be made.
fn refused(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::ConnectionRefused { Ok(()) } else { Err(error) }
}
