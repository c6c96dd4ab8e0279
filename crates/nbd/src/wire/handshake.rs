//! The handshake: the server's greeting, options of the client, and the server's replies to them.

use super::cursor::Cursor;
use super::{Malformed, OPTION_BYTES_MAX, Result, STRING_BYTES_MAX};
use crate::number::{to_u32, to_u64};

const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Most queries of one request for contexts.
const QUERIES_MAX: u32 = 256;

/// Flags of the server's greeting.
pub mod greeting {
    /// The fixed newstyle handshake.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The 124 zero bytes after an export can be left out.
    pub const NO_ZEROES: u16 = 2;
}

/// Flags of the client's answer to the greeting.
pub mod client_flags {
    /// As [`super::greeting::FIXED_NEWSTYLE`].
    pub const FIXED_NEWSTYLE: u32 = 1;
    /// As [`super::greeting::NO_ZEROES`].
    pub const NO_ZEROES: u32 = 2;
}

/// Numbers of options.
pub mod option {
    /// Chooses an export and ends the handshake, in the older way.
    pub const EXPORT_NAME: u32 = 1;
    /// Ends the handshake.
    pub const ABORT: u32 = 2;
    /// Lists the exports.
    pub const LIST: u32 = 3;
    /// Begins TLS.
    pub const STARTTLS: u32 = 5;
    /// Asks about an export.
    pub const INFO: u32 = 6;
    /// Chooses an export and ends the handshake.
    pub const GO: u32 = 7;
    /// Asks for structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Lists metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Chooses metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Numbers of replies to options.
pub mod rep {
    /// The last reply to an option.
    pub const ACK: u32 = 1;
    /// An export of the list.
    pub const SERVER: u32 = 2;
    /// A fact about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The bit that all errors have.
    pub const ERROR: u32 = 1 << 31;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = ERROR | 1;
    /// The server does not allow it.
    pub const ERR_POLICY: u32 = ERROR | 2;
    /// The option is malformed, or does not belong here.
    pub const ERR_INVALID: u32 = ERROR | 3;
    /// The server wants TLS first.
    pub const ERR_TLS_REQD: u32 = ERROR | 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = ERROR | 6;
    /// The server ends.
    pub const ERR_SHUTDOWN: u32 = ERROR | 7;
    /// The client has to heed the block sizes.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERROR | 8;
    /// The option is too long.
    pub const ERR_TOO_BIG: u32 = ERROR | 9;
}

/// The first message of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// Bits of [`greeting`].
    pub flags: u16,
}

impl Greeting {
    /// Bytes of it.
    pub const BYTES: usize = 18;

    /// Decodes it.
    ///
    /// # Errors
    /// For a server that speaks another protocol, or only the handshake of 2007.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("greeting of the server", bytes);
        let magic = cursor.u64()?;
        if magic != INIT_MAGIC {
            return Err(Malformed::new("greeting of the server", "NBDMAGIC", magic));
        }
        let kind = cursor.u64()?;
        if kind != OPTION_MAGIC {
            return Err(Malformed::new("greeting of the server", "the fixed newstyle handshake", kind));
        }
        let flags = cursor.u16()?;
        if flags & greeting::FIXED_NEWSTYLE == 0 {
            return Err(Malformed::new("greeting of the server", "the fixed newstyle handshake", u64::from(flags)));
        }
        cursor.end()?;
        Ok(Self { flags })
    }

    /// Encodes it.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        let magics = [INIT_MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes()].concat();
        [magics.as_slice(), &self.flags.to_be_bytes()].concat()
    }
}

/// Decodes the client's answer to the greeting.
///
/// # Errors
/// For a client without the fixed newstyle handshake, and unknown flags.
pub fn decode_client_flags(bytes: [u8; 4]) -> Result<u32> {
    let flags = u32::from_be_bytes(bytes);
    let known = client_flags::FIXED_NEWSTYLE | client_flags::NO_ZEROES;
    if flags & client_flags::FIXED_NEWSTYLE == 0 || flags & !known != 0 {
        return Err(Malformed::new("flags of the client", "the fixed newstyle handshake", u64::from(flags)));
    }
    Ok(flags)
}

