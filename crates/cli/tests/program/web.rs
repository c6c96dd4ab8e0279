//! Images on web servers: every command that reads takes the address, and moves few bytes.

use std::fs;
use std::process::Command;

use crate::fake::{Fake, Reply};
use crate::harness::{Bench, pattern};
use crate::mounted::can_mount;

/// A server with the image of the bench.
fn serve(bench: &Bench) -> Fake {
    Fake::file(fs::read(bench.path("a.img")).unwrap())
}

/// The output without the name of the image.
fn plain(text: &str, image: &str) -> String {
    text.replace(image, "IMAGE")
}

#[test]
fn commands_that_read_take_an_address() {
    let bench = Bench::new();
    bench.filled_image();
    let server = serve(&bench);
    let url = server.url("/a.img");
    for line in [
        "ls IMAGE /",
        "ls -l IMAGE /sub",
        "tree IMAGE",
        "cat IMAGE /a.txt",
        "stat IMAGE /middle",
        "check --data IMAGE",
        "du IMAGE /",
    ] {
        let (here, there) = (bench.ok(&line.replace("IMAGE", "a.img")), bench.ok(&line.replace("IMAGE", &url)));
        assert_eq!(plain(&here, "a.img"), plain(&there, &url), "{line}");
    }
    assert_eq!(bench.ok(&format!("cat {url}:/a.txt")), "hello\n");
    assert!(bench.ok(&format!("info {url}")).contains("Node size"));
    bench.ok(&format!("get -q {url} / out"));
    assert_eq!(fs::read(bench.path("out/sub/large")).unwrap(), pattern(3_500_001));
    bench.ok(&format!("get -q {url}?cache=blocks /sub/large again"));
    let before = server.bytes();
    bench.ok(&format!("get -q {url}?cache=blocks /sub/large more"));
    assert!(server.bytes() - before <= 70_000, "{} bytes", server.bytes() - before);
    assert_eq!(fs::read(bench.path("more")).unwrap(), pattern(3_500_001));
}

#[test]
fn changes_are_refused_by_name() {
    let bench = Bench::new();
    bench.filled_image();
    let server = serve(&bench);
    let url = server.url("/a.img");
    fs::write(bench.path("new"), "x").unwrap();
    for line in ["put new IMAGE:/", "rm IMAGE:/a.txt", "mkdir IMAGE:/d", "fork IMAGE / /fork", "label IMAGE x"] {
        let run = bench.run(&line.replace("IMAGE", &url));
        assert_ne!(run.status, 0, "{line}");
        assert!(run.err.contains("read-only"), "{line}: {}", run.err);
    }
}

/// A missing file, a file that is no image, a server without ranges.
#[test]
fn failures_name_the_address_and_the_reason() {
    let bench = Bench::new();
    let none = Fake::start(|_, _| Reply::new(404));
    let run = bench.run(&format!("ls {} /", none.url("/a.img")));
    assert!(run.err.contains(&none.url("/a.img")) && run.err.contains("404 (Not Found)"), "{}", run.err);
    assert_eq!(run.err.matches("http://").count(), 1, "{}", run.err);
    let zeros = Fake::file(vec![0; 1 << 20]);
    let run = bench.run(&format!("ls {} /", zeros.url("/a.img")));
    assert!(run.err.contains("it is empty"), "{}", run.err);
    let whole = Fake::start(|_, _| Reply::new(200).body(vec![0; 100_000]));
    assert!(bench.run(&format!("ls {} /", whole.url("/a.img"))).err.contains("no byte ranges"));
}

