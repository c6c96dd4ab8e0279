//! A directory for one test, the program run in it, and trees compared.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Debug;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
}

/// The result of a run of the program.
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
    line: String,
}

impl Run {
    /// Lines of the standard error; the one is left out that says what to run next on a damaged image.
    pub(crate) fn err_lines(&self) -> usize {
        let hints = self.err.lines().filter(|line| line.starts_with("spinney: `spinney check ")).count();
        assert!(hints == 0 || (hints, self.status) == (1, 3), "{}", self.err);
        self.err.lines().count() - hints
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// In memory if possible, so that other writes to the disk delay nothing.
    pub(crate) fn in_memory() -> Self {
        tempfile::tempdir_in("/dev/shm").map_or_else(|_| Self::new(), |dir| Self { dir })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `spinney` with the words of `line`.
    pub(crate) fn run(&self, line: &str) -> Run {
        self.run_words(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// As [`Bench::run`], with variables of the environment.
    pub(crate) fn run_with(&self, line: &str, variables: &[(&str, &str)]) -> Run {
        self.run_in(&line.split_whitespace().collect::<Vec<_>>(), variables)
    }

    pub(crate) fn run_words<S: AsRef<std::ffi::OsStr> + Debug>(&self, words: &[S]) -> Run {
        self.run_in(words, &[])
    }

    fn run_in<S: AsRef<std::ffi::OsStr> + Debug>(&self, words: &[S], variables: &[(&str, &str)]) -> Run {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
        // State files of programs are deleted with the test directory.
        command.env("XDG_STATE_HOME", self.dir.path().join("state"));
        let output = command.args(words).envs(variables.iter().copied()).current_dir(&self.dir).output().unwrap();
        let Output { status, stdout, stderr } = output;
        Run {
            status: status.code().expect("the program was killed"),
            out: stdout,
            err: String::from_utf8(stderr).unwrap(),
            line: format!("{words:?}"),
        }
    }

    /// Runs the program, which must succeed, and returns what it wrote.
    pub(crate) fn ok(&self, line: &str) -> String {
        let run = self.run(line);
        assert_eq!(run.status, 0, "{}: {}", run.line, run.err);
        String::from_utf8_lossy(&run.out).into_owned()
    }

    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(line)).unwrap()
    }

    /// An image with the contents of [`Bench::fill`].
    pub(crate) fn filled_image(&self) {
        self.fill("src");
        self.ok("mkfs -q --rootdir src a.img");
    }

    /// A directory with everything that needs no root.
    pub(crate) fn fill(&self, name: &str) {
        let base = self.path(name);
        std::fs::create_dir_all(base.join("sub/deep/er")).unwrap();
        std::fs::create_dir(base.join("empty")).unwrap();
        std::fs::write(base.join("a.txt"), "hello\n").unwrap();
        std::fs::write(base.join("nothing"), "").unwrap();
        std::fs::write(base.join("middle"), pattern(30_000)).unwrap();
        std::fs::write(base.join("sub/large"), pattern(3_500_001)).unwrap();
        for index in 0..600 {
            let name = format!("sub/deep/file-{index:03}");
            std::fs::write(base.join(name), pattern(index * 7)).unwrap();
        }
        std::fs::hard_link(base.join("a.txt"), base.join("sub/again.txt")).unwrap();
        std::os::unix::fs::symlink("../a.txt", base.join("sub/link")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", base.join("outside")).unwrap();
        let sparse = std::fs::File::create(base.join("sparse")).unwrap();
        sparse.set_len(20 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"island", 9 << 20).unwrap();
        let mode = |name: &str, mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(base.join(name), permissions).unwrap();
        };
        mode("middle", 0o4751);
        mode("empty", 0o1777);
        mode("sub/deep/er", 0o500);
        let fifo = base.join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o640),
            0,
        )
        .unwrap();
        let socket = std::os::unix::net::UnixListener::bind(base.join("sock")).unwrap();
        drop(socket);
        // Not every file system of a host has attributes.
        let flags = rustix::fs::XattrFlags::empty();
        let _ = rustix::fs::setxattr(base.join("a.txt"), "user.note", b"\0value\xff", flags);
        let _ = rustix::fs::setxattr(base.join("sub"), "user.dir", &pattern(3000), flags);
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(915_148_800, 123_456_789);
        let times = std::fs::FileTimes::new().set_modified(time).set_accessed(time);
        for name in ["middle", "empty", "sub"] {
            std::fs::File::open(base.join(name)).unwrap().set_times(times).unwrap();
        }
    }

