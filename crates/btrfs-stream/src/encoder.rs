//! [`Encoder`]: writes a stream command by command. Called by `send` of `btrfs`.

use crate::attribute::Attribute;
use crate::command::{CloneRange, Command, EncodedWrite, Special};
use crate::decoder::checksum;
use crate::error::{Error, Problem, Result};
use crate::resume_point::{Prefix, REST_MAGIC, ResumePoint};
use crate::value::Time;
use crate::version::{COMMAND_HEADER_SIZE, MAGIC, PATH_SIZE_MAX, Version};
use std::io::Write;

/// Writes streams to `output`, with attributes in the kernel's order. Use a buffered writer if commands are short, as
/// each is one write.
#[derive(Debug)]
pub struct Encoder<W> {
    output: W,
    version: Version,
    /// Bytes written so far.
    at: u64,
    made: Prefix,
    /// Point at which the output begins, until it is reached.
    point: Option<ResumePoint>,
    /// The command that is being written.
    command: Vec<u8>,
}

impl<W: Write> Encoder<W> {
    /// An encoder that has written the header of a stream.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn new(output: W, version: Version) -> Result<Self> {
        let made = Prefix::none(version);
        let mut encoder = Self { output, version, at: 0, made, point: None, command: Vec::new() };
        encoder.header()?;
        Ok(encoder)
    }

    /// An encoder that receives all commands of a stream and writes those after `resume_point`.
    #[must_use]
    pub fn rest(output: W, point: ResumePoint) -> Self {
        let version = point.version;
        Self { output, version, at: 0, made: Prefix::none(version), point: Some(point), command: Vec::new() }
    }

    /// Writes the header of another stream after [`Command::End`] of the last one.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn header(&mut self) -> Result<()> {
        self.made = Prefix::none(self.version);
        self.command.clear();
        self.command.extend_from_slice(&MAGIC);
        self.command.extend_from_slice(&self.version.to_raw().to_le_bytes());
        self.put_out()
    }

    /// The version of the stream.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Bytes written so far; the next command begins here.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.at
    }

    /// The output, normally after [`Command::End`].
    pub fn into_inner(self) -> W {
        self.output
    }

    /// Writes one command.
    ///
    /// # Errors
    /// [`Error::NotInVersion`]; [`Error::TooLong`] for more data than a command of this version can hold;
    /// [`Error::Attribute`] for paths that are too long or contain a NUL; [`Error::OtherStream`] when resuming, before
    /// any output; [`Error::Write`]. Nothing of the command is written, except after [`Error::Write`].
    pub fn command(&mut self, command: &Command<'_>) -> Result<()> {
        let (at, name, version) = (self.at, command.name(), self.version);
        if command.since() > version {
            return Err(Error::NotInVersion { at, name, version });
        }
        self.command.clear();
        self.command.resize(COMMAND_HEADER_SIZE, 0);
        let mut attributes = Attributes { out: &mut self.command, version, problem: None };
        attributes.of_command(command);
        if let Some(problem) = attributes.problem {
            return Err(Error::Attribute { at, command: name, problem });
        }
        let (found, expected) = (self.command.len(), version.command_size_max());
        if found > expected {
            let [found, expected] = [found, expected].map(|len| u64::try_from(len).unwrap_or(u64::MAX));
            return Err(Error::TooLong { at, expected, found });
        }
        let number = command.number();
        let attributes = self.command.get(COMMAND_HEADER_SIZE..).unwrap_or_default();
        let len = u32::try_from(attributes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let sum = checksum(number, attributes).to_le_bytes();
        let header = len.into_iter().chain(number.to_le_bytes()).chain(sum);
        self.command.iter_mut().zip(header).for_each(|(to, from)| *to = from);
        if let Some(point) = self.point {
            self.begin_rest(point, number == Command::End.number())?;
        }
        if let Some(header) = self.command.first_chunk() {
            self.made.add(header);
        }
        if self.point.is_some() { Ok(()) } else { self.put_out() }
    }

    /// Starts the output once the resume point is reached.
    fn begin_rest(&mut self, point: ResumePoint, is_end: bool) -> Result<()> {
        let made = self.made;
        if made.commands < point.prefix.commands && !is_end {
            return Ok(());
        }
        if made != point.prefix {
            let (commands, expected, found) = (made.commands, point.prefix.digest, made.digest);
            return Err(Error::OtherStream { commands, expected, found });
        }
        self.point = None;
        let command = std::mem::take(&mut self.command);
        self.command.extend_from_slice(&REST_MAGIC);
        self.command.extend_from_slice(&point.to_bytes());
        self.put_out()?;
        self.header()?;
        self.made = made;
        self.command = command;
        Ok(())
    }

    fn put_out(&mut self) -> Result<()> {
        self.output.write_all(&self.command).map_err(Error::Write)?;
        self.at = self.at.saturating_add(u64::try_from(self.command.len()).unwrap_or(u64::MAX));
        Ok(())
    }
}

/// The attributes of the command being written, and their first problem.
struct Attributes<'a> {
    out: &'a mut Vec<u8>,
    version: Version,
    problem: Option<Problem>,
}

