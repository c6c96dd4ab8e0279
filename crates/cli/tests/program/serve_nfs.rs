//! `spinney serve nfs`: images for clients of NFS, of another implementation (libnfs) and by single calls.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use spinney::nfs::wire::{
    Arguments, Call, Credential, DirOp, How, Mark, Program, Reader, SetAttributes, Stability, UserCredential,
};

use crate::harness::{Bench, Running, pattern};
use crate::mounted::can_mount;

/// A server.
struct Served {
    child: Running,
    lines: Vec<String>,
    port: u16,
}

impl Served {
    /// Starts `spinney serve nfs` with these words; its secret is in the bench.
    fn start(bench: &Bench, words: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
        command.args(["serve", "nfs", "--key", "key"]).args(words.split_whitespace());
        let mut child = command.current_dir(&bench.dir).stdout(Stdio::piped()).spawn().unwrap();
        let lines: Vec<String> =
            BufReader::new(child.stdout.take().unwrap()).lines().take(3).map(Result::unwrap).collect();
        assert_eq!(lines.len(), 3, "the server does not start");
        let port = lines[0].rsplit_once(':').unwrap().1.parse().unwrap();
        Self { child: Running(child), lines, port }
    }

    fn url(&self, path: &str) -> String {
        let port = self.port;
        format!("nfs://127.0.0.1{path}?nfsport={port}&mountport={port}&uid=1000&gid=1000")
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.child.0), Signal::TERM).unwrap();
        assert!(self.child.0.wait().unwrap().success());
    }

    /// Ends it at once.
    fn kill(mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }
}

/// A client that makes single calls as user 1000.
struct Client {
    stream: TcpStream,
    xid: u32,
}

impl Client {
    fn connect(served: &Served) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", served.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, xid: std::process::id() }
    }

    /// The results of a call.
    fn call(&mut self, program: Program, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let credential = Credential::Sys(UserCredential { uid: 1000, gid: 1000, groups: Vec::new() });
        let (program, version) = (program.number(), Program::VERSION);
        let call = Call { xid: self.xid, rpc_version: 2, program, version, procedure, credential, arguments };
        let record = call.encode();
        let mark = Mark { is_last: true, len: u32::try_from(record.len()).unwrap() };
        self.stream.write_all(&[mark.encode().as_slice(), &record].concat()).unwrap();
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let mut reply = vec![0; usize::try_from(Mark::decode(mark).len).unwrap()];
        self.stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..4], self.xid.to_be_bytes());
        reply.split_off(24)
    }

    /// The results of a procedure that succeeds, behind its status.
    fn nfs(&mut self, arguments: &Arguments<'_>) -> Vec<u8> {
        let mut results = self.call(Program::Nfs, arguments.procedure(), &arguments.encode());
        assert_eq!(results[..4], [0; 4], "{arguments:?}");
        results.split_off(4)
    }

    fn root(&mut self) -> Vec<u8> {
        let results = self.call(Program::Mount, 1, &[0, 0, 0, 1, b'/', 0, 0, 0]);
        Reader::new("MNT", &results[4..]).opaque(64).unwrap().to_vec()
    }

    fn create(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        let how = How::Guarded(SetAttributes { mode: Some(0o644), ..SetAttributes::default() });
        let results = self.nfs(&Arguments::Create { at: DirOp { dir, name: name.as_bytes() }, how });
        Reader::new("CREATE", &results[4..]).opaque(64).unwrap().to_vec()
    }

    /// The verifier at the end of the results of WRITE and COMMIT.
    fn verifier(&mut self, arguments: &Arguments<'_>) -> u64 {
        let results = self.nfs(arguments);
        u64::from_be_bytes(*results.last_chunk().unwrap())
    }

    fn read(&mut self, node: &[u8], offset: u64, count: u32) -> Vec<u8> {
        let results = self.nfs(&Arguments::Read { node, offset, count });
        // Behind attributes, count and end.
        Reader::new("READ", &results[4 + 84 + 8..]).opaque(1 << 20).unwrap().to_vec()
    }
}

fn open_image(bench: &Bench, format: &str) {
    bench.ok(&format!("mkfs -q -t {format} --size 300M --owner 1000:1000 a.img"));
}

/// True if libnfs is here; in CI it has to be.
fn has_libnfs() -> bool {
    let found = ["nfs-ls", "nfs-cp", "nfs-cat"]
        .iter()
        .all(|program| Command::new(program).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok());
    if !found {
        println!("SKIPPED: libnfs-utils is not here");
    }
    found
}

