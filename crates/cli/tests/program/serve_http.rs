//! `spinney serve http`: the files of images and mounts, for clients of HTTP.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Bench, Running, pattern};
use crate::mounted::can_mount;

/// A server.
struct Served {
    child: Running,
    /// The line that says where it is.
    line: String,
}

impl Served {
    fn start(bench: &Bench, words: &str) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_spinney")).args(["serve", "http"]), bench, words)
    }

    fn run(command: &mut Command, bench: &Bench, words: &str) -> Self {
        let command = command.args(words.split_whitespace()).current_dir(&bench.dir).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("read-only"), "the server does not start: {line}");
        Self { child: Running(child), line: line.trim_end().to_owned() }
    }

    fn address(&self) -> &str {
        let (_, rest) = self.line.rsplit_once(" at http://").unwrap();
        rest.trim_end_matches('/')
    }

    /// Status, head and body of the answer to a GET.
    fn get(&self, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
        let mut client = TcpStream::connect(self.address()).unwrap();
        ask(&mut client, self.address(), path, headers)
    }
}

trait Client: std::io::Read + std::io::Write {}
impl<C: std::io::Read + std::io::Write> Client for C {}

fn ask(client: &mut dyn Client, host: &str, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
    write!(client, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, bytes[end + 4..].to_vec())
}

#[test]
fn an_image_is_shown_to_browsers() {
    let bench = Bench::new();
    bench.filled_image();
    bench.ok("subvolume create a.img:/vol");
    let mut served = Served::start(&bench, "--listen 0 --as root a.img");
    let (status, _, page) = served.get("/", "");
    let page = String::from_utf8(page).unwrap();
    assert_eq!(status, 200);
    for words in
        ["<title>/ · a.img</title>", ">sub/</a>", ">a.txt</a>", "subvolume", "→ /etc/passwd", "1999-01-01 00:00"]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert_eq!(served.get("/a.txt", "").2, b"hello\n");
    assert_eq!(served.get("/sub/large", "Range: bytes=3000000-\r\n").2, &pattern(3_500_001)[3_000_000..]);
    assert_eq!(served.get("/sub/link", "").2, b"hello\n");
    assert_eq!(served.get("/outside", "").0, 404);
    assert_eq!((served.get("/pipe", "").0, served.get("/%2e%2e/", "").0, served.get("/sub", "").0), (404, 400, 301));
    let (_, _, tar) = served.get("/sub.tar", "");
    assert!(tar.len() > 3_500_001);
    let mut other = TcpStream::connect(served.address()).unwrap();
    assert_eq!(ask(&mut other, "evil.example", "/", "").0, 421);
    kill_process(Pid::from_child(&served.child.0), Signal::TERM).unwrap();
    assert_eq!(served.child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_directory_is_served_alone_on_a_socket() {
    let bench = Bench::new();
    bench.filled_image();
    let served = Served::start(&bench, "--socket here.sock --as root a.img:/sub");
    assert_eq!(fs::metadata(bench.path("here.sock")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(served.line.contains("here.sock"), "{}", served.line);
    let get = |path: &str| ask(&mut UnixStream::connect(bench.path("here.sock")).unwrap(), "localhost", path, "").0;
    assert_eq!((get("/large"), get("/again.txt"), get("/a.txt"), get("/link")), (200, 200, 404, 404));
    let wrong = bench.run("serve http --listen 0 a.img:/a.txt");
    assert!(wrong.status != 0 && wrong.err.contains("/a.txt"), "{}", wrong.err);
}

/// Another user sees what the permissions in the image allow him.
#[test]
fn permissions_count_for_the_serving_user() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: this needs root");
        return;
    }
    let bench = Bench::new();
    bench.fill("src");
    fs::write(bench.path("src/secret"), "s").unwrap();
    fs::set_permissions(bench.path("src/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    bench.ok("mkfs -q --rootdir src a.img");
    fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(bench.path("a.img"), fs::Permissions::from_mode(0o644)).unwrap();
    let program = bench.path("spinney");
    fs::copy(env!("CARGO_BIN_EXE_spinney"), &program).unwrap();
    let start = |words: &str| {
        Served::run(Command::new(&program).args(["serve", "http"]).uid(12_345).gid(12_345), &bench, words)
    };
    let served = start("--listen 0 a.img");
    assert_eq!((served.get("/secret", "").0, served.get("/a.txt", "").0), (403, 200));
    assert_eq!(start("--listen 0 --as root a.img").get("/secret", "").2, b"s");
}

#[test]
fn a_mount_is_served_as_it_changes() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    fs::create_dir(bench.path("mnt")).unwrap();
    bench.ok("mount a.img mnt");
    fs::create_dir(bench.path("mnt/dir")).unwrap();
    fs::write(bench.path("mnt/dir/file"), "one").unwrap();
    let served = Served::start(&bench, "--listen 0 mnt/dir");
    let (_, head, first) = served.get("/file", "");
    let etag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap().to_owned();
    fs::write(bench.path("mnt/dir/file"), "two two").unwrap();
    let (status, _, second) = served.get("/file", &format!("If-None-Match: {etag}\r\n"));
    drop(served);
    bench.ok("umount mnt");
    assert_eq!((first.as_slice(), status, second.as_slice()), (&b"one"[..], 200, &b"two two"[..]));
}

/// Clients that break the protocol, or do nothing, take nothing from others.
#[test]
fn bad_clients_lose_their_own_connections_alone() {
    let bench = Bench::new();
    bench.filled_image();
    let served = Served::start(&bench, "--listen 0 --as root a.img");
    let idle: Vec<TcpStream> = (0..400).filter_map(|_| TcpStream::connect(served.address()).ok()).collect();
    for bytes in
        [&b"\x16\x03\x01\x02\x00\x01"[..], b"GET / HTTP/9.9\r\n\r\n", b"\r\n\r\n\r\n", &[0xff; 20_000], &[b'a'; 20_000]]
    {
        let mut client = TcpStream::connect(served.address()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // The server may have closed it.
        let _ = client.write_all(bytes);
        let _ = client.shutdown(std::net::Shutdown::Write);
        let _ = client.read_to_end(&mut Vec::new());
    }
    assert_eq!(served.get("/a.txt", "").2, b"hello\n");
    drop(idle);
    assert_eq!(served.get("/a.txt", "").2, b"hello\n");
}

/// An image behind one server is served by another.
#[test]
fn servers_stand_behind_each_other() {
    let bench = Bench::new();
    bench.filled_image();
    fs::create_dir(bench.path("outer")).unwrap();
    fs::copy(bench.path("a.img"), bench.path("outer/a.img")).unwrap();
    bench.ok("mkfs -q --rootdir outer outer.img");
    let first = Served::start(&bench, "--listen 0 --as root outer.img");
    let image = format!("http://{}/a.img", first.address());
    assert_eq!(bench.ok(&format!("cat {image}:/a.txt")), "hello\n");
    let second = Served::start(&bench, &format!("--listen 0 --as root {image}:/sub"));
    assert!(second.get("/large", "").2 == pattern(3_500_001));
}
