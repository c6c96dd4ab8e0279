//! Writes the heads of answers, and the pages of refusals.

use std::io::{self, Write};

use vfs::{Errno, Error};

use super::head::Refusal;

/// The head of an answer.
#[derive(Debug)]
pub(super) struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
}

impl Reply {
    pub(super) fn new(status: u16) -> Self {
        Self { status, headers: Vec::new() }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    /// Writes the head; `keeps` tells the client whether it may send another request.
    pub(super) fn send(&self, out: &mut impl Write, keeps: bool) -> io::Result<()> {
        let connection = if keeps { "keep-alive" } else { "close" };
        let mut text = format!("HTTP/1.1 {} {}\r\nConnection: {connection}\r\n", self.status, phrase(self.status));
        text.push_str("X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n");
        for (name, value) in &self.headers {
            // Values are numbers, dates and encoded names: none has a line break.
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        out.write_all(text.as_bytes())
    }
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        301 => "Moved Permanently",
        304 => "Not Modified",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        416 => "Range Not Satisfiable",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}

/// Answers a request with the reason why it is refused.
pub(super) fn refuse(out: &mut impl Write, refusal: Refusal, is_head: bool, keeps: bool) -> io::Result<()> {
    let (status, text) = match refusal {
        Refusal::Malformed => (400, "The request is malformed."),
        Refusal::Body => (400, "Requests with a body are not answered."),
        Refusal::Forbidden => (403, "The user who serves these files may not read this one."),
        Refusal::NotFound => (404, "There is no such file."),
        Refusal::NoContents => (404, "This is a device, a pipe or a socket: it has no contents."),
        Refusal::Method => (405, "These files can only be read: GET or HEAD."),
        Refusal::SlowHead => (408, "The request did not come in time."),
        Refusal::WrongHost => {
            (421, "This server does not answer for that host; `spinney serve http --host NAME` adds one.")
        }
        Refusal::LongHead => (431, "The head of the request is longer than 8 KiB, or has more than 64 lines."),
        Refusal::Version => (505, "Only HTTP 1.0 and 1.1 are spoken here."),
        Refusal::Busy => (503, "Too many archives are on their way. Try again later."),
        Refusal::Failed => (500, "The file cannot be read: the image may be damaged."),
    };
    let body = format!("{text}\n");
    let reply = Reply::new(status).with("Content-Type", "text/plain; charset=utf-8").with("Content-Length", body.len());
    let reply = if status == 405 { reply.with("Allow", "GET, HEAD") } else { reply };
    reply.send(out, keeps)?;
    if is_head { Ok(()) } else { out.write_all(body.as_bytes()) }
}

/// The refusal that an error of the volume is for a client.
pub(super) fn refusal_of(error: &Error) -> Refusal {
    match error.errno() {
        Errno::EACCES | Errno::EPERM => Refusal::Forbidden,
        Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG => Refusal::NotFound,
        _ => {
            tracing::warn!("{error}");
            Refusal::Failed
        }
    }
}