/// The header of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    /// A number of [`option`], or another one.
    pub option: u32,
    /// Bytes that follow.
    pub len: u32,
}

impl OptionHeader {
    /// Bytes of it.
    pub const BYTES: usize = 16;

    /// Decodes it.
    ///
    /// # Errors
    /// For another magic number, and more than [`OPTION_BYTES_MAX`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("option", bytes);
        let magic = cursor.u64()?;
        if magic != OPTION_MAGIC {
            return Err(Malformed::new("option", "IHAVEOPT", magic));
        }
        let found = Self { option: cursor.u32()?, len: cursor.u32()? };
        if found.len > OPTION_BYTES_MAX {
            return Err(Malformed::new("length of an option", "at most 64 KiB", u64::from(found.len)));
        }
        cursor.end()?;
        Ok(found)
    }

    /// An option with its payload.
    #[must_use]
    pub fn encode(option: u32, payload: &[u8]) -> Vec<u8> {
        let numbers = [option.to_be_bytes(), to_u32(payload.len()).to_be_bytes()].concat();
        [OPTION_MAGIC.to_be_bytes().as_slice(), &numbers, payload].concat()
    }
}

/// The header of a reply to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionReply {
    /// The option.
    pub option: u32,
    /// A number of [`rep`], or another one.
    pub kind: u32,
    /// Bytes that follow.
    pub len: u32,
}

impl OptionReply {
    /// Bytes of it.
    pub const BYTES: usize = 20;

    /// Decodes it.
    ///
    /// # Errors
    /// For another magic number, and more than [`OPTION_BYTES_MAX`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("reply to an option", bytes);
        let magic = cursor.u64()?;
        if magic != REPLY_MAGIC {
            return Err(Malformed::new("reply to an option", "its magic number", magic));
        }
        let found = Self { option: cursor.u32()?, kind: cursor.u32()?, len: cursor.u32()? };
        if found.len > OPTION_BYTES_MAX {
            return Err(Malformed::new("length of a reply to an option", "at most 64 KiB", u64::from(found.len)));
        }
        cursor.end()?;
        Ok(found)
    }

    /// A reply with its payload.
    #[must_use]
    pub fn encode(option: u32, kind: u32, payload: &[u8]) -> Vec<u8> {
        let numbers = [option.to_be_bytes(), kind.to_be_bytes(), to_u32(payload.len()).to_be_bytes()].concat();
        [REPLY_MAGIC.to_be_bytes().as_slice(), &numbers, payload].concat()
    }
}

/// The payload of the options INFO and GO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportRequest {
    /// The export; empty for the default one.
    pub name: String,
    /// Facts that the client asks for.
    pub infos: Vec<u16>,
}

impl ExportRequest {
    /// Decodes it.
    ///
    /// # Errors
    /// For lengths that do not fit the payload, and names that are too long or not UTF-8.
    pub fn decode(payload: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("option INFO or GO", payload);
        let name = cursor.string()?.to_owned();
        let count = cursor.u16()?;
        let infos = (0..count).map(|_| cursor.u16()).collect::<Result<_>>()?;
        cursor.end()?;
        Ok(Self { name, infos })
    }

    /// Encodes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = string(&self.name);
        payload.extend(u16::try_from(self.infos.len()).unwrap_or(u16::MAX).to_be_bytes());
        payload.extend(self.infos.iter().flat_map(|info| info.to_be_bytes()));
        payload
    }
}

/// Block sizes of an export in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Every offset and length is a multiple of it; a power of two.
    pub minimum: u32,
    /// A good size.
    pub preferred: u32,
    /// Longest read or write; the largest number where there is no limit.
    pub maximum: u32,
}

/// A fact about an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Info {
    /// Its size, and bits of [`super::transmission`].
    Export {
        /// Bytes.
        size: u64,
        /// Abilities of the server.
        flags: u16,
    },
    /// Its canonical name.
    Name(String),
    /// A text for people.
    Description(String),
    /// Its block sizes.
    BlockSize(BlockSizes),
    /// Of another kind.
    Other(u16),
}