    /// The sectors of an image that begin with these bytes.
    pub(crate) fn sectors_of(&self, image: &str, wanted: &[u8]) -> Vec<u64> {
        let bytes = std::fs::read(self.path(image)).unwrap();
        let sectors = (0u64..).step_by(4096).zip(bytes.chunks(4096));
        sectors.filter(|(_, sector)| sector.starts_with(wanted)).map(|(at, _)| at).collect()
    }

    /// Changes a few bytes of the sector.
    pub(crate) fn rot(&self, image: &str, sector: u64) {
        let file = std::fs::File::options().write(true).open(self.path(image)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"rot", sector + 100).unwrap();
    }

    /// Passes an image through `btrfs check`, where that is installed.
    pub(crate) fn check(&self, image: &str) {
        let mut command = Command::new("btrfs");
        command.args(["check", "--check-data-csum"]).arg(self.path(image));
        let Ok(output) = command.output() else { return };
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "btrfs check {image}: {text}");
    }
}

/// Bytes that depend on their place.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 251) % 251).unwrap()).collect()
}

/// All properties that a copy must keep, of all files below a directory, by their paths.
pub(crate) fn snapshot(base: &Path) -> BTreeMap<OsString, String> {
    let mut found = BTreeMap::new();
    let mut names = BTreeMap::new();
    visit(base, base, &mut names, &mut found);
    found
}

fn visit(base: &Path, path: &Path, names: &mut BTreeMap<(u64, u64), String>, found: &mut BTreeMap<OsString, String>) {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    let relative = path.strip_prefix(base).unwrap().as_os_str().to_owned();
    let kind = metadata.file_type();
    let mut facts = format!(
        "{:o} {}:{} mtime {}.{:09}",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    );
    if kind.is_file() {
        let bytes = std::fs::read(path).unwrap();
        let sum =
            bytes.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(0x100_0000_01b3).wrapping_add(u64::from(*byte)));
        facts.push_str(&format!(" size {} sum {sum:x}", bytes.len()));
    } else if kind.is_symlink() {
        facts.push_str(&format!(" -> {}", std::fs::read_link(path).unwrap().display()));
    }
    if !kind.is_dir() && metadata.nlink() > 1 {
        let id = (metadata.dev(), metadata.ino());
        let first = names.entry(id).or_insert_with(|| relative.display().to_string());
        facts.push_str(&format!(" links {} first {first}", metadata.nlink()));
    }
    facts.push_str(&format!(" xattrs {:?}", xattrs(path)));
    found.insert(relative, facts);
    if kind.is_dir() {
        // In order, so that the first of several links is the same one everywhere.
        let entries = std::fs::read_dir(path).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            visit(base, &path, names, found);
        }
    }
}

fn xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = vec![0; 65_536];
    let count = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or_default();
    let mut found = BTreeMap::new();
    for name in names[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = std::ffi::OsStr::from_bytes(name);
        let mut value = vec![0; 65_536];
        let count = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap_or_default();
        found.insert(name.display().to_string(), value[..count].to_vec());
    }
    found
}

/// Fails with the files that differ.
pub(crate) fn assert_same(a: &Path, b: &Path) {
    let (a, b) = (snapshot(a), snapshot(b));
    for (path, facts) in &a {
        let other = b.get(path).map_or("(missing)", String::as_str);
        assert_eq!(facts, other, "{}", path.display());
    }
    for path in b.keys() {
        assert!(a.contains_key(path), "{} is too many", path.display());
    }
}

/// A server of a test; it is killed when it is dropped.
pub(crate) struct Running(pub(crate) std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