/// The part of a large image that a file needs is fetched, not the image.
#[test]
fn a_file_costs_at_most_twice_its_bytes_and_those_of_its_path() {
    let bench = Bench::in_memory();
    fs::create_dir_all(bench.path("src/dir")).unwrap();
    for index in 0..3000 {
        fs::write(bench.path(&format!("src/dir/small-{index}")), pattern(3000)).unwrap();
    }
    fs::write(bench.path("src/dir/wanted"), pattern(4 << 20)).unwrap();
    fs::write(bench.path("src/other"), pattern(40 << 20)).unwrap();
    bench.ok("mkfs -q --rootdir src a.img");
    let server = serve(&bench);
    bench.ok(&format!("get -q {} /dir/wanted wanted", server.url("/a.img")));
    assert_eq!(fs::read(bench.path("wanted")).unwrap(), pattern(4 << 20));
    // Superblock, chunk tree, root tree, and the paths through the trees of files and checksums.
    let path = (68 << 10) + 12 * (16 << 10);
    assert!(server.bytes() <= 2 * ((4 << 20) + path), "{} bytes", server.bytes());
    let before = server.requests();
    bench.ok(&format!("ls -lR {} /", server.url("/a.img")));
    assert!(server.requests() - before <= 64, "{} requests", server.requests() - before);
}

#[test]
fn it_is_mounted_and_the_server_may_close_connections() {
    let bench = Bench::new();
    bench.filled_image();
    let image = fs::read(bench.path("a.img")).unwrap();
    // Each connection ends after its answer: the sandboxed server has to connect again.
    let server = Fake::start(move |request, _| Reply::part(&image, request, "\"one\"").with("Connection", "close"));
    if !can_mount() {
        return;
    }
    fs::create_dir(bench.path("mnt")).unwrap();
    bench.ok(&format!("mount {} mnt", server.url("/a.img")));
    let large = fs::read(bench.path("mnt/sub/large"));
    let names = fs::read_dir(bench.path("mnt/sub/deep")).map(Iterator::count);
    let written = fs::write(bench.path("mnt/new"), "x");
    bench.ok("umount mnt");
    assert!(large.unwrap() == pattern(3_500_001));
    assert_eq!(names.unwrap(), 601);
    assert_eq!(written.unwrap_err().raw_os_error(), Some(30));
}

/// TLS with a certificate that `SSL_CERT_FILE` names, by a server of Python.
#[test]
fn it_comes_over_tls() {
    let bench = Bench::new();
    bench.filled_image();
    let words = "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost \
                 -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let made = Command::new("openssl").args(words.split_whitespace()).current_dir(&bench.dir).output();
    if !made.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: openssl is missing");
        return;
    }
    let mut child = match Command::new("python3")
        .args(["-c", TLS_SERVER])
        .current_dir(&bench.dir)
        .stdout(std::process::Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(_) => return println!("SKIPPED: python3 is missing"),
    };
    let mut port = String::new();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut port).unwrap();
    let url = format!("https://127.0.0.1:{}/a.img", port.trim());
    let good = bench.run_with(&format!("cat {url}:/a.txt"), &[("SSL_CERT_FILE", "cert.pem")]);
    let stranger = bench.run(&format!("cat {url}:/a.txt"));
    let down =
        bench.run_with(&format!("cat https://127.0.0.1:{}/down:/a.txt", port.trim()), &[("SSL_CERT_FILE", "cert.pem")]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(good.out, b"hello\n", "{}", good.err);
    assert!(stranger.status != 0 && stranger.err.contains("certificate"), "{}", stranger.err);
    assert!(down.err.contains("from https to http is not followed"), "{}", down.err);
}

/// Answers ranges of the image over TLS; `/down` leads to a plain address.
const TLS_SERVER: &str = r#"
import http.server, ssl, re
data = open("a.img", "rb").read()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/down":
            self.send_response(302); self.send_header("Location", "http://localhost/a.img")
            self.send_header("Content-Length", "0"); self.end_headers(); return
        a, b = map(int, re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        part = data[a:b + 1]
        self.send_response(206)
        self.send_header("Content-Range", "bytes %d-%d/%d" % (a, a + len(part) - 1, len(data)))
        self.send_header("ETag", '"one"'); self.send_header("Content-Length", str(len(part))); self.end_headers()
        self.wfile.write(part)
    def log_message(self, *words): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
"#;