impl Info {
    /// The number of [`Info::Export`].
    pub const EXPORT: u16 = 0;
    /// The number of [`Info::Name`].
    pub const NAME: u16 = 1;
    /// The number of [`Info::Description`].
    pub const DESCRIPTION: u16 = 2;
    /// The number of [`Info::BlockSize`].
    pub const BLOCK_SIZE: u16 = 3;

    /// Decodes the payload of a reply INFO.
    ///
    /// # Errors
    /// For a wrong length, and block sizes that contradict each other.
    pub fn decode(payload: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("information about the export", payload);
        let found = match cursor.u16()? {
            Self::EXPORT => Self::Export { size: cursor.u64()?, flags: cursor.u16()? },
            Self::NAME => Self::Name(whole_text(&mut cursor)?),
            Self::DESCRIPTION => Self::Description(whole_text(&mut cursor)?),
            Self::BLOCK_SIZE => {
                let sizes = BlockSizes { minimum: cursor.u32()?, preferred: cursor.u32()?, maximum: cursor.u32()? };
                Self::BlockSize(sizes.verify()?)
            }
            other => {
                cursor.rest();
                Self::Other(other)
            }
        };
        cursor.end()?;
        Ok(found)
    }

    /// Encodes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Export { size, flags } => {
                [Self::EXPORT.to_be_bytes().as_slice(), &size.to_be_bytes(), &flags.to_be_bytes()].concat()
            }
            Self::Name(text) => [Self::NAME.to_be_bytes().as_slice(), text.as_bytes()].concat(),
            Self::Description(text) => [Self::DESCRIPTION.to_be_bytes().as_slice(), text.as_bytes()].concat(),
            Self::BlockSize(BlockSizes { minimum, preferred, maximum }) => {
                let sizes = [minimum.to_be_bytes(), preferred.to_be_bytes(), maximum.to_be_bytes()].concat();
                [Self::BLOCK_SIZE.to_be_bytes().as_slice(), &sizes].concat()
            }
            Self::Other(number) => number.to_be_bytes().to_vec(),
        }
    }
}

impl BlockSizes {
    /// Sizes that a client can use.
    fn verify(self) -> Result<Self> {
        let wrong = |expected, found| Malformed::new("block sizes of the export", expected, u64::from(found));
        if !self.minimum.is_power_of_two() || self.minimum > 64 << 10 {
            return Err(wrong("a minimum that is a power of two up to 64 KiB", self.minimum));
        }
        if self.maximum < self.minimum || (self.maximum != u32::MAX && !self.maximum.is_multiple_of(self.minimum)) {
            return Err(wrong("a maximum that is a multiple of the minimum", self.maximum));
        }
        Ok(self)
    }
}

/// The text that is left, as a name or description.
fn whole_text(cursor: &mut Cursor<'_>) -> Result<String> {
    let bytes = cursor.rest();
    let mut text = Cursor::new("text about the export", bytes);
    Ok(text.text(to_u32(bytes.len()))?.to_owned())
}

/// The payload of the options about metadata contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextRequest {
    /// The export.
    pub export: String,
    /// The contexts; a name that ends in a colon stands for all of its namespace.
    pub queries: Vec<String>,
}

impl ContextRequest {
    /// Decodes it.
    ///
    /// # Errors
    /// For lengths and counts that do not fit the payload.
    pub fn decode(payload: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("option about contexts", payload);
        let export = cursor.string()?.to_owned();
        let count = cursor.u32()?;
        if count > QUERIES_MAX {
            return Err(Malformed::new("number of queries for contexts", "at most 256", u64::from(count)));
        }
        let queries = (0..count).map(|_| cursor.string().map(str::to_owned)).collect::<Result<_>>()?;
        cursor.end()?;
        Ok(Self { export, queries })
    }

    /// Encodes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = string(&self.export);
        payload.extend(to_u32(self.queries.len()).to_be_bytes());
        payload.extend(self.queries.iter().flat_map(|query| string(query)));
        payload
    }
}

/// A metadata context that the server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// Its number in replies.
    pub id: u32,
    /// Its name.
    pub name: String,
}

impl Context {
    /// Decodes the payload of a reply META_CONTEXT.
    ///
    /// # Errors
    /// For a payload that is too short or long, or not UTF-8.
    pub fn decode(payload: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new("metadata context", payload);
        let id = cursor.u32()?;
        Ok(Self { id, name: whole_text(&mut cursor)? })
    }

