//! The server's side of the handshake: it answers options until the client has chosen an export, or leaves.

use std::time::Instant;

use super::{Ended, Export, HANDSHAKE_MAX, STALL_MAX, Server};
use crate::number::to_usize;
use crate::stream::Stream;
use crate::wire::{
    ALLOCATION, BlockSizes, Context, ContextRequest, ExportRequest, Greeting, Info, Malformed, OptionHeader,
    OptionReply, REQUEST_BYTES_MAX, client_flags, decode_client_flags, decode_export_name, encode_listed, greeting,
    option, rep, transmission,
};

/// Most options of one handshake.
const OPTIONS_MAX: usize = 64;
/// The number of the context in replies.
pub(super) const CONTEXT_ID: u32 = 1;
/// A good size of requests.
const PREFERRED_BYTES: u32 = 4096;

/// The choices of a client.
pub(super) struct Chosen {
    pub(super) export: Export,
    pub(super) is_structured: bool,
    /// The client wants to know where holes are.
    pub(super) has_context: bool,
}

/// The state of the handshake.
struct Session<'a> {
    server: &'a Server,
    stream: &'a Stream,
    is_structured: bool,
    /// The export for which the context was chosen.
    context: Option<String>,
    sends_zeroes: bool,
}

/// The step after an option.
enum Next {
    Option,
    Transmission(Box<Export>),
    End,
}

/// Runs the handshake; `None` where the client left.
///
/// # Errors
/// [`Ended`].
pub(super) fn run(server: &Server, stream: &Stream) -> Result<Option<Chosen>, Ended> {
    let deadline = Instant::now() + HANDSHAKE_MAX;
    let flags = greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES;
    stream.send(&[&Greeting { flags }.encode()], STALL_MAX)?;
    let mut answer = [0; 4];
    stream.fill(&mut answer, deadline)?;
    let sends_zeroes = decode_client_flags(answer)? & client_flags::NO_ZEROES == 0;
    let mut session = Session { server, stream, is_structured: false, context: None, sends_zeroes };
    for _ in 0..OPTIONS_MAX {
        let mut header = [0; OptionHeader::BYTES];
        stream.fill(&mut header, deadline)?;
        let header = OptionHeader::decode(&header)?;
        let mut payload = vec![0; to_usize(u64::from(header.len))];
        stream.fill(&mut payload, deadline)?;
        match session.answer(header.option, &payload)? {
            Next::Option => {}
            Next::End => return Ok(None),
            Next::Transmission(export) => {
                let (is_structured, context) = (session.is_structured, session.context);
                let has_context =
                    context.is_some_and(|name| server.find(&name).is_some_and(|of| of.name == export.name));
                return Ok(Some(Chosen { export: *export, is_structured, has_context }));
            }
        }
    }
    Err(Malformed::new("options of the handshake", "at most 64", 65).into())
}

