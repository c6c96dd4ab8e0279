//! The server for browsers, over sockets: files, ranges, pages, archives, and clients that misbehave.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use vfs::{Errno, Volume};
use web::server::Site;

use crate::support::pattern;

struct Served {
    client: UnixStream,
    thread: JoinHandle<()>,
}

fn volume() -> Volume {
    let options = vfs_conformance::MemoryOptions::default();
    let volume = Volume::new(Arc::new(vfs_conformance::MemoryFs::new(&options)));
    volume.create_dir_all("docs/deep & <b>").unwrap();
    volume.write("hello.txt", "hello world\n").unwrap();
    volume.write("docs/page.html", "<script>").unwrap();
    volume.write("docs/large", pattern(700_001)).unwrap();
    volume.write(std::ffi::OsStr::new("docs/deep & <b>/ü \"q\""), "x").unwrap();
    volume.symlink("../hello.txt", "docs/link").unwrap();
    volume.symlink("/docs", "way").unwrap();
    volume.symlink("../../../../etc/passwd", "out").unwrap();
    volume.symlink("loop", "loop").unwrap();
    volume
}

fn serve(volume: &Volume) -> Served {
    let (client, server) = UnixStream::pair().unwrap();
    let site = Site::new(volume.clone(), "site.img");
    let thread = std::thread::spawn(move || site.serve(Arc::new(OwnedFd::from(server))));
    client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    Served { client, thread }
}

