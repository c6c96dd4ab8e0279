//! Starts the cluster (`suites/ceph.sh`), its images and the servers of NBD in front of them, and kills them. Called by
//! the trial `ceph`.

use crate::system;
use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PROGRAMS: [&str; 8] = ["ceph-mon", "ceph-osd", "ceph-mgr", "ceph", "rbd", "monmaptool", "qemu-nbd", "btrfs"];
/// Longest time for a server to start. A lock that a killed one left is broken only after its time has passed.
const START_MAX: Duration = Duration::from_secs(60);
/// Longest time until all data has all its copies again.
const CLEAN_MAX: Duration = Duration::from_secs(180);

/// A program that the trial needs and that is missing.
pub(super) fn missing() -> Option<&'static str> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_here = |program: &str| std::env::split_paths(&paths).any(|dir| dir.join(program).exists());
    PROGRAMS.into_iter().find(|program| !is_here(program))
}

/// A cluster, which is ended when it is dropped.
pub(super) struct Cluster {
    script: PathBuf,
    dir: PathBuf,
}

impl Cluster {
    /// Starts a cluster with an empty pool `rbd`.
    pub(super) fn start(root: &Path, dir: &Path, osds: u64) -> Result<Self> {
        let cluster = Self { script: root.join("crates/trials/suites/ceph.sh"), dir: dir.canonicalize()?.join("ceph") };
        cluster.script(&["start"], &[&osds.to_string()])?;
        Ok(cluster)
    }

    fn script(&self, before: &[&str], behind: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.script);
        command.args(before).arg(&self.dir).args(behind);
        // Its daemons would keep a pipe open.
        let log = std::fs::File::create(self.dir.with_extension("log"))?;
        let status = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).status()?;
        let said = || std::fs::read_to_string(self.dir.with_extension("log")).unwrap_or_default();
        ensure!(status.success(), "{before:?}: {status}: {}", said());
        Ok(())
    }

    fn conf(&self) -> String {
        self.dir.join("ceph.conf").display().to_string()
    }

    fn ask(&self, program: &str, words: &[&str]) -> Result<String> {
        system::run(program, &[&["-c", &*self.conf()], words].concat())
    }

    /// Kills an OSD with SIGKILL.
    pub(super) fn kill(&self, osd: u64) -> Result<()> {
        self.script(&["kill"], &[&format!("osd.{osd}")])
    }

    /// Starts a killed OSD again.
    pub(super) fn revive(&self, osd: u64) -> Result<()> {
        self.script(&["revive"], &[&osd.to_string()])
    }

    /// Waits until each object has all its copies.
    pub(super) fn wait_until_clean(&self) -> Result<()> {
        let deadline = Instant::now() + CLEAN_MAX;
        loop {
            let said = self.ask("ceph", &["pg", "stat"])?;
            let states = said.split(';').next().and_then(|part| part.split_once(": ")).map_or("", |(_, states)| states);
            if !states.is_empty() && states.split(',').all(|state| state.trim().ends_with(" active+clean")) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the cluster does not recover: {said}");
            thread::sleep(Duration::from_millis(500));
        }
    }

    /// Makes an image.
    pub(super) fn create(&self, name: &str, bytes: u64) -> Result<()> {
        self.ask("rbd", &["create", &format!("rbd/{name}"), "--size", &format!("{bytes}B")]).map(drop)
    }

    /// Removes an image.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        self.ask("rbd", &["remove", "--no-progress", &format!("rbd/{name}")]).map(drop)
    }

    /// Copies an image to a file.
    pub(super) fn export(&self, name: &str, to: &Path) -> Result<()> {
        let _ = std::fs::remove_file(to);
        self.ask("rbd", &["export", "--no-progress", &format!("rbd/{name}"), &to.display().to_string()]).map(drop)
    }

    /// Serves an image by `qemu-nbd`.
    pub(super) fn serve(&self, name: &str) -> Result<Server> {
        let socket = self.dir.join("nbd.sock");
        // That of a killed server.
        let _ = std::fs::remove_file(&socket);
        let image = format!("rbd:rbd/{name}:conf={}", self.conf());
        let mut command = Command::new("qemu-nbd");
        command.args(["-f", "raw", "-t", "-e", "8", "--discard=unmap", "-k"]).arg(&socket).arg(image);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("qemu-nbd")?;
        let mut server = Server { child, socket };
        let deadline = Instant::now() + START_MAX;
        while std::os::unix::net::UnixStream::connect(&server.socket).is_err() {
            let ended = server.child.try_wait()?;
            ensure!(ended.is_none(), "qemu-nbd ends: has it rbd (Debian: qemu-block-extra)?");
            ensure!(Instant::now() < deadline, "qemu-nbd does not start");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.script(&["stop"], &[]) {
            eprintln!("the cluster in {}: {error:#}", self.dir.display());
        }
    }
}

/// A server of NBD, which is killed with SIGKILL when it is dropped.
pub(super) struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// The device that it serves.
    pub(super) fn locator(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Ends it as a user does.
    pub(super) fn end(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "qemu-nbd: {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
