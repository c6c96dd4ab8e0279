//! Reads a tar archive member by member. `read_into` and readers of layers call it.
//!
//! The end is a block of zeros, or the end of the input where a header could stand; what follows the zeros is ignored.
//! Members that are no files (volume labels) are passed over.

use std::sync::Arc;

use transfer::{NewNode, Observer};
use vfs::file_system::NodeKind;

use super::BLOCK;
use super::attributes;
use super::header::{BLOCK_BYTES, Dialect, Field, Header, until_zero};
use super::pax::{Merged, PAX_BYTES_MAX, Records};
use super::sparse::{self, Map};
use crate::bytes::{Bytes, number};
use crate::decompress::what;
use crate::error::{Error, Place, Result, shown};
use crate::input::{Input, ReadOptions};
use crate::member::{LinkContents, Member, MemberKind, PATH_BYTES_MAX, Tally, check_path, path};
use crate::stored::{Run, StoredRuns};

const HEADER: &str = "a header";
const CONTENTS: &str = "contents";

/// The members of a tar archive, in order.
pub struct Members<'a> {
    bytes: Bytes<'a>,
    /// Records for all members that follow.
    global: Records,
    /// There were PAX records: a hard link with a size has contents.
    is_pax: bool,
    tally: Tally,
    is_begun: bool,
    is_ended: bool,
}

impl std::fmt::Debug for Members<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members")
            .field("at", &self.bytes.at())
            .field("is_ended", &self.is_ended)
            .finish_non_exhaustive()
    }
}

/// Headers before that of a member say this of it.
#[derive(Default)]
struct Before {
    records: Records,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    /// One of them was there.
    is_any: bool,
}

/// Contents that follow the header of a member.
struct Contents {
    stored: StoredRuns,
    run_count: usize,
}

impl Members<'static> {
    /// Begins to read an archive. The compression is recognised.
    ///
    /// # Errors
    /// [`Error::Empty`]; those of reading the first bytes.
    pub fn new(input: Input, options: &ReadOptions) -> Result<Self> {
        Ok(Self::over(Bytes::open(input, options)?))
    }
}

impl<'a> Members<'a> {
    pub(crate) fn over(bytes: Bytes<'a>) -> Self {
        let (global, tally) = (Records::default(), Tally::default());
        Self { bytes, global, is_pax: false, tally, is_begun: false, is_ended: false }
    }

