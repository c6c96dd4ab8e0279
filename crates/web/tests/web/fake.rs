//! A small server of HTTP whose answers a test decides, and which counts what it was asked for and what it sent.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// First and last byte of its range.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }
}

/// The answer of a server.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Says nothing more after so many bytes of the body, and keeps the connection.
    pub(crate) stalls_after: Option<usize>,
}

impl Reply {
    pub(crate) fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new(), stalls_after: None }
    }

    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The part of `file` that was asked for, as a server with ranges answers.
    pub(crate) fn part(file: &[u8], request: &Request, etag: &str) -> Self {
        let size = file.len();
        let stale = request.header("if-match").is_some_and(|known| known != etag);
        if stale {
            return Self::new(412).with("ETag", etag);
        }
        let Some((first, last)) = request.range() else { return Self::new(200).with("ETag", etag).body(file) };
        let (first, last) = (usize::try_from(first).unwrap(), usize::try_from(last).unwrap().min(size - 1));
        let range = format!("bytes {first}-{last}/{size}");
        Self::new(206).with("ETag", etag).with("Content-Range", range).body(&file[first..=last])
    }
}

/// Answers the request with this number, from 0.
type Answer = dyn Fn(&Request, u64) -> Reply + Send + Sync;

pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    bytes: AtomicU64,
    seen: Mutex<Vec<Request>>,
    is_closed: AtomicBool,
}

impl Fake {
    pub(crate) fn start(answer: impl Fn(&Request, u64) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::<Counts>::default();
        let (shared, answer): (_, Arc<Answer>) = (Arc::clone(&counts), Arc::new(answer));
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                if shared.is_closed.load(Ordering::Relaxed) {
                    return;
                }
                let (counts, answer) = (Arc::clone(&shared), Arc::clone(&answer));
                let Ok(connection) = connection else { continue };
                std::thread::spawn(move || drop(serve(connection, &counts, &*answer)));
            }
        });
        Self { address, counts }
    }

    /// A file with ranges and an ETag.
    pub(crate) fn file(file: Vec<u8>) -> Self {
        Self::start(move |request, _| Reply::part(&file, request, "\"one\""))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Bytes of bodies.
    pub(crate) fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.counts.seen.lock().unwrap().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.counts.is_closed.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

/// Answers the requests of a connection.
fn serve(connection: TcpStream, counts: &Counts, answer: &Answer) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut input = BufReader::new(connection.try_clone()?);
    let mut output = connection;
    while let Some(request) = receive(&mut input)? {
        let number = counts.requests.fetch_add(1, Ordering::Relaxed);
        counts.seen.lock().unwrap().push(request.clone());
        let reply = answer(&request, number);
        let mut head = format!("HTTP/1.1 {} Said\r\n", reply.status);
        let has = |name: &str| reply.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let is_empty = reply.status == 204;
        if !is_empty && !has("content-length") && !has("transfer-encoding") {
            head.push_str(&format!("Content-Length: {}\r\n", reply.body.len()));
        }
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        output.write_all(head.as_bytes())?;
        if let Some(len) = reply.stalls_after {
            output.write_all(&reply.body[..len.min(reply.body.len())])?;
            // Until the client gives up.
            return input.read(&mut [0]).map(drop);
        }
        counts.bytes.fetch_add(u64::try_from(reply.body.len()).unwrap(), Ordering::Relaxed);
        if request.method != "HEAD" {
            output.write_all(&reply.body)?;
        }
        if has("connection") {
            return Ok(());
        }
    }
    Ok(())
}

fn receive(input: &mut (impl BufReadLine + Read)) -> std::io::Result<Option<Request>> {
    let mut lines = Vec::new();
    loop {
        let Some(line) = input.line()? else { return Ok(None) };
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let word = |at: usize| lines.first().and_then(|line| line.split(' ').nth(at)).unwrap_or_default().to_owned();
    let (method, path) = (word(0), word(1));
    let headers = lines.iter().skip(1).filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let mut request = Request { method, path, headers, body: Vec::new() };
    let len = request.header("content-length").and_then(|len| len.parse::<u64>().ok()).unwrap_or_default();
    let mut body = Vec::new();
    Read::by_ref(input).take(len).read_to_end(&mut body)?;
    request.body = body;
    Ok(Some(request))
}

pub(crate) trait BufReadLine {
    fn line(&mut self) -> std::io::Result<Option<String>>;
}

impl<R: Read> BufReadLine for BufReader<R> {
    fn line(&mut self) -> std::io::Result<Option<String>> {
        let mut text = String::new();
        let count = self.read_line(&mut text)?;
        Ok((count > 0).then(|| text.trim_end().to_owned()))
    }
}