impl Attributes<'_> {
    fn of_command(&mut self, command: &Command<'_>) {
        match command {
            Command::End => {}
            // The only command for which the kernel does not write the path first.
            Command::Clone(range) => self.clone_range(range),
            _ => {
                self.string(Attribute::Path, command.path().unwrap_or_default());
                self.behind_path(command);
            }
        }
    }

    fn behind_path(&mut self, command: &Command<'_>) {
        match *command {
            Command::Subvol { uuid, ctransid, .. } => {
                self.bytes(Attribute::Uuid, &uuid);
                self.number(Attribute::Ctransid, ctransid);
            }
            Command::Snapshot { uuid, ctransid, parent_uuid, parent_ctransid, .. } => {
                self.bytes(Attribute::Uuid, &uuid);
                self.number(Attribute::Ctransid, ctransid);
                self.bytes(Attribute::CloneUuid, &parent_uuid);
                self.number(Attribute::CloneCtransid, parent_ctransid);
            }
            Command::Mkfile { ino, .. } | Command::Mkdir { ino, .. } => self.ino(ino),
            Command::Mknod(special) | Command::Mkfifo(special) | Command::Mksock(special) => self.special(&special),
            Command::Symlink { ino, target, .. } => {
                self.ino(ino);
                self.string(Attribute::PathLink, target);
            }
            Command::Rename { to, .. } => self.string(Attribute::PathTo, to),
            Command::Link { existing, .. } => self.string(Attribute::PathLink, existing),
            Command::SetXattr { name, value, .. } => {
                self.string(Attribute::XattrName, name);
                self.bytes(Attribute::XattrData, value);
            }
            Command::RemoveXattr { name, .. } => self.string(Attribute::XattrName, name),
            Command::Write { offset, data, .. } => {
                self.number(Attribute::FileOffset, offset);
                self.data(data);
            }
            Command::Truncate { size, .. } => self.number(Attribute::Size, size),
            Command::Chmod { mode, .. } => self.number(Attribute::Mode, mode),
            Command::Chown { uid, gid, .. } => {
                self.number(Attribute::Uid, uid);
                self.number(Attribute::Gid, gid);
            }
            Command::Utimes { atime, mtime, ctime, otime, .. } => {
                self.time(Attribute::Atime, atime);
                self.time(Attribute::Mtime, mtime);
                self.time(Attribute::Ctime, ctime);
                // Version 1 has no creation times.
                if let Some(otime) = otime.filter(|_| self.version >= Version::V2) {
                    self.time(Attribute::Otime, otime);
                }
            }
            Command::UpdateExtent { offset, size, .. } => {
                self.number(Attribute::FileOffset, offset);
                self.number(Attribute::Size, size);
            }
            Command::Fallocate { mode, offset, size, .. } => {
                self.bytes(Attribute::FallocateMode, &mode.to_le_bytes());
                self.number(Attribute::FileOffset, offset);
                self.number(Attribute::Size, size);
            }
            Command::Fileattr { flags, .. } => self.number(Attribute::Fileattr, flags),
            Command::EncodedWrite(write) => self.encoded_write(&write),
            Command::End | Command::Clone(_) | Command::Unlink { .. } | Command::Rmdir { .. } => {}
        }
    }

    fn ino(&mut self, ino: Option<u64>) {
        if let Some(ino) = ino {
            self.number(Attribute::Ino, ino);
        }
    }

    fn special(&mut self, special: &Special<'_>) {
        self.ino(special.ino);
        self.number(Attribute::Rdev, special.rdev);
        self.number(Attribute::Mode, special.mode);
    }

    fn clone_range(&mut self, range: &CloneRange<'_>) {
        self.number(Attribute::FileOffset, range.offset);
        self.number(Attribute::CloneLen, range.len);
        self.string(Attribute::Path, range.path);
        self.bytes(Attribute::CloneUuid, &range.from_uuid);
        self.number(Attribute::CloneCtransid, range.from_ctransid);
        self.string(Attribute::ClonePath, range.from_path);
        self.number(Attribute::CloneOffset, range.from_offset);
    }

    fn encoded_write(&mut self, write: &EncodedWrite<'_>) {
        self.number(Attribute::FileOffset, write.offset);
        self.number(Attribute::UnencodedFileLen, write.unencoded_file_len);
        self.number(Attribute::UnencodedLen, write.unencoded_len);
        self.number(Attribute::UnencodedOffset, write.unencoded_offset);
        self.bytes(Attribute::Compression, &write.compression.to_raw().to_le_bytes());
        self.bytes(Attribute::Encryption, &[0; 4]);
        self.data(write.data);
    }

    fn string(&mut self, attribute: Attribute, value: &[u8]) {
        if value.len() > PATH_SIZE_MAX {
            self.note(Problem::Length { attribute, expected: PATH_SIZE_MAX, found: value.len() });
        } else if value.contains(&0) {
            self.note(Problem::Nul(attribute));
        } else {
            self.bytes(attribute, value);
        }
    }

    fn number(&mut self, attribute: Attribute, value: u64) {
        self.bytes(attribute, &value.to_le_bytes());
    }

    fn time(&mut self, attribute: Attribute, time: Time) {
        if time.nanoseconds >= 1_000_000_000 {
            self.note(Problem::Value { attribute, found: time.nanoseconds.into() });
        }
        let [seconds, nanoseconds] = [&time.seconds.to_le_bytes()[..], &time.nanoseconds.to_le_bytes()];
        self.bytes(attribute, &[seconds, nanoseconds].concat());
    }

    /// The data attribute: the last of its command, and without a length in version 2.
    fn data(&mut self, value: &[u8]) {
        if self.version >= Version::V2 {
            self.out.extend_from_slice(&Attribute::Data.to_raw().to_le_bytes());
            self.out.extend_from_slice(value);
        } else {
            self.bytes(Attribute::Data, value);
        }
    }

    fn bytes(&mut self, attribute: Attribute, value: &[u8]) {
        let Ok(len) = u16::try_from(value.len()) else {
            return self.note(Problem::Length { attribute, expected: u16::MAX.into(), found: value.len() });
        };
        self.out.extend_from_slice(&attribute.to_raw().to_le_bytes());
        self.out.extend_from_slice(&len.to_le_bytes());
        self.out.extend_from_slice(value);
    }

    fn note(&mut self, problem: Problem) {
        self.problem.get_or_insert(problem);
    }
}
