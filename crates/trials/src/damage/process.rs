//! Runs programs under limits of time and memory, and keeps their output. Called by `commands` and `compare`.

use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Bytes that are kept of each output stream; the rest is discarded.
const SAID_BYTES_MAX: u64 = 32 << 20;

/// Limits of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) seconds: u64,
    /// Address space.
    pub(super) memory_kib: u64,
    /// Largest file it may write, in blocks of 1 KiB.
    pub(super) file_blocks: Option<u64>,
}

/// Outcome of a program.
#[derive(Debug)]
pub(super) struct Ended {
    /// `None` if it was killed at the time limit.
    pub(super) status: Option<ExitStatus>,
    pub(super) out: String,
    pub(super) err: String,
}

impl Ended {
    /// The exit status of a program that ended by itself.
    pub(super) fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// The fault, if the program hung, panicked or was ended by a signal, which is never acceptable.
    pub(super) fn fault(&self) -> Option<String> {
        let Some(status) = self.status else { return Some("hangs".to_owned()) };
        if self.err.contains("panicked at") {
            let lines = self.err.lines().filter(|line| !line.is_empty()).take(2);
            return Some(lines.collect::<Vec<_>>().join(": "));
        }
        status.signal().map(|signal| format!("ended by signal {signal}"))
    }
}

/// Runs a program without input.
pub(super) fn run(program: &Path, words: &[&OsStr], limits: Limits) -> Result<Ended> {
    let mut shell = format!("ulimit -v {}; ", limits.memory_kib);
    if let Some(blocks) = limits.file_blocks {
        shell.push_str(&format!("ulimit -f {blocks}; "));
    }
    shell.push_str("exec \"$@\"");
    let mut child = Command::new("bash")
        .args(["-c", &shell, "bash"])
        .arg(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let (out, err) = (scope.spawn(|| said(out)), scope.spawn(|| said(err)));
        let status = wait(&mut child, Duration::from_secs(limits.seconds))?;
        let joined =
            |text: std::thread::Result<io::Result<String>>| text.ok().context("a reader of a pipe")?.context("a pipe");
        Ok(Ended { status, out: joined(out.join())?, err: joined(err.join())? })
    })
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn said(pipe: Option<impl Read>) -> io::Result<String> {
    let Some(mut pipe) = pipe else { return Ok(String::new()) };
    let mut kept = Vec::new();
    (&mut pipe).take(SAID_BYTES_MAX).read_to_end(&mut kept)?;
    io::copy(&mut pipe, &mut io::sink())?;
    Ok(String::from_utf8_lossy(&kept).into_owned())
}
