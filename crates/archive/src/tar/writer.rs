//! Writes members of a tar archive in PAX format, byte for byte as GNU tar does it with `--format=posix` and without
//! access and change times. `walk` writes trees through it; programs that write layers append single members.
//!
//! Differences to GNU tar: hard links of pipes and devices are links; the directory that the header of a sparse file
//! names has 0 in place of a process number, so that the same tree gives the same bytes.

use std::io::Write;
use std::path::Path;

use portable::OsStrExt as _;
use transfer::{Contents, Loss, NewNode, Observer};
use vfs::Metadata;
use vfs::acl::{ACCESS_NAME, DEFAULT_NAME};
use vfs::file_system::{NodeKind, Time, Xattrs};

use super::BLOCK;
use super::block::{Fields, NewRecords, beside, fits, header, is_short, seconds};
use super::header::{BLOCK_BYTES, Field};
use crate::acl;
use crate::bytes::number;
use crate::device;
use crate::error::{Error, Place, Result};

/// Archives are filled up to a multiple of this, in bytes.
const RECORD_BYTES: u64 = 10_240;
/// Bytes of contents that are copied at once.
const PIECE_BYTES: usize = 256 << 10;
const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
/// Permissions of the header before a header.
const EXTENDED_PERMISSIONS: u32 = 0o644;

/// How an archive is written. The default is that of GNU tar: everything as it is, holes as zeros.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Owner and group of all members, instead of their own.
    pub owner: Option<(u32, u32)>,
    /// Times behind this one become this one.
    pub mtime_max: Option<Time>,
    /// Leave out extended attributes and access lists.
    pub without_xattrs: bool,
    /// Leave out the holes of files, in the form GNU.sparse 1.0, which GNU tar, libarchive, Python and Go read.
    pub keeps_holes: bool,
    /// How names begin.
    pub prefix: Prefix,
}

/// How the names in an archive begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Prefix {
    /// With `./`, which is also the name of the root directory.
    #[default]
    Dot,
    /// With the first name. The root directory is no member then.
    None,
}

/// Writes an archive member by member.
#[must_use = "an archive is complete after `finish` only"]
pub struct TarWriter<'a, W: Write> {
    out: W,
    /// Bytes so far.
    at: u64,
    options: WriteOptions,
    watch: &'a dyn Observer,
    buffer: Vec<u8>,
}

/// A member without its contents.
#[derive(Clone, Copy)]
pub(super) struct Described<'a> {
    pub(super) attr: &'a Metadata,
    pub(super) target: Option<&'a [u8]>,
    pub(super) xattrs: &'a Xattrs,
}

/// The parts of a file that have data: offset and length, in bytes.
type Parts = Vec<(u64, u64)>;

impl<W: Write> std::fmt::Debug for TarWriter<'_, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TarWriter").field("at", &self.at).field("options", &self.options).finish_non_exhaustive()
    }
}

impl<W: Write> TarWriter<'static, W> {
    /// Begins an archive.
    pub fn new(out: W, options: WriteOptions) -> Self {
        Self { out, at: 0, options, watch: &(), buffer: Vec::new() }
    }
}

