//! [`Decoder`]: reads a stream command by command. `btrfs-receive` reads streams with it, the command `receive --dump`,
//! and backups that check their files.

use crate::command::{self, Command};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::resume_point::{POINT_SIZE, Prefix, REST_MAGIC, ResumePoint};
use crate::version::{COMMAND_HEADER_SIZE, MAGIC, Version};
use codec::checksum::crc32c_raw;
use std::io::Read;

/// Reads one or more streams from `input`. Use a buffered reader, as every command takes two reads.
///
/// Memory: one command of at most [`Version::command_size_max`], grown as its bytes arrive.
#[derive(Debug)]
pub struct Decoder<R> {
    input: R,
    version: Version,
    /// Bytes read so far.
    at: u64,
    /// The commands of the stream before `at`.
    taken: Prefix,
    /// For a resumed stream, the point where it continues.
    rest_of: Option<ResumePoint>,
    /// The attributes of the last command.
    command: Vec<u8>,
}

impl<R: Read> Decoder<R> {
    /// Reads the header of a stream. `None` where the input is empty.
    ///
    /// # Errors
    /// [`Error::NotAStream`], [`Error::Version`], [`Error::Truncated`], [`Error::Read`].
    pub fn open(input: R) -> Result<Option<Self>> {
        let taken = Prefix::none(Version::V1);
        let mut decoder = Self { input, version: Version::V1, at: 0, taken, rest_of: None, command: Vec::new() };
        Ok(decoder.next_stream()?.then_some(decoder))
    }

    /// Reads the header of a stream that follows [`Command::End`]; false at the end of the input.
    ///
    /// # Errors
    /// As [`Decoder::open`].
    pub fn next_stream(&mut self) -> Result<bool> {
        let start = self.at;
        let mut magic = [0; MAGIC.len()];
        let len = self.fill(&mut magic)?;
        if len == 0 {
            return Ok(false);
        }
        self.rest_of = None;
        if magic == REST_MAGIC {
            let mut point = [0; POINT_SIZE];
            if self.fill(&mut point)? < point.len() {
                return Err(Error::Truncated { end: self.at, what: "the header of the rest of a stream" });
            }
            self.rest_of = Some(ResumePoint::from_bytes(&point).map_err(|found| Error::Version { found })?);
            return self.next_header(start).map(|()| true);
        }
        self.header(start, (magic, len)).map(|()| true)
    }

    /// Reads the original header after that of a resumed stream. It has the same version.
    fn next_header(&mut self, start: u64) -> Result<()> {
        let mut magic = [0; MAGIC.len()];
        let len = self.fill(&mut magic)?;
        self.header(start, (magic, len))?;
        let Some(point) = self.rest_of else { return Ok(()) };
        if point.version != self.version {
            return Err(Error::Version { found: self.version.to_raw() });
        }
        self.taken = point.prefix;
        Ok(())
    }

    fn header(&mut self, start: u64, (magic, len): ([u8; MAGIC.len()], usize)) -> Result<()> {
        if magic.get(..len) != MAGIC.get(..len) {
            return Err(Error::NotAStream { at: start });
        }
        let mut version = [0; 4];
        let version_len = self.fill(&mut version)?;
        if len < magic.len() || version_len < version.len() {
            return Err(Error::Truncated { end: self.at, what: "the header of the stream" });
        }
        let found = u32::from_le_bytes(version);
        self.version = Version::from_raw(found).ok_or(Error::Version { found })?;
        self.taken = Prefix::none(self.version);
        Ok(())
    }

    /// The commands read so far, including those before a resumed stream.
    #[must_use]
    pub const fn taken(&self) -> Prefix {
        self.taken
    }

    /// The point where a resumed stream continues; `None` for a full stream.
    #[must_use]
    pub const fn rest_of(&self) -> Option<ResumePoint> {
        self.rest_of
    }

    /// The version of the stream.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Bytes read so far; the next command begins here.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.at
    }

    /// The input, positioned after the last command.
    pub fn into_inner(self) -> R {
        self.input
    }

    /// Reads and checks the next command. `None` if the input ends between two commands; in a complete stream,
    /// [`Command::End`] comes last.
    ///
    /// # Errors
    /// Any [`Error`] but [`Error::Write`]. The position is undefined after an error, so stop reading.
    pub fn command(&mut self) -> Result<Option<Command<'_>>> {
        let at = self.at;
        let Some((number, checksum)) = self.read_command(at)? else {
            return Ok(None);
        };
        self.check(at, number, checksum)?;
        if number == command::ENABLE_VERITY {
            return Err(Error::Unsupported { at, name: "enable_verity" });
        }
        let (name, since) = command::kind(number).ok_or(Error::UnknownCommand { at, found: number })?;
        if since > self.version {
            return Err(Error::NotInVersion { at, name, version: self.version });
        }
        let command = Fields::parse(self.version, &self.command)
            .and_then(|fields| Command::from_fields(number, &fields))
            .map_err(|problem| Error::Attribute { at, command: name, problem })?;
        command.map(Some).ok_or(Error::UnknownCommand { at, found: number })
    }

    /// Reads a command into the buffer. Returns its number and checksum, or `None` at the end of the input.
    fn read_command(&mut self, at: u64) -> Result<Option<(u16, u32)>> {
        let mut header = [0; COMMAND_HEADER_SIZE];
        let header_len = self.fill(&mut header)?;
        if header_len == 0 {
            return Ok(None);
        }
        if header_len < header.len() {
            return Err(Error::Truncated { end: self.at, what: "the header of a command" });
        }
        let [l0, l1, l2, l3, n0, n1, c0, c1, c2, c3] = header;
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        let limit = u64::try_from(self.version.command_size_max().saturating_sub(COMMAND_HEADER_SIZE));
        let limit = limit.unwrap_or(u64::MAX);
        if u64::from(len) > limit {
            return Err(Error::TooLong { at, expected: limit, found: len.into() });
        }
        self.command.clear();
        let read = (&mut self.input).take(len.into()).read_to_end(&mut self.command);
        let read = read.map_err(|source| Error::Read { at: self.at, source })?;
        self.advance(read);
        if u32::try_from(read) != Ok(len) {
            return Err(Error::Truncated { end: self.at, what: "a command" });
        }
        self.taken.add(&header);
        Ok(Some((u16::from_le_bytes([n0, n1]), u32::from_le_bytes([c0, c1, c2, c3]))))
    }

    fn check(&self, at: u64, number: u16, expected: u32) -> Result<()> {
        let found = checksum(number, &self.command);
        if found != expected {
            return Err(Error::Checksum { at, expected, found });
        }
        Ok(())
    }

    /// Fills `buffer` up to the end of the input. Returns the number of bytes read.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut len = 0_usize;
        while let Some(rest) = buffer.get_mut(len..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => break,
                Ok(read) => {
                    len = len.saturating_add(read);
                    self.advance(read);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Read { at: self.at, source }),
            }
        }
        Ok(len)
    }

    fn advance(&mut self, len: usize) {
        self.at = self.at.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
    }
}

/// The checksum of a command: over its header with the checksum field zeroed, and its attributes. The seed is 0, and
/// the result is not inverted.
pub(crate) fn checksum(number: u16, attributes: &[u8]) -> u32 {
    let len = u32::try_from(attributes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let sum = crc32c_raw(crc32c_raw(0, &len), &number.to_le_bytes());
    crc32c_raw(crc32c_raw(sum, &[0; 4]), attributes)
}