/// The head and the body of the answer to one request on a connection of its own.
fn ask(volume: &Volume, request: &str) -> (String, Vec<u8>) {
    let Served { mut client, thread } = serve(volume);
    client.write_all(request.as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    // A refused request may leave unread bytes, whose sender is then cut off.
    let _ = client.read_to_end(&mut bytes);
    thread.join().unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no head: {bytes:?}"));
    (String::from_utf8(bytes[..end].to_vec()).unwrap(), bytes[end + 4..].to_vec())
}

fn get(volume: &Volume, path: &str, headers: &str) -> (String, Vec<u8>) {
    ask(volume, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"))
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The chunks of a body together; panics if it does not end.
fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let line = body.windows(2).position(|two| two == b"\r\n").unwrap();
        let len = usize::from_str_radix(std::str::from_utf8(&body[..line]).unwrap(), 16).unwrap();
        body = &body[line + 2..];
        if len == 0 {
            assert_eq!(body, b"\r\n");
            return whole;
        }
        whole.extend_from_slice(&body[..len]);
        assert_eq!(&body[len..len + 2], b"\r\n");
        body = &body[len + 2..];
    }
}

#[test]
fn files_are_sent_whole_and_in_parts() {
    let volume = volume();
    let (head, body) = get(&volume, "/hello.txt", "");
    assert_eq!((status(&head), body.as_slice()), ("200", &b"hello world\n"[..]));
    assert_eq!(header(&head, "Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(header(&head, "Accept-Ranges"), Some("bytes"));
    let (head, body) = get(&volume, "/hello.txt", "Range: bytes=6-10\r\n");
    assert_eq!((status(&head), body.as_slice()), ("206", &b"world"[..]));
    assert_eq!(header(&head, "Content-Range"), Some("bytes 6-10/12"));
    let (_, body) = get(&volume, "/docs/large", "Range: bytes=-300001\r\n");
    assert_eq!(body, &pattern(700_001)[400_000..]);
    let (head, body) = get(&volume, "/hello.txt", "Range: bytes=12-\r\n");
    assert_eq!((status(&head), header(&head, "Content-Range"), body.len()), ("416", Some("bytes */12"), 0));
    let (head, body) = get(&volume, "/hello.txt", "Range: bytes=0-0,-2\r\n");
    let text = String::from_utf8(body.clone()).unwrap();
    assert_eq!(header(&head, "Content-Length"), Some(body.len().to_string().as_str()));
    assert!(text.contains("Content-Range: bytes 0-0/12\r\n\r\nh\r\n--"), "{text}");
    assert!(text.contains("Content-Range: bytes 10-11/12\r\n\r\nd\n\r\n--"), "{text}");
    let (head, body) = ask(&volume, "HEAD /docs/large HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!((status(&head), header(&head, "Content-Length"), body.len()), ("200", Some("700001"), 0));
    assert!(header(&get(&volume, "/docs/page.html", "").0, "Content-Security-Policy").unwrap().contains("sandbox"));
}

#[test]
fn versions_are_told_apart() {
    let volume = volume();
    let (head, _) = get(&volume, "/hello.txt", "");
    let etag = header(&head, "ETag").unwrap().to_owned();
    let modified = header(&head, "Last-Modified").unwrap();
    for known in [
        format!("If-None-Match: \"x\", W/{etag}"),
        format!("If-Modified-Since: {modified}"),
        "If-None-Match: *".to_owned(),
    ] {
        let (head, body) = get(&volume, "/hello.txt", &format!("{known}\r\n"));
        assert_eq!((status(&head), body.len()), ("304", 0), "{known}");
    }
    let range = |known: &str| get(&volume, "/hello.txt", &format!("Range: bytes=0-0\r\nIf-Range: {known}\r\n")).0;
    assert_eq!((status(&range(&etag)), status(&range("\"x\""))), ("206", "200"));
    volume.write("hello.txt", "other words").unwrap();
    let (head, _) = get(&volume, "/hello.txt", &format!("If-None-Match: {etag}\r\n"));
    assert_eq!(status(&head), "200");
}

#[test]
fn pages_list_directories() {
    let volume = volume();
    let (head, body) = get(&volume, "/", "");
    let page = String::from_utf8(body).unwrap();
    assert_eq!((status(&head), header(&head, "Content-Type")), ("200", Some("text/html; charset=utf-8")));
    for words in
        ["href=\"./docs/\">docs/</a>", "href=\"./hello.txt\">hello.txt</a>", "12 B", "→ /docs", "href=\"./way/\""]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(page.find("docs/").unwrap() < page.find("hello.txt").unwrap());
    let (_, body) = get(&volume, "/docs/deep%20%26%20%3Cb%3E/", "");
    let page = String::from_utf8(body).unwrap();
    assert!(page.contains("deep &amp; &lt;b&gt;") && !page.contains("<b>"), "{page}");
    assert!(page.contains("href=\"./%C3%BC%20%22q%22\""), "{page}");
    let (head, _) = get(&volume, "/docs?size", "");
    assert_eq!((status(&head), header(&head, "Location")), ("301", Some("/docs/?size")));
}

#[test]
fn links_stay_inside() {
    let volume = volume();
    assert_eq!(get(&volume, "/docs/link", "").1, b"hello world\n");
    assert_eq!(status(&get(&volume, "/way/", "").0), "200");
    for path in ["/out", "/loop", "/none", "/hello.txt/", "/hello.txt/x", "/docs/none"] {
        assert_eq!(status(&get(&volume, path, "").0), "404", "{path}");
    }
    for path in ["/../etc/passwd", "/docs/%2e%2e/hello.txt", "/a%00b", "/%zz", "/docs%2Fpage.html"] {
        assert_eq!(status(&get(&volume, path, "").0), "400", "{path}");
    }
}

#[test]
fn directories_are_archives() {
    let volume = volume();
    for path in ["/docs/?tar", "/docs.tar"] {
        let (head, body) = get(&volume, path, "");
        assert_eq!((status(&head), header(&head, "Content-Type")), ("200", Some("application/x-tar")));
        assert_eq!(header(&head, "Content-Disposition"), Some("attachment; filename*=UTF-8''docs.tar"));
        let tar = unchunk(&body);
        assert_eq!(&tar[257..262], b"ustar");
        let (_, old) = ask(&volume, &format!("GET {path} HTTP/1.0\r\n\r\n"));
        assert_eq!(old, tar);
    }
    let (head, body) = get(&volume, "/docs.zip", "");
    assert_eq!(header(&head, "Transfer-Encoding"), Some("chunked"));
    let bytes = unchunk(&body);
    assert!(bytes.starts_with(b"PK\x03\x04") && bytes[bytes.len() - 22..].starts_with(b"PK\x05\x06"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zip");
    std::fs::write(&path, &bytes).unwrap();
    let script = "import sys,zipfile; z=zipfile.ZipFile(sys.argv[1]); \
                  print(z.testzip(), len(z.read('large')), sorted(z.namelist()))";
    let Ok(output) = std::process::Command::new("python3").args(["-c", script]).arg(&path).output() else {
        println!("SKIPPED: python3 is missing");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("None 700001 ['deep & <b>/', "), "{text} {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn one_connection_serves_many_requests() {
    let volume = volume();
    let Served { mut client, thread } = serve(&volume);
    let request = "GET /hello.txt HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(request.repeat(50).as_bytes()).unwrap();
    client.write_all(b"GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    thread.join().unwrap();
    assert_eq!(text.matches("hello world").count(), 50);
    assert!(text.contains("404 Not Found"));
}

#[test]
fn wrong_requests_end_their_connection_alone() {
    let volume = volume();
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(9000));
    for (request, wanted) in [
        ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", "405"),
        ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", "400"),
        ("GET / HTTP/3.0\r\n\r\n", "505"),
        ("\x16\x03\x01 hello\r\n\r\n", "400"),
        (&long, "431"),
    ] {
        let (head, _) = ask(&volume, request);
        assert_eq!((status(&head), header(&head, "Connection")), (wanted, Some("close")), "{request:.40}");
    }
    let Served { client, thread } = serve(&volume);
    drop(client);
    thread.join().unwrap();
}

/// A file that may not be read is refused, and is no part of archives.
#[test]
fn permissions_are_those_of_the_serving_user() {
    let open = volume();
    open.write("secret", "s").unwrap();
    open.set_permissions("secret", 0o600).unwrap();
    open.create_dir_all("closed").unwrap();
    open.set_permissions("closed", 0o700).unwrap();
    let user = access::User { uid: 12_345, gid: 12_345, groups: Vec::new(), serves: true };
    let root = vfs::file_system::NodeId::ROOT;
    let fs = access::Permitted::new(Arc::clone(open.file_system()), user, root, true);
    let volume = Volume::new(Arc::new(fs));
    assert_eq!(volume.read("secret").unwrap_err().errno(), Errno::EACCES);
    assert_eq!(status(&get(&volume, "/secret", "").0), "403");
    assert_eq!(status(&get(&volume, "/closed/", "").0), "403");
    assert_eq!(status(&get(&volume, "/closed.tar", "").0), "403");
    let zip = unchunk(&get(&volume, "/?zip", "").1);
    assert!(!zip.windows(6).any(|name| name == b"secret"));
    let tar = unchunk(&get(&volume, "/?tar", "").1);
    assert!(tar.windows(9).any(|name| name == b"hello.txt"));
}