impl<W: Write> TarWriter<'_, W> {
    /// The same archive; `watch` is told of copied bytes and losses, and can end the writing.
    pub fn watched<'b>(self, watch: &'b dyn Observer) -> TarWriter<'b, W> {
        TarWriter { watch, ..self }
    }

    /// Writes a member. Its name is `path` behind the prefix, with a slash behind it for a directory; `/` and `./` at
    /// the begin of `path` are left out. The identity of `node` does not matter. A socket is left out with
    /// [`Loss::Socket`].
    ///
    /// # Errors
    /// [`Error::Write`]; [`Error::Field`] for a path or a target that no reader takes; those of reading contents.
    pub fn append(&mut self, path: &Path, node: &NewNode) -> Result<()> {
        let contents = node.contents.as_deref().map(transfer::Stored::open).transpose();
        let contents = contents.map_err(|error| error.about(path))?;
        let described = Described { attr: &node.attr, target: node.target.as_deref(), xattrs: &node.xattrs };
        match contents {
            Some(contents) => self.member(path, described, Some(contents.as_ref())),
            None => self.member(path, described, None),
        }
    }

    /// Writes one more name of the file that was written at `first`.
    ///
    /// # Errors
    /// As [`TarWriter::append`].
    pub fn append_link(&mut self, path: &Path, first: &Path, node: &NewNode) -> Result<()> {
        self.link(path, first, &node.attr)
    }

    /// Ends the archive, and gives back what it was written to, flushed.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn finish(mut self) -> Result<W> {
        self.put(&[ZEROS, ZEROS].concat())?;
        self.fill(RECORD_BYTES)?;
        self.out.flush().map_err(Error::Write)?;
        Ok(self.out)
    }

    /// A name of the archive for `path`. `None` for the root directory where it is no member.
    fn name(&self, path: &Path, is_dir: bool) -> Result<Option<Vec<u8>>> {
        let parts = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
        let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty() && *part != b".").collect();
        let plain = parts.join(&b"/"[..]);
        let place = Place { name: plain.clone(), at: self.at };
        if parts.contains(&&b".."[..]) || plain.contains(&0) {
            return Err(place.field("name", "plain names between slashes", crate::error::shown(&plain)));
        }
        let prefix: &[u8] = match self.options.prefix {
            Prefix::Dot => b"./",
            Prefix::None if plain.is_empty() => return Ok(None),
            Prefix::None => b"",
        };
        let slash: &[u8] = if is_dir && !plain.is_empty() { b"/" } else { b"" };
        Ok(Some([prefix, &plain, slash].concat()))
    }

    pub(super) fn link(&mut self, path: &Path, first: &Path, attr: &Metadata) -> Result<()> {
        let (Some(name), Some(first)) = (self.name(path, false)?, self.name(first, false)?) else { return Ok(()) };
        let no_xattrs = Xattrs::new();
        let described = Described { attr, target: Some(&first), xattrs: &no_xattrs };
        self.headers(&name, &name, b'1', described, 0, NewRecords::default())
    }

    pub(super) fn member(
        &mut self,
        path: &Path,
        described: Described<'_>,
        contents: Option<&dyn Contents>,
    ) -> Result<()> {
        let attr = described.attr;
        let Some(name) = self.name(path, attr.is_dir())? else { return Ok(()) };
        let kind = match attr.kind {
            NodeKind::File => return self.file(path, &name, described, contents),
            NodeKind::Symlink => b'2',
            NodeKind::CharDevice => b'3',
            NodeKind::BlockDevice => b'4',
            NodeKind::Directory => b'5',
            NodeKind::Fifo => b'6',
            NodeKind::Socket => {
                self.watch.lost(Loss::Socket);
                return Ok(());
            }
        };
        self.headers(&name, &name, kind, described, 0, NewRecords::default())
    }

    fn file(
        &mut self,
        path: &Path,
        name: &[u8],
        described: Described<'_>,
        contents: Option<&dyn Contents>,
    ) -> Result<()> {
        let size = described.attr.size;
        let parts = parts(contents, size).map_err(|error| error.about(path))?;
        let is_whole = size == 0 || parts == [(0, size)];
        if is_whole || !self.options.keeps_holes {
            self.headers(name, name, b'0', described, size, NewRecords::default())?;
            self.data(path, contents, &parts, Some(size))?;
            return self.fill(BLOCK);
        }
        let map = sparse_map(&parts, size);
        let data = parts.iter().fold(number(map.len()), |sum, (_, len)| sum.saturating_add(*len));
        let mut records = NewRecords::default();
        records.add_number("GNU.sparse.major", 1);
        records.add_number("GNU.sparse.minor", 0);
        records.add(b"GNU.sparse.name", name);
        records.add_number("GNU.sparse.realsize", size);
        let shown = beside(name, b"GNUSparseFile.0");
        self.headers(&shown, name, b'0', described, data, records)?;
        self.put(&map)?;
        self.data(path, contents, &parts, None)?;
        self.fill(BLOCK)
    }

    /// Writes the data of a file; with a size, zeros between and behind its parts.
    fn data(&mut self, path: &Path, contents: Option<&dyn Contents>, parts: &Parts, size: Option<u64>) -> Result<()> {
        let mut end = 0;
        for (at, len) in parts {
            if size.is_some() {
                self.zeros(at.saturating_sub(end))?;
            }
            end = at.saturating_add(*len);
            if let Some(contents) = contents {
                self.part(path, contents, *at, end)?;
            }
        }
        self.zeros(size.map_or(0, |size| size.saturating_sub(end)))
    }

    /// Writes the bytes from `at` to `end` of a file. Bytes that it lost since its size was read are zeros: its header
    /// is written.
    fn part(&mut self, path: &Path, contents: &dyn Contents, mut at: u64, end: u64) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let most = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(PIECE_BYTES);
        buffer.resize(buffer.len().max(most), 0);
        while at < end {
            self.watch.check()?;
            let want = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(buffer.len());
            let piece = buffer.get_mut(..want).unwrap_or_default();
            let count = contents.read_at(piece, at).map_err(|error| error.about(path))?;
            if count == 0 {
                self.watch.lost(Loss::Shortened);
                self.zeros(end.saturating_sub(at))?;
                break;
            }
            self.put(piece.get(..count).unwrap_or_default())?;
            self.watch.copied(number(count));
            at = at.saturating_add(number(count));
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Writes the header of a member, and one with its records before it where it needs some. `name` goes into the
    /// header, and `real` is what the member is called.
    fn headers(
        &mut self,
        name: &[u8],
        real: &[u8],
        kind: u8,
        described: Described<'_>,
        size: u64,
        mut records: NewRecords,
    ) -> Result<()> {
        let attr = described.attr;
        let place = Place { name: real.to_vec(), at: self.at };
        let (uid, gid) = self.options.owner.unwrap_or((attr.uid, attr.gid));
        let mtime = self.options.mtime_max.map_or(attr.mtime, |max| attr.mtime.min(max));
        let target = if matches!(kind, b'1' | b'2') { described.target.unwrap_or_default() } else { &[] };
        if target.contains(&0) || (target.is_empty() && matches!(kind, b'1' | b'2')) {
            return Err(place.field("target", "a path", crate::error::shown(target)));
        }
        let Field(_, link_bytes) = Field::LINK;
        if target.len() > link_bytes {
            records.add(b"linkpath", target);
        }
        if name == real && !is_short(real) {
            records.add(b"path", real);
        }
        for (key, value, field) in [("uid", u64::from(uid), Field::UID), ("gid", u64::from(gid), Field::GID)] {
            if !fits(value, field) {
                records.add_number(key, value);
            }
        }
        if !fits(size, Field::SIZE) {
            records.add_number("size", size);
        }
        if mtime.nsec != 0 || !u64::try_from(mtime.sec).is_ok_and(|sec| fits(sec, Field::MTIME)) {
            records.add(b"mtime", seconds(mtime).as_bytes());
        }
        if kind != b'1' && !self.options.without_xattrs {
            add_xattrs(&mut records, attr, described.xattrs);
        }
        let is_device = matches!(attr.kind, NodeKind::CharDevice | NodeKind::BlockDevice) && kind != b'1';
        let device = device::parts(if is_device { attr.rdev } else { 0 });
        let permissions = attr.permissions & 0o7777;
        let (mtime, link) = (mtime.sec, target);
        if !records.is_empty() {
            // GNU tar gives this header the time that limits the others.
            let mtime = self.options.mtime_max.map_or(mtime, |max| max.sec);
            self.extended(real, mtime, &records)?;
        }
        self.put(&header(&Fields { name, link, kind, permissions, uid, gid, size, mtime, device: Some(device) }))
    }

    /// Writes a header with records for the next one.
    fn extended(&mut self, real: &[u8], mtime: i64, records: &NewRecords) -> Result<()> {
        let name = beside(real, b"PaxHeaders");
        let size = number(records.bytes().len());
        let fields = Fields {
            name: &name,
            link: &[],
            kind: b'x',
            permissions: EXTENDED_PERMISSIONS,
            uid: 0,
            gid: 0,
            size,
            mtime,
            device: None,
        };
        self.put(&header(&fields))?;
        self.put(records.bytes())?;
        self.fill(BLOCK)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(Error::Write)?;
        self.at = self.at.saturating_add(number(bytes.len()));
        Ok(())
    }

    fn zeros(&mut self, mut count: u64) -> Result<()> {
        const PIECE: [u8; 16 << 10] = [0; 16 << 10];
        while count > 0 {
            self.watch.check()?;
            let part = PIECE.get(..usize::try_from(count).unwrap_or(usize::MAX)).unwrap_or(&PIECE);
            self.put(part)?;
            count = count.saturating_sub(number(part.len()));
        }
        Ok(())
    }

    /// Fills the archive up to a multiple of `unit` bytes.
    fn fill(&mut self, unit: u64) -> Result<()> {
        self.zeros(self.at.next_multiple_of(unit).saturating_sub(self.at))
    }
}