    /// The same members; `watch` can end the reading, within large contents too.
    #[must_use]
    pub fn watched<'b>(self, watch: &'b dyn Observer) -> Members<'b> {
        Members { bytes: self.bytes.watched(watch), ..self }
    }

    /// The next member. Contents of a file are kept when this returns. `None` behind the last one; then the input has
    /// been read to its end, unless it is an uncompressed regular file.
    ///
    /// # Errors
    /// See [`Error`]. After an error there are no more members.
    pub fn next_member(&mut self) -> Result<Option<Member>> {
        if self.is_ended {
            return Ok(None);
        }
        // After an error the position is unknown.
        self.is_ended = true;
        let member = self.find_member()?;
        self.is_ended = member.is_none();
        Ok(member)
    }

    fn find_member(&mut self) -> Result<Option<Member>> {
        let mut before = Before::default();
        loop {
            self.bytes.watch().check()?;
            let place = Place { name: Vec::new(), at: self.bytes.at() };
            let Some(header) = self.header(&place)? else {
                if before.is_any {
                    return Err(crate::bytes::truncated(&place, place.at, HEADER, BLOCK, 0));
                }
                self.bytes.drain()?;
                return Ok(None);
            };
            let place = Place { name: header.name(), ..place };
            match header.kind() {
                b'x' | b'X' => {
                    (self.is_pax, before.is_any) = (true, true);
                    let body = self.body(&header, PAX_BYTES_MAX, before.records.bytes(), &place)?;
                    before.records.add(&body, &place)?;
                }
                b'g' => {
                    self.is_pax = true;
                    let body = self.body(&header, PAX_BYTES_MAX, self.global.bytes(), &place)?;
                    self.global.add(&body, &place)?;
                }
                kind @ (b'L' | b'K') => {
                    before.is_any = true;
                    let body = self.body(&header, PATH_BYTES_MAX.saturating_add(1), 0, &place)?;
                    let name = Some(until_zero(&body).to_vec());
                    if kind == b'L' { before.name = name } else { before.link = name }
                }
                b'V' => self.pass_body(&header, &before, &place)?,
                _ => return self.member(&header, &before, place).map(Some),
            }
        }
    }

    /// The next header with a valid checksum. `None` at the end.
    fn header(&mut self, place: &Place) -> Result<Option<Header>> {
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        if is_first {
            let block = self.bytes.peek(BLOCK_BYTES)?;
            if block.is_empty() {
                return Err(Error::Empty);
            }
            if block.len() < BLOCK_BYTES {
                return Err(Error::NotArchive { found: what(block) });
            }
        }
        let Some(block) = self.bytes.block::<BLOCK_BYTES>(place, HEADER)? else { return Ok(None) };
        let header = Header(block);
        if header.is_zero() {
            return Ok(None);
        }
        if header.is_valid() {
            return Ok(Some(header));
        }
        if is_first && header.dialect() == Dialect::V7 {
            return Err(Error::NotArchive { found: what(&block) });
        }
        let (named, sum) = header.checksum();
        let place = Place { name: header.name(), ..place.clone() };
        let Some(found) = named.and_then(|named| u64::try_from(named).ok()) else {
            return Err(place.field("checksum", "a number in octal digits", shown(header.bytes(Field::CHECKSUM))));
        };
        let expected = u64::try_from(sum).unwrap_or_default();
        Err(Error::Checksum { member: place.shown(), at: place.at, expected, found })
    }

    /// The body of a header that describes others. It, and `before` bytes of earlier ones, are at most `max` bytes.
    fn body(&mut self, header: &Header, max: u64, before: u64, place: &Place) -> Result<Vec<u8>> {
        const PART: &str = "an extended header";
        let size: u64 = attributes::field(header, Field::SIZE, "size", place)?;
        if size.saturating_add(before) > max {
            let what = format!("an extended header of {size} bytes, after {before} bytes of others (limit {max})");
            return Err(place.unsupported(what));
        }
        let body = self.bytes.take(size, place, PART)?;
        self.bytes.skip(padding(size), place, PART)?;
        Ok(body)
    }

    fn pass_body(&mut self, header: &Header, before: &Before, place: &Place) -> Result<()> {
        let merged = Merged { own: &before.records, global: &self.global };
        let size = size(header, merged, place)?;
        self.bytes.skip(size, place, CONTENTS)?;
        self.bytes.skip(padding(size), place, CONTENTS)
    }

    fn member(&mut self, header: &Header, before: &Before, place: Place) -> Result<Member> {
        let global = std::mem::take(&mut self.global);
        let records = Merged { own: &before.records, global: &global };
        let member = self.described(header, before, records, place);
        self.global = global;
        member
    }

    fn described(&mut self, header: &Header, before: &Before, records: Merged<'_>, place: Place) -> Result<Member> {
        let name = records.get("GNU.sparse.name").or_else(|| records.get("path")).or(before.name.as_deref());
        let place = Place { name: name.map_or(place.name, <[u8]>::to_vec), ..place };
        check_path(&place.name, "name", &place)?;
        let link = records.get("linkpath").or(before.link.as_deref()).unwrap_or(header.text(Field::LINK));
        let is_link = matches!(header.kind(), b'1' | b'2');
        if is_link {
            check_path(link, "target", &place)?;
        }
        if header.kind() == b'1' {
            return self.hard_link(header, records, link, place);
        }
        let kind = kind(header.kind(), place.name.ends_with(b"/"), &place)?;
        let mut attr = attributes::metadata(header, records, kind, &place)?;
        let xattrs = attributes::xattrs(records, kind, self.bytes.accounts(), &place)?;
        attr.permissions = attributes::shown_permissions(attr.permissions, &xattrs);
        let mut node = NewNode { attr, target: None, xattrs, contents: None };
        let xattr_bytes = node.xattrs.iter().fold(0, |sum, (name, value)| sum + name.len() + value.len());
        let mut kept = place.name.len() + xattr_bytes;
        match kind {
            NodeKind::File => {
                let contents = self.contents(header, records, &place)?;
                attr.size = contents.stored.size;
                kept += contents.run_count * size_of::<Run>();
                node.contents = (attr.size > 0).then(|| contents.stored.shared());
            }
            NodeKind::Symlink => {
                attr.size = number(link.len());
                kept += link.len();
                node.target = Some(link.to_vec());
                self.pass_stray(header, records, false, &place)?;
            }
            _ if header.kind() == b'D' => self.pass_body(header, before, &place)?,
            _ => {
                self.pass_stray(header, records, false, &place)?;
            }
        }
        node.attr = attr;
        self.tally.count(number(kept), &place)?;
        Ok(Member { path: path(place.name), kind: MemberKind::Node(node), link_contents: None })
    }

    fn hard_link(&mut self, header: &Header, records: Merged<'_>, link: &[u8], place: Place) -> Result<Member> {
        self.tally.count(number(place.name.len() + link.len()), &place)?;
        let first = path(link.to_vec());
        let may_have = self.is_pax && header.dialect() != Dialect::Gnu;
        let contents = self.pass_stray(header, records, may_have, &place)?;
        let link_contents = contents.map(|stored| LinkContents { size: stored.size, contents: Arc::new(stored) });
        Ok(Member { path: path(place.name), kind: MemberKind::HardLink(first), link_contents })
    }

    /// Passes over contents of a member that should have none; those of a hard link are kept. Some programs name the
    /// size of the file in the header of a link without writing contents: then a header, or the end, follows at once.
    fn pass_stray(
        &mut self,
        header: &Header,
        records: Merged<'_>,
        has_contents: bool,
        place: &Place,
    ) -> Result<Option<StoredRuns>> {
        let size = size(header, records, place)?;
        if size == 0 || (!has_contents && self.is_header_next()?) {
            return Ok(None);
        }
        let is_link = header.kind() == b'1' && header.dialect() != Dialect::Gnu;
        let kept = self.bytes.keep(if is_link { size } else { 0 }, place, CONTENTS)?;
        self.bytes.skip(if is_link { 0 } else { size }, place, CONTENTS)?;
        self.bytes.skip(padding(size), place, CONTENTS)?;
        Ok(is_link.then(|| self.bytes.stored(size, kept.runs)))
    }

    fn is_header_next(&mut self) -> Result<bool> {
        let block = self.bytes.peek(BLOCK_BYTES)?;
        let block: Option<[u8; BLOCK_BYTES]> = block.try_into().ok();
        Ok(block.is_none_or(|block| Header(block).is_zero() || Header(block).is_valid()))
    }

    /// Keeps the contents of a file.
    fn contents(&mut self, header: &Header, records: Merged<'_>, place: &Place) -> Result<Contents> {
        let size = size(header, records, place)?;
        let (map, header_bytes) = match header.kind() {
            b'S' => (Some(sparse::old(header, &mut self.bytes, place)?), 0),
            _ => match sparse::of_records(records, &mut self.bytes, place)? {
                Some(found) => (Some(found.map), found.header_bytes),
                None => (None, 0),
            },
        };
        let data = match &map {
            Some(map) => check_map(map, size, header_bytes, place)?,
            None => size,
        };
        let kept = self.bytes.keep(data, place, CONTENTS)?;
        self.bytes.skip(padding(size), place, CONTENTS)?;
        let runs = map.as_ref().map_or(kept.runs.clone(), |map| map.spread(&kept.runs));
        let run_count = runs.len();
        Ok(Contents { stored: self.bytes.stored(map.map_or(size, |map| map.size), runs), run_count })
    }
}