fn ok(program: &str, words: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn programs_of_libnfs_read_and_write_an_image() {
    if !has_libnfs() {
        return;
    }
    for format in ["btrfs", "f2fs"] {
        let bench = Bench::new();
        open_image(&bench, format);
        bench.ok("mkdir a.img:/sub");
        fs::write(bench.path("large"), pattern(9_000_001)).unwrap();
        bench.ok("put a.img large /sub/");
        let served = Served::start(&bench, "--listen 0 a.img");
        let port = served.port;
        assert_eq!(served.lines[0], format!("a.img, read-write, at 127.0.0.1:{port}"));
        let options = format!("vers=3,tcp,port={port},mountport={port}");
        assert_eq!(served.lines[1], format!("mount it on Linux: mount -t nfs -o {options},nolock 127.0.0.1:/ DIR"));
        assert!(ok("nfs-cat", &[&served.url("/sub/large")]) == pattern(9_000_001));
        let listed = String::from_utf8(ok("nfs-ls", &[&served.url("/sub")])).unwrap();
        assert!(listed.contains("9000001 large"), "{listed}");
        let local = bench.path("large").to_str().unwrap().to_owned();
        // With one slash it would mount a directory without a name.
        ok("nfs-cp", &[&local, &served.url("//copy")]);
        served.end();
        bench.ok("check a.img");
        bench.ok("get a.img /copy copy");
        assert!(fs::read(bench.path("copy")).unwrap() == pattern(9_000_001), "{format}");
        assert!(bench.ok("stat a.img:/copy").contains("1000"));
    }
}

#[test]
fn committed_data_outlives_a_server_that_is_killed() {
    for format in ["btrfs", "f2fs"] {
        let bench = Bench::new();
        open_image(&bench, format);
        let served = Served::start(&bench, "--listen 0 a.img");
        let mut client = Client::connect(&served);
        let root = client.root();
        let file = client.create(&root, "file");
        let data = pattern(1 << 20);
        let write = |offset| Arguments::Write { node: &file, offset, stability: Stability::Unstable, data: &data };
        let commit = Arguments::Commit { node: &file, offset: 0, count: 0 };
        let verifier = client.verifier(&write(0));
        assert_eq!(client.verifier(&write(1 << 20)), verifier);
        assert_eq!(client.verifier(&commit), verifier);
        client.verifier(&write(2 << 20));
        let synced = client.create(&root, "synced");
        let stability = Stability::FileSync;
        client.verifier(&Arguments::Write { node: &synced, offset: 0, stability, data: b"synced" });
        let names = ["made", "moved", "removed"].map(|name| (name, client.create(&root, name)));
        let at = |name| DirOp { dir: &root, name };
        client.nfs(&Arguments::Rename { from: at(b"moved"), to: at(b"elsewhere") });
        client.nfs(&Arguments::Remove(at(b"removed")));
        let port = served.port;
        served.kill();

        let served = Served::start(&bench, &format!("--listen {port} a.img"));
        let mut client = Client::connect(&served);
        assert_eq!(client.root(), root);
        for offset in [0, 1 << 20] {
            assert!(client.read(&file, offset, 1 << 20) == data, "{format} {offset}");
        }
        assert_eq!(client.read(&synced, 0, 100), b"synced", "{format}");
        for (name, handle) in &names[..2] {
            client.nfs(&Arguments::GetAttr { node: handle });
            let name = if *name == "moved" { "elsewhere" } else { name };
            client.nfs(&Arguments::Lookup(at(name.as_bytes())));
        }
        let gone = client.call(Program::Nfs, 1, &Arguments::GetAttr { node: &names[2].1 }.encode());
        assert_eq!(gone, 70_u32.to_be_bytes(), "a removed file is stale");
        let lookup = Arguments::Lookup(at(b"moved"));
        assert_eq!(client.call(Program::Nfs, 3, &lookup.encode())[..4], 2_u32.to_be_bytes());
        // So the client knows that it has to send the third piece again.
        assert_ne!(client.verifier(&commit), verifier);
        served.end();
        bench.ok("check a.img");
    }
}

#[test]
fn an_export_of_a_directory_shows_nothing_else() {
    let bench = Bench::new();
    bench.filled_image();
    let served = Served::start(&bench, "--listen 0 --all-squash 0:0 --read-only a.img:/sub");
    assert_eq!(served.lines[0], format!("a.img:/sub, read-only, at 127.0.0.1:{}", served.port));
    let mut client = Client::connect(&served);
    let root = client.root();
    let found = client.nfs(&Arguments::Lookup(DirOp { dir: &root, name: b"large" }));
    let file = Reader::new("LOOKUP", &found).opaque(64).unwrap().to_vec();
    assert!(client.read(&file, 3_000_000, 1000) == pattern(3_500_001)[3_000_000..3_001_000]);
    let above = client.nfs(&Arguments::Lookup(DirOp { dir: &root, name: b".." }));
    assert_eq!(Reader::new("LOOKUP", &above).opaque(64).unwrap(), root);
    let write = Arguments::Write { node: &file, offset: 0, stability: Stability::FileSync, data: b"x" };
    assert_eq!(client.call(Program::Nfs, 7, &write.encode())[..4], 30_u32.to_be_bytes());
    served.end();
}

#[test]
fn what_cannot_be_served_is_refused() {
    let bench = Bench::new();
    bench.filled_image();
    for (words, status, expected) in [
        ("a.img:/a.txt", 1, "not a directory"),
        ("a.img:/none", 1, "no such file"),
        ("none.img", 1, "none.img"),
        ("--all-squash ada a.img", 2, "UID:GID"),
        ("--all-squash 1:1 --no-root-squash a.img", 2, "cannot be used with"),
    ] {
        let run = bench.run(&format!("serve nfs --listen 0 --key key {words}"));
        assert!(run.status == status && run.err.contains(expected), "{words}: {} {}", run.status, run.err);
    }
    fs::set_permissions(bench.path("key"), fs::Permissions::from_mode(0o644)).unwrap();
    let run = bench.run("serve nfs --listen 0 --key key a.img");
    assert!(run.status != 0 && run.err.contains("0600"), "{}", run.err);
    if can_mount() {
        fs::create_dir(bench.path("mnt")).unwrap();
        bench.ok("mount a.img mnt");
        for word in ["mnt", "mnt/sub", "a.img"] {
            let run = bench.run(&format!("serve nfs --listen 0 {word}"));
            assert!(
                run.status != 0 && (run.err.contains("is a mount") || run.err.contains("mounted at")),
                "{word}: {}",
                run.err
            );
        }
        bench.ok("umount mnt");
    }
    assert!(!Path::new("/key").exists());
}
