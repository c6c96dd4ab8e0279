//! Makes subvolumes and snapshots through a mount, by a process that may call `ioctl(2)` with any argument. Called by
//! `writer`, and by the trial `torture`.

use anyhow::{Context, Result, ensure};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Reads lines `make PATH`, `snapshot PATH NEW` and `remove PATH`, and answers each with the number of an error or 0.
/// It names a snapshot's source by number, since a server has no access to descriptors of other processes; for the
/// kernel's btrfs, which lacks that flag, by descriptor.
const SCRIPT: &str = "
import errno, fcntl, os, struct, sys
for line in sys.stdin:
    word, *paths = line.split()
    fds = []
    try:
        folder, name = os.path.split(paths[-1])
        fds.append(os.open(folder, os.O_RDONLY))
        if word == 'make':
            fcntl.ioctl(fds[0], 0x5000940e, bytearray(struct.pack('<q4088s', 0, name.encode())))
        elif word == 'remove':
            fds.append(os.open(paths[0], os.O_RDONLY))
            fcntl.ioctl(fds[1], 0x4008941a, bytearray(8))
            fcntl.ioctl(fds[0], 0x5000940f, bytearray(struct.pack('<q4088s', 0, name.encode())))
        else:
            fds.append(os.open(paths[0], os.O_RDONLY))
            found = bytearray(struct.pack('<QQ', 0, 256) + bytes(4080))
            fcntl.ioctl(fds[1], 0xd0009412, found)
            number = struct.unpack('<Q', found[:8])[0]
            args = struct.pack('<qQQ32s4040s', 0, number, 1 << 4 | 1 << 1, b'', name.encode())
            try:
                fcntl.ioctl(fds[0], 0x50009417, bytearray(args))
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                args = struct.pack('<qQQ32s4040s', fds[1], 0, 1 << 1, b'', name.encode())
                fcntl.ioctl(fds[0], 0x50009417, bytearray(args))
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
    for fd in fds:
        os.close(fd)
";

/// The process that makes them.
#[derive(Debug)]
pub(in crate::mount) struct Maker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Maker {
    pub(in crate::mount) fn start() -> Result<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("python3")?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, input, output })
    }

    /// Makes a subvolume.
    pub(in crate::mount) fn make(&mut self, path: &Path) -> Result<()> {
        self.ask(&format!("make {}", path.display())).context("a new subvolume")?;
        ensure!(path.is_dir(), "the new subvolume is not there");
        Ok(())
    }

    /// Makes a read-only snapshot of the subvolume `from` at the path `to`.
    pub(in crate::mount) fn snapshot(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.ask(&format!("snapshot {} {}", from.display(), to.display()))
    }

    /// Deletes a subvolume. A read-only one becomes writable first: a mount treats every caller as unprivileged, and
    /// such a caller may not delete it, on the kernel's btrfs either.
    pub(in crate::mount) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.ask(&format!("remove {}", path.display()))
    }

    fn ask(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.input, "{line}")?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        match answer.trim().parse() {
            Ok(0) => Ok(()),
            Ok(number) => Err(io::Error::from_raw_os_error(number)),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        // It ends with its input, unless it waits for a mount.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