impl Session<'_> {
    fn reply(&self, option: u32, kind: u32, payload: &[u8]) -> Result<(), Ended> {
        Ok(self.stream.send(&[&OptionReply::encode(option, kind, payload)], STALL_MAX)?)
    }

    fn refuse(&self, option: u32, kind: u32, text: &str) -> Result<Next, Ended> {
        self.reply(option, kind, text.as_bytes())?;
        Ok(Next::Option)
    }

    fn answer(&mut self, number: u32, payload: &[u8]) -> Result<Next, Ended> {
        match number {
            option::EXPORT_NAME => self.export_name(payload),
            option::ABORT => {
                // The client may have closed the connection already.
                let _ = self.reply(number, rep::ACK, b"");
                Ok(Next::End)
            }
            option::LIST if payload.is_empty() => {
                for export in self.server.exports() {
                    self.reply(number, rep::SERVER, &encode_listed(&export.name))?;
                }
                self.reply(number, rep::ACK, b"")?;
                Ok(Next::Option)
            }
            option::STRUCTURED_REPLY if payload.is_empty() => {
                self.is_structured = true;
                self.reply(number, rep::ACK, b"")?;
                Ok(Next::Option)
            }
            option::LIST | option::STRUCTURED_REPLY => self.refuse(number, rep::ERR_INVALID, "it takes no data"),
            option::INFO | option::GO => match ExportRequest::decode(payload) {
                Ok(request) => self.export(number, &request),
                Err(error) => self.refuse(number, rep::ERR_INVALID, &error.to_string()),
            },
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => match ContextRequest::decode(payload) {
                Ok(request) => self.contexts(number, &request),
                Err(error) => self.refuse(number, rep::ERR_INVALID, &error.to_string()),
            },
            option::STARTTLS => self.refuse(number, rep::ERR_POLICY, "this server has no TLS; use a tunnel"),
            _ => self.refuse(number, rep::ERR_UNSUP, "unknown option"),
        }
    }

    /// The older way to choose an export: the only refusal is the end of the connection.
    fn export_name(&self, payload: &[u8]) -> Result<Next, Ended> {
        let name = decode_export_name(payload)?;
        let Some(export) = self.server.find(&name) else {
            return Err(Malformed::new("name of the export", "a known one", 0).into());
        };
        let mut reply = export.device.size_bytes().to_be_bytes().to_vec();
        reply.extend(flags_of(export, self.is_structured).to_be_bytes());
        reply.extend(if self.sends_zeroes { vec![0; 124] } else { Vec::new() });
        self.stream.send(&[&reply], STALL_MAX)?;
        Ok(Next::Transmission(Box::new(export.clone())))
    }

    fn export(&self, number: u32, request: &ExportRequest) -> Result<Next, Ended> {
        let Some(export) = self.server.find(&request.name) else {
            return self.refuse(number, rep::ERR_UNKNOWN, "no export has this name");
        };
        let is_asked = |info| request.infos.contains(&info);
        let flags = flags_of(export, self.is_structured);
        let mut infos = vec![Info::Export { size: export.device.size_bytes(), flags }];
        if is_asked(Info::NAME) {
            infos.push(Info::Name(export.name.clone()));
        }
        if is_asked(Info::DESCRIPTION) && !export.description.is_empty() {
            infos.push(Info::Description(export.description.clone()));
        }
        let sizes = BlockSizes { minimum: 1, preferred: PREFERRED_BYTES, maximum: REQUEST_BYTES_MAX };
        infos.push(Info::BlockSize(sizes));
        for info in infos {
            self.reply(number, rep::INFO, &info.encode())?;
        }
        self.reply(number, rep::ACK, b"")?;
        Ok(if number == option::GO { Next::Transmission(Box::new(export.clone())) } else { Next::Option })
    }

    fn contexts(&mut self, number: u32, request: &ContextRequest) -> Result<Next, Ended> {
        if !self.is_structured {
            return self.refuse(number, rep::ERR_INVALID, "structured replies have to be chosen first");
        }
        let Some(export) = self.server.find(&request.export) else {
            return self.refuse(number, rep::ERR_UNKNOWN, "no export has this name");
        };
        let sets = number == option::SET_META_CONTEXT;
        let is_ours = |query: &String| query == ALLOCATION || (!sets && query == "base:");
        let is_wanted = request.queries.iter().any(is_ours) || (!sets && request.queries.is_empty());
        if sets {
            self.context = is_wanted.then(|| export.name.clone());
        }
        if is_wanted {
            let id = if sets { CONTEXT_ID } else { 0 };
            self.reply(number, rep::META_CONTEXT, &Context { id, name: ALLOCATION.to_owned() }.encode())?;
        }
        self.reply(number, rep::ACK, b"")?;
        Ok(Next::Option)
    }
}

/// The transmission flags of an export.
pub(super) fn flags_of(export: &Export, is_structured: bool) -> u16 {
    let mut flags = transmission::HAS_FLAGS | transmission::SEND_FLUSH | transmission::CAN_MULTI_CONN;
    flags |= transmission::SEND_CACHE;
    if is_structured {
        flags |= transmission::SEND_DF;
    }
    flags
        | match export.is_read_only() {
            true => transmission::READ_ONLY,
            false => {
                transmission::SEND_FUA
                    | transmission::SEND_TRIM
                    | transmission::SEND_WRITE_ZEROES
                    | transmission::SEND_FAST_ZERO
            }
        }
}