/// Bytes of data of a sparse file; with its map they are the size of the member.
fn check_map(map: &Map, size: u64, header_bytes: u64, place: &Place) -> Result<u64> {
    let data = map.data_bytes();
    if data.checked_add(header_bytes) != Some(size) {
        let found = format!("{data} bytes of data and {header_bytes} of the map, in {size} bytes");
        return Err(place.field("sparse map", "as many bytes as the member has", found));
    }
    Ok(data)
}

/// The kind of node that a type flag stands for.
fn kind(flag: u8, has_slash: bool, place: &Place) -> Result<NodeKind> {
    Ok(match flag {
        // Before POSIX a directory was a file whose name ends with a slash.
        0 | b'0' | b'7' if has_slash => NodeKind::Directory,
        0 | b'0' | b'7' | b'S' => NodeKind::File,
        b'2' => NodeKind::Symlink,
        b'3' => NodeKind::CharDevice,
        b'4' => NodeKind::BlockDevice,
        b'5' | b'D' => NodeKind::Directory,
        b'6' => NodeKind::Fifo,
        b'M' => return Err(place.unsupported("a file that begins in another volume of the archive")),
        b'N' => return Err(place.unsupported("lists of long names (type `N`)")),
        other => return Err(place.unsupported(format!("members of type `{}`", shown(&[other])))),
    })
}

/// Bytes that follow the header.
fn size(header: &Header, records: Merged<'_>, place: &Place) -> Result<u64> {
    let size = match records.number("size", place)? {
        Some(size) => size,
        None => attributes::field(header, Field::SIZE, "size", place)?,
    };
    // Offsets in files are signed.
    let is_possible = i64::try_from(size).is_ok_and(|size| size < i64::MAX - i64::from(u16::MAX));
    if is_possible { Ok(size) } else { Err(place.field("size", "fewer than 2^63 bytes", size.to_string())) }
}

/// Bytes that fill `size` up to a multiple of a block.
const fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK
}