    /// Encodes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [self.id.to_be_bytes().as_slice(), self.name.as_bytes()].concat()
    }
}

/// Decodes the name of an export in a list, the payload of a reply SERVER.
///
/// # Errors
/// As the other decoders.
pub fn decode_listed(payload: &[u8]) -> Result<String> {
    let mut cursor = Cursor::new("export of the list", payload);
    let name = cursor.string()?.to_owned();
    // A description follows.
    cursor.rest();
    Ok(name)
}

/// Encodes the name of an export in a list.
#[must_use]
pub fn encode_listed(name: &str) -> Vec<u8> {
    string(name)
}

/// Decodes the payload of the option EXPORT_NAME.
///
/// # Errors
/// For names that are too long or not UTF-8.
pub fn decode_export_name(payload: &[u8]) -> Result<String> {
    whole_text(&mut Cursor::new("name of the export", payload))
}

/// A string with its length before it, cut where it is longer than any may be.
fn string(text: &str) -> Vec<u8> {
    let len = to_u64(text.len()).min(u64::from(STRING_BYTES_MAX));
    let mut end = crate::number::to_usize(len);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or_default().as_bytes();
    [to_u32(text.len()).to_be_bytes().as_slice(), text].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let greeting = Greeting { flags: 3 };
        assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
        let option = OptionHeader::encode(option::GO, b"four");
        assert_eq!(OptionHeader::decode(&option[..16]), Ok(OptionHeader { option: option::GO, len: 4 }));
        let reply = OptionReply::encode(option::GO, rep::ACK, b"");
        let expected = OptionReply { option: option::GO, kind: rep::ACK, len: 0 };
        assert_eq!(OptionReply::decode(&reply), Ok(expected));
        let request = ExportRequest { name: "a/ß".to_owned(), infos: vec![Info::BLOCK_SIZE] };
        assert_eq!(ExportRequest::decode(&request.encode()), Ok(request));
        let contexts = ContextRequest { export: String::new(), queries: vec!["base:".to_owned(), String::new()] };
        assert_eq!(ContextRequest::decode(&contexts.encode()), Ok(contexts));
        let context = Context { id: 7, name: super::super::ALLOCATION.to_owned() };
        assert_eq!(Context::decode(&context.encode()), Ok(context));
        assert_eq!(decode_listed(&encode_listed("disk")), Ok("disk".to_owned()));
        let sizes = BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 20 };
        let infos = [
            Info::Export { size: 1 << 40, flags: 5 },
            Info::Name("n".to_owned()),
            Info::Description(String::new()),
            Info::BlockSize(sizes),
            Info::Other(99),
        ];
        for info in infos {
            assert_eq!(Info::decode(&info.encode()), Ok(info));
        }
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let mut option = OptionHeader::encode(option::GO, b"");
        option[12..16].copy_from_slice(&(OPTION_BYTES_MAX + 1).to_be_bytes());
        assert!(OptionHeader::decode(&option).is_err());
        let mut request = ExportRequest { name: "name".to_owned(), infos: vec![3] }.encode();
        for len in [5, 100, STRING_BYTES_MAX + 1, u32::MAX] {
            request[..4].copy_from_slice(&len.to_be_bytes());
            assert!(ExportRequest::decode(&request).is_err(), "{len}");
        }
        let many = [string("").as_slice(), &u32::MAX.to_be_bytes()].concat();
        assert!(ContextRequest::decode(&many).is_err());
        let sizes = |minimum, maximum| Info::BlockSize(BlockSizes { minimum, preferred: 4096, maximum }).encode();
        for wrong in [sizes(0, 4096), sizes(3, 4096), sizes(1 << 20, 1 << 20), sizes(4096, 512), sizes(512, 1000)] {
            assert!(Info::decode(&wrong).is_err());
        }
        assert!(Info::decode(&sizes(4096, u32::MAX)).is_ok());
        assert!(decode_client_flags([0, 0, 0, 0]).is_err());
        assert!(decode_client_flags([0, 0, 1, 1]).is_err());
    }
}
