//! Makes, snapshots and removes subvolumes through a mount, in a helper process that may call `ioctl(2)` with any
//! argument and times the one call that counts. The threads in `work` use it.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Reads lines `make PATH`, `snapshot PATH NEW` and `remove PATH`, and answers each with the number of an error or 0,
/// and the nanoseconds of the call. A snapshot's source is named by its number, as a server knows no descriptors of
/// others; by its descriptor to the kernel's btrfs, which does not know that flag.
const SCRIPT: &str = "
import errno, fcntl, os, struct, sys, time
def call(fd, number, args):
    global took
    begin = time.monotonic_ns()
    try:
        fcntl.ioctl(fd, number, args)
    finally:
        took = time.monotonic_ns() - begin
for line in sys.stdin:
    word, *paths = line.split()
    fds, took = [], 0
    try:
        folder, name = os.path.split(paths[-1])
        fds.append(os.open(folder, os.O_RDONLY))
        if word == 'make':
            call(fds[0], 0x5000940e, bytearray(struct.pack('<q4088s', 0, name.encode())))
        elif word == 'remove':
            call(fds[0], 0x5000940f, bytearray(struct.pack('<q4088s', 0, name.encode())))
        else:
            fds.append(os.open(paths[0], os.O_RDONLY))
            found = bytearray(struct.pack('<QQ', 0, 256) + bytes(4080))
            fcntl.ioctl(fds[1], 0xd0009412, found)
            number = struct.unpack('<Q', found[:8])[0]
            args = struct.pack('<qQQ32s4040s', 0, number, 1 << 4, b'', name.encode())
            try:
                call(fds[0], 0x50009417, bytearray(args))
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                args = struct.pack('<qQQ32s4040s', fds[1], 0, 0, b'', name.encode())
                call(fds[0], 0x50009417, bytearray(args))
        print(0, took, flush=True)
    except OSError as error:
        print(error.errno, took, flush=True)
    for fd in fds:
        os.close(fd)
";

/// The process that makes them; it ends with its input.
#[derive(Debug)]
pub(super) struct Asker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Asker {
    pub(super) fn start() -> Result<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("python3")?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, input, output })
    }

    /// A subvolume at a path.
    pub(super) fn make(&mut self, path: &Path) -> io::Result<Duration> {
        self.ask(&format!("make {}", path.display()))
    }

    /// A snapshot of the subvolume `from` at the path `to`, which can be written to.
    pub(super) fn snapshot(&mut self, from: &Path, to: &Path) -> io::Result<Duration> {
        self.ask(&format!("snapshot {} {}", from.display(), to.display()))
    }

    /// Deletes the subvolume at a path.
    pub(super) fn remove(&mut self, path: &Path) -> io::Result<Duration> {
        self.ask(&format!("remove {}", path.display()))
    }

    fn ask(&mut self, line: &str) -> io::Result<Duration> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{line}")?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        let mut words = answer.split_whitespace().map(str::parse::<u64>);
        match (words.next(), words.next()) {
            (Some(Ok(0)), Some(Ok(ns))) => Ok(Duration::from_nanos(ns)),
            (Some(Ok(number)), _) => Err(io::Error::from_raw_os_error(i32::try_from(number).unwrap_or(i32::MAX))),
            _ => Err(io::Error::other(format!("an answer of python3: {answer:?}"))),
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
