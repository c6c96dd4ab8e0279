//! `spinney serve nbd`, and images that are behind a server of NBD.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Bench, Running, pattern};
use crate::mounted::can_mount;

/// Longest time for a start or an end.
const TIME_MAX: Duration = Duration::from_secs(20);

/// A server.
struct Served {
    child: Running,
    lines: Vec<String>,
}

impl Served {
    /// Starts `spinney serve nbd` with these words, and waits for its last line.
    fn start(bench: &Bench, words: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
        command.args(["serve", "nbd"]).args(words.split_whitespace());
        Self::run(command.current_dir(&bench.dir))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let is_last = line.starts_with("use it with: ");
            lines.push(line);
            if is_last {
                break;
            }
        }
        assert!(!lines.is_empty(), "the server does not start");
        Self { child: Running(child), lines }
    }

    /// Asks it to end, and returns its status.
    fn end(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child.0), Signal::TERM).unwrap();
        let deadline = Instant::now() + TIME_MAX;
        while Instant::now() < deadline {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server does not end");
    }

    /// The locator that it printed first.
    fn locator(&self) -> String {
        self.lines[0].rsplit_once(" at ").unwrap().1.to_owned()
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIME_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_command_takes_an_image_behind_a_server() {
    let bench = Bench::new();
    bench.fill("src");
    fs::File::create(bench.path("disk.img")).unwrap().set_len(256 << 20).unwrap();
    let mut served = Served::start(&bench, "--socket here.sock disk.img");
    let socket = bench.path("here.sock");
    let found = fs::metadata(&socket).unwrap();
    assert!(found.file_type().is_socket() && found.permissions().mode() & 0o777 == 0o600, "{found:?}");
    let image = served.locator();
    bench.ok(&format!("mkfs -q --rootdir src {image}"));
    assert!(bench.ok(&format!("ls {image} /sub")).contains("large"));
    assert!(bench.ok(&format!("ls {image}:/sub")).contains("large"));
    fs::write(bench.path("new"), pattern(5_000_000)).unwrap();
    bench.ok(&format!("put {image} new /"));
    bench.ok(&format!("get {image} /new copy"));
    assert!(fs::read(bench.path("copy")).unwrap() == pattern(5_000_000));
    assert_eq!(bench.ok(&format!("cat {image}:/a.txt")), "hello\n");
    bench.ok(&format!("check --data {image}"));
    bench.ok(&format!("scrub start -q {image}"));
    bench.ok(&format!("info {image}"));
    let busy = bench.run("ls disk.img");
    assert_eq!(busy.status, 7, "{}", busy.err);
    assert_eq!(served.end(), Some(0));
    wait_for("the socket is removed", || !socket.exists());
    bench.check("disk.img");
    let gone = bench.run(&format!("ls {image}"));
    assert_ne!(gone.status, 0);
    assert!(gone.err.contains(&image), "{}", gone.err);
}

#[test]
fn a_file_in_an_image_is_a_disk() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 512M outer.img");
    for name in ["one", "two"] {
        fs::File::create(bench.path(name)).unwrap().set_len(128 << 20).unwrap();
        bench.ok(&format!("put outer.img {name} /"));
    }
    let mut served = Served::start(&bench, "--listen 0 outer.img:/one outer.img:/two");
    let one = served.locator();
    assert!(one.starts_with("nbd://127.0.0.1:") && one.ends_with("/one"), "{one}");
    let two = one.replace("/one", "/two");
    bench.fill("src");
    for disk in [&one, &two] {
        bench.ok(&format!("mkfs -q --rootdir src {disk}"));
        bench.ok(&format!("check --data {disk}"));
    }
    bench.ok(&format!("trim -q {one}"));
    assert_eq!(served.end(), Some(0));
    bench.check("outer.img");
    bench.ok("get outer.img /one out.img");
    bench.check("out.img");
    let sparse = std::os::unix::fs::MetadataExt::blocks(&fs::metadata(bench.path("out.img")).unwrap());
    assert!(sparse * 512 < 64 << 20, "{sparse} blocks");
}

#[test]
fn a_read_only_server_refuses_changes_and_other_arguments_are_checked() {
    let bench = Bench::new();
    bench.filled_image();
    let before = fs::read(bench.path("a.img")).unwrap();
    let served = Served::start(&bench, "--read-only --socket s a.img");
    let image = served.locator();
    let refused = bench.run(&format!("rm {image} /a.txt"));
    assert!(refused.status != 0 && refused.err.contains("read-only"), "{}", refused.err);
    assert_eq!(bench.ok(&format!("cat {image} /a.txt")), "hello\n");
    drop(served);
    assert!(fs::read(bench.path("a.img")).unwrap() == before);
    for (words, reason) in [
        ("serve nbd none.img", "none.img"),
        ("serve nbd a.img:/sub", "is a directory"),
        ("serve nbd a.img a.img:/a.txt", "not both"),
        ("serve nbd --listen 127.0.0.1:x a.img", "--listen"),
        ("serve nbd --listen 1 --socket s a.img", "cannot be used with"),
    ] {
        let run = bench.run(words);
        assert!(run.status != 0 && run.err.contains(reason), "{words}: {}", run.err);
    }
}

/// As systemd does it: a socket at descriptor 3.
const PASS_SOCKET: &str = "
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')
os.execv(sys.argv[2], sys.argv[2:])
";

#[test]
fn sockets_of_systemd_are_served() {
    let bench = Bench::new();
    bench.filled_image();
    let mut command = Command::new("python3");
    command.args(["-c", PASS_SOCKET, "passed.sock", env!("CARGO_BIN_EXE_spinney"), "serve", "nbd", "a.img"]);
    let mut served = Served::run(command.current_dir(&bench.dir));
    assert_eq!(bench.ok("cat nbd+unix:///?socket=passed.sock /a.txt"), "hello\n");
    assert_eq!(served.end(), Some(0));
    assert!(bench.path("passed.sock").exists(), "it is systemd's");
}

#[test]
fn a_mount_reads_on_when_its_server_is_back() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    fs::create_dir(bench.path("mnt")).unwrap();
    let mut served = Served::start(&bench, "--socket here.sock a.img");
    let image = served.locator();
    bench.ok(&format!("mount {image} mnt"));
    let file = bench.path("mnt/file");
    fs::write(&file, pattern(1_000_000)).unwrap();
    rustix::fs::syncfs(fs::File::open(bench.path("mnt")).unwrap()).unwrap();
    bench.ok("umount mnt");
    bench.ok(&format!("mount {image} mnt"));
    served.child.0.kill().unwrap();
    served.child.0.wait().unwrap();
    wait_for("the socket is removed", || !bench.path("here.sock").exists());
    let _again = Served::start(&bench, "--socket here.sock a.img");
    assert!(fs::read(&file).unwrap() == pattern(1_000_000));
    fs::write(bench.path("mnt/new"), "written after the restart").unwrap();
    bench.ok("umount mnt");
    assert_eq!(bench.ok(&format!("cat {image} /new")), "written after the restart");
    bench.ok(&format!("check --data {image}"));
}
