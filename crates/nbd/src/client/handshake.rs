//! The client's side of the handshake. Called by `connections`, for each connection.

use std::io;
use std::time::Instant;

use crate::address::Address;
use crate::number::to_usize;
use crate::stream::Stream;
use crate::wire::{
    ALLOCATION, BlockSizes, Context, ContextRequest, ExportRequest, Greeting, Info, Malformed, OptionHeader,
    OptionReply, REQUEST_BYTES_MAX, client_flags, greeting, option, rep,
};

/// Most replies to one option.
const REPLIES_MAX: usize = 256;

/// The result of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) size: u64,
    /// Bits of [`crate::wire::transmission`].
    pub(super) flags: u16,
    pub(super) sizes: BlockSizes,
    pub(super) is_structured: bool,
    /// The number of the context `base:allocation`, if the server has it.
    pub(super) context: Option<u32>,
}

/// Where replies are read from and options written to.
struct Session<'a> {
    stream: &'a Stream,
    deadline: Instant,
}

/// One reply.
struct Reply {
    kind: u32,
    payload: Vec<u8>,
}

/// Begins TLS if the address wants it, and chooses the export. The time limit of the address is for all of it.
///
/// # Errors
/// `NotFound` for an unknown export; `InvalidData` for a server that breaks the protocol; those of the socket.
pub(super) fn run(stream: Stream, address: &Address) -> io::Result<(Stream, Agreed)> {
    let (export, time_max) = (address.export.as_str(), address.timeout);
    let deadline = Instant::now() + time_max;
    let mut bytes = [0; Greeting::BYTES];
    stream.fill(&mut bytes, deadline)?;
    let found = Greeting::decode(&bytes).map_err(malformed)?;
    let mut flags = client_flags::FIXED_NEWSTYLE;
    if found.flags & greeting::NO_ZEROES != 0 {
        flags |= client_flags::NO_ZEROES;
    }
    stream.send(&[&flags.to_be_bytes()], time_max)?;
    let stream = match &address.tls {
        None => stream,
        Some(settings) => {
            Session { stream: &stream, deadline }.begin_tls()?;
            stream.encrypted(settings, deadline)?
        }
    };
    let session = Session { stream: &stream, deadline };
    let is_structured = session.ask(option::STRUCTURED_REPLY, &[], |_| Ok(()))?.kind == rep::ACK;
    let context = if is_structured { session.context(export)? } else { None };
    let mut agreed = session.go(export)?;
    (agreed.is_structured, agreed.context) = (is_structured, context);
    Ok((stream, agreed))
}

pub(super) fn malformed(error: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Session<'_> {
    /// Sends an option, passes every reply but the last to `each`, and returns the last.
    fn ask(&self, number: u32, payload: &[u8], mut each: impl FnMut(Reply) -> io::Result<()>) -> io::Result<Reply> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.stream.send(&[&OptionHeader::encode(number, payload)], left)?;
        for _ in 0..REPLIES_MAX {
            let mut header = [0; OptionReply::BYTES];
            self.stream.fill(&mut header, self.deadline)?;
            let header = OptionReply::decode(&header).map_err(malformed)?;
            if header.option != number {
                let text = Malformed::new("reply to an option", "the option that was sent", u64::from(header.option));
                return Err(malformed(text));
            }
            let mut payload = vec![0; to_usize(u64::from(header.len))];
            self.stream.fill(&mut payload, self.deadline)?;
            let reply = Reply { kind: header.kind, payload };
            if header.kind == rep::ACK || header.kind & rep::ERROR != 0 {
                return Ok(reply);
            }
            each(reply)?;
        }
        Err(malformed(Malformed::new("replies to an option", "at most 256", 257)))
    }

    /// Has the server begin TLS with the next byte.
    fn begin_tls(&self) -> io::Result<()> {
        let reply = self.ask(option::STARTTLS, &[], |_| Ok(()))?;
        if reply.kind != rep::ACK {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the server has no TLS; nothing was sent without it",
            ));
        }
        Ok(())
    }

    /// Asks for the context that says where holes are; `None` where the server has none.
    fn context(&self, export: &str) -> io::Result<Option<u32>> {
        let request = ContextRequest { export: export.to_owned(), queries: vec![ALLOCATION.to_owned()] };
        let mut found = None;
        self.ask(option::SET_META_CONTEXT, &request.encode(), |reply| {
            if reply.kind == rep::META_CONTEXT {
                let context = Context::decode(&reply.payload).map_err(malformed)?;
                found = found.or(Some(context).filter(|context| context.name == ALLOCATION).map(|context| context.id));
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn go(&self, export: &str) -> io::Result<Agreed> {
        let request = ExportRequest { name: export.to_owned(), infos: vec![Info::BLOCK_SIZE] };
        let mut sizes = BlockSizes { minimum: 1, preferred: 4096, maximum: REQUEST_BYTES_MAX };
        let mut found = None;
        let last = self.ask(option::GO, &request.encode(), |reply| {
            if reply.kind != rep::INFO {
                return Ok(());
            }
            match Info::decode(&reply.payload).map_err(malformed)? {
                Info::Export { size, flags } => found = Some((size, flags)),
                Info::BlockSize(told) => sizes = told,
                _ => {}
            }
            Ok(())
        })?;
        if last.kind != rep::ACK {
            return Err(refused(export, &last));
        }
        let missing = || malformed(Malformed::new("reply to the option GO", "the size of the export", 0));
        let (size, flags) = found.ok_or_else(missing)?;
        if size > i64::MAX.unsigned_abs() {
            return Err(malformed(Malformed::new("size of the export", "less than 8 EiB", size)));
        }
        sizes.maximum = sizes.maximum.min(REQUEST_BYTES_MAX);
        Ok(Agreed { size, flags, sizes, is_structured: false, context: None })
    }
}

/// The error of a server that does not give the export.
fn refused(export: &str, reply: &Reply) -> io::Error {
    let text = String::from_utf8_lossy(&reply.payload);
    let text = if text.is_empty() { String::new() } else { format!(" ({})", text.escape_debug()) };
    match reply.kind {
        rep::ERR_UNKNOWN => {
            io::Error::new(io::ErrorKind::NotFound, format!("the server has no export `{export}`{text}"))
        }
        rep::ERR_TLS_REQD => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("the server wants TLS: use nbds:// instead of nbd://{text}"),
        ),
        rep::ERR_POLICY => {
            io::Error::new(io::ErrorKind::PermissionDenied, format!("the server refuses the export `{export}`{text}"))
        }
        rep::ERR_UNSUP => {
            io::Error::new(io::ErrorKind::Unsupported, "the server is too old: it does not know the option GO")
        }
        other => io::Error::other(format!("the server refuses the export `{export}`: error {other:#x}{text}")),
    }
}
