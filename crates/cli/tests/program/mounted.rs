//! A mount for one test, its processes, and signals to them.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::Bench;

/// Longest time for an ending.
pub(crate) const END_MAX: Duration = Duration::from_secs(10);

pub(crate) fn can_mount() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let has_helper = Command::new("fusermount3").arg("-V").output().is_ok();
    let can = Path::new("/dev/fuse").exists() && (is_root || has_helper);
    if !can {
        eprintln!("SKIPPED: nothing can be mounted here");
    }
    can
}

pub(crate) fn can_mount_as_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: this needs root");
    }
    is_root && can_mount()
}

/// An image `a.img` and a directory `mnt`.
pub(crate) struct Mounted {
    pub(crate) bench: Bench,
}

impl Mounted {
    pub(crate) fn new() -> Self {
        Self::of(Bench::new())
    }

    fn of(bench: Bench) -> Self {
        bench.ok("mkfs -q --size 256M a.img");
        fs::create_dir(bench.path("mnt")).unwrap();
        Self { bench }
    }

    pub(crate) fn mount(options: &str) -> Self {
        Self::new().mounted(options)
    }

    /// A mount whose timing is independent of other writes to the disk.
    pub(crate) fn mount_in_memory() -> Self {
        Self::of(Bench::in_memory()).mounted("")
    }

    fn mounted(self, options: &str) -> Self {
        self.bench.ok(&format!("mount {options} a.img mnt"));
        assert!(self.is_mounted());
        self
    }

    /// As [`Mounted::new`]; `None` if nothing can be mounted.
    pub(crate) fn if_possible() -> Option<Self> {
        can_mount().then(Self::new)
    }

    /// As [`Mounted::mount`]; `None` if nothing can be mounted.
    pub(crate) fn mount_if_possible(options: &str) -> Option<Self> {
        can_mount().then(|| Self::mount(options))
    }

    /// Checks the image, and mounts it again.
    pub(crate) fn check_and_mount_again(&self) {
        self.bench.check("a.img");
        self.bench.ok("mount a.img mnt");
    }

    /// Unmounts, and waits for the end of all processes.
    pub(crate) fn unmount(&self) {
        self.bench.ok("umount mnt");
        self.wait_until_gone();
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.bench.path("mnt").canonicalize().unwrap()
    }

    pub(crate) fn is_mounted(&self) -> bool {
        let parent = self.bench.dir.path().canonicalize().unwrap();
        let dir = parent.join("mnt");
        let table = fs::read_to_string("/proc/mounts").unwrap();
        ["fuse", "fuseblk"].iter().any(|kind| table.contains(&format!(" {} {kind}.spinney ", dir.display())))
    }

    /// Processes of this mount with a role.
    pub(crate) fn processes(&self, role: &str) -> Vec<i32> {
        let image = self.bench.path("a.img").canonicalize().unwrap();
        let image = image.display().to_string();
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter(|entry| {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.contains(&role.as_bytes()) && words.contains(&image.as_bytes())
        })
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
    }

    pub(crate) fn wait_until_gone(&self) {
        let start = Instant::now();
        let is_there =
            || self.is_mounted() || !self.processes("server").is_empty() || !self.processes("supervisor").is_empty();
        while is_there() {
            assert!(start.elapsed() < END_MAX, "something is left");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A mount in the foreground.
    pub(crate) fn foreground(&self) -> Child {
        let child = Command::new(env!("CARGO_BIN_EXE_spinney"))
            .args(["mount", "--foreground", "-v", "a.img", "mnt"])
            .current_dir(&self.bench.dir)
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        self.wait_until_mounted();
        child
    }

    pub(crate) fn wait_until_mounted(&self) {
        let start = Instant::now();
        // The mount appears in the table a moment before requests are answered.
        while !self.is_mounted() {
            assert!(start.elapsed() < END_MAX, "it does not mount");
            std::thread::sleep(Duration::from_millis(10));
        }
        fs::read_dir(self.dir()).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = self.bench.run("umount --lazy mnt");
        }
    }
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A mount by the kernel; unmounted when dropped.
pub(crate) struct KernelMount(pub(crate) PathBuf);

impl KernelMount {
    pub(crate) fn of(image: &Path, dir: PathBuf) -> Option<Self> {
        Self::with(image, dir, "loop,noatime")
    }

    pub(crate) fn with(image: &Path, dir: PathBuf, options: &str) -> Option<Self> {
        fs::create_dir_all(&dir).unwrap();
        let mounted = Command::new("mount").args(["-t", "btrfs", "-o", options]).args([image, &dir]).output();
        mounted.ok().filter(|output| output.status.success()).map(|_| Self(dir))
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}