/// The parts of a file that have data, joined where they touch.
fn parts(contents: Option<&dyn Contents>, size: u64) -> transfer::Result<Parts> {
    let mut parts = Parts::new();
    let Some(contents) = contents else { return Ok(parts) };
    let mut at = 0;
    while let Some((start, end)) = contents.next_data(at, size)? {
        match parts.last_mut() {
            Some((last, len)) if last.saturating_add(*len) == start => *len = end.saturating_sub(*last),
            _ => parts.push((start, end.saturating_sub(start))),
        }
        at = end;
    }
    Ok(parts)
}

/// The map before the data of a sparse file, filled up to a block. A part without bytes marks the end of the file.
fn sparse_map(parts: &Parts, size: u64) -> Vec<u8> {
    let mut map = format!("{}\n", parts.len().saturating_add(1)).into_bytes();
    for (at, len) in parts.iter().chain([&(size, 0)]) {
        map.extend(format!("{at}\n{len}\n").as_bytes());
    }
    map.resize(map.len().next_multiple_of(BLOCK_BYTES), 0);
    map
}

/// Access lists as text, then all attributes as they are, access lists too, as GNU tar does it.
fn add_xattrs(records: &mut NewRecords, attr: &Metadata, xattrs: &Xattrs) {
    let value = |name| xattrs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice());
    let (access, default) = (value(ACCESS_NAME), value(DEFAULT_NAME));
    // A directory with one of the lists has both: the permission bits as a list, and an empty default.
    let implied = acl::of_permissions(attr.permissions);
    let access = access.or(default.map(|_| implied.as_slice())).and_then(acl::to_text);
    let default = match default {
        Some(list) => acl::to_text(list),
        None => access.as_ref().filter(|_| attr.is_dir()).map(|_| Vec::new()),
    };
    for (key, text) in [("SCHILY.acl.access", access), ("SCHILY.acl.default", default)] {
        if let Some(text) = text {
            records.add(key.as_bytes(), &text);
        }
    }
    for (name, value) in xattrs {
        records.add_xattr(name, value);
    }
}
