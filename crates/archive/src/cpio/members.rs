//! Reads a cpio archive member by member. `read_into` calls it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use transfer::{NewNode, Observer, plain_metadata};
use vfs::Metadata;
use vfs::file_system::{NodeKind, Time};

use super::header::{HEADER_BYTES, Header, MAGIC_BYTES, is_magic};
use crate::bytes::{Bytes, number, truncated};
use crate::decompress::what;
use crate::device;
use crate::error::{Error, Place, Result, shown};
use crate::input::{Input, ReadOptions};
use crate::member::{LinkContents, Member, MemberKind, PATH_BYTES_MAX, Tally, check_path, path};
use crate::stored::{Run, StoredRuns};

const HEADER: &str = "a header";
const NAME: &str = "a name";
const CONTENTS: &str = "contents";
/// Name behind the last member of an archive.
const TRAILER: &[u8] = b"TRAILER!!!";
/// Names and contents are filled up to a multiple of this, in bytes.
const UNIT: u64 = 4;

/// Names of one file have this in common: device, inode number, mode.
type FileKey = ((u32, u32), u32, u32);

/// The first name of a file, and the target if it is a symbolic link.
struct First {
    path: PathBuf,
    target: Option<Vec<u8>>,
}

/// The members of a cpio archive, in order.
pub struct Members<'a> {
    bytes: Bytes<'a>,
    /// Offset of the archive that is being read, within the input.
    begin: u64,
    links: HashMap<FileKey, First>,
    tally: Tally,
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

impl Members<'static> {
    /// Begins to read an archive. The compression is recognised.
    ///
    /// # Errors
    /// [`Error::Empty`], [`Error::NotArchive`]; those of reading the first bytes.
    pub fn new(input: Input, options: &ReadOptions) -> Result<Self> {
        let mut bytes = Bytes::open(input, options)?;
        let magic = bytes.peek(MAGIC_BYTES)?;
        if is_magic(magic) { Ok(Self::over(bytes)) } else { Err(Error::NotArchive { found: what(magic) }) }
    }
}

impl<'a> Members<'a> {
    pub(crate) fn over(bytes: Bytes<'a>) -> Self {
        Self { bytes, begin: 0, links: HashMap::new(), tally: Tally::default(), is_ended: false }
    }

    /// The same members; `watch` can end the reading, within large contents too.
    #[must_use]
    pub fn watched<'b>(self, watch: &'b dyn Observer) -> Members<'b> {
        Members { bytes: self.bytes.watched(watch), ..self }
    }

    /// The next member, of all archives that stand behind one another. Contents of a file are kept when this returns.
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
        loop {
            self.bytes.watch().check()?;
            let place = Place { name: Vec::new(), at: self.bytes.at() };
            let block = self.bytes.block::<HEADER_BYTES>(&place, HEADER)?;
            let block = block.ok_or_else(|| truncated(&place, place.at, "the trailer", number(HEADER_BYTES), 0))?;
            let header = Header::parse(&block, &place)?;
            let name = self.name(&header, &place)?;
            if name != TRAILER {
                let place = Place { name, ..place };
                check_path(&place.name, "name", &place)?;
                return self.member(&header, place).map(Some);
            }
            self.skip_contents(&header, &place)?;
            if !is_magic(&self.bytes.next_part()?) {
                self.bytes.drain()?;
                return Ok(None);
            }
            self.begin = self.bytes.at();
            self.links.clear();
        }
    }

    /// The name behind a header.
    fn name(&mut self, header: &Header, place: &Place) -> Result<Vec<u8>> {
        let size = u64::from(header.name_size);
        if size == 0 || size > PATH_BYTES_MAX.saturating_add(1) {
            return Err(place.field("length of the name", "1 to 4097 bytes", size.to_string()));
        }
        let mut name = self.bytes.take(size, place, NAME)?;
        if name.pop() != Some(0) {
            return Err(place.field("name", "a zero behind it", shown(&name)));
        }
        // Some programs fill the name itself with zeros.
        while name.last() == Some(&0) {
            name.pop();
        }
        self.skip_padding(place)?;
        Ok(name)
    }

    fn skip_padding(&mut self, place: &Place) -> Result<()> {
        let past = self.bytes.at().saturating_sub(self.begin);
        self.bytes.skip(past.next_multiple_of(UNIT).saturating_sub(past), place, CONTENTS)
    }

    fn skip_contents(&mut self, header: &Header, place: &Place) -> Result<()> {
        self.bytes.skip(u64::from(header.size), place, CONTENTS)?;
        self.skip_padding(place)
    }

    fn member(&mut self, header: &Header, place: Place) -> Result<Member> {
        let kind = NodeKind::from_mode(header.mode);
        let kind =
            kind.ok_or_else(|| place.field("mode", "the bits of a kind of file", format!("{:o}", header.mode)))?;
        let attr = metadata(header, kind, &place)?;
        let mut node = NewNode { attr, target: None, xattrs: Vec::new(), contents: None };
        let mut kept = place.name.len();
        let mut stored = None;
        match kind {
            NodeKind::File => {
                let contents = self.contents(header, &place)?;
                kept += contents.runs.len() * size_of::<Run>();
                node.attr.size = contents.size;
                stored = (contents.size > 0).then_some(contents);
            }
            NodeKind::Symlink => {
                let target = self.target(header, &place)?;
                kept += target.len();
                node.attr.size = number(target.len());
                node.target = Some(target);
            }
            _ => self.skip_contents(header, &place)?,
        }
        let is_shared = header.nlink > 1 && kind != NodeKind::Directory;
        let path = path(place.name.clone());
        if is_shared {
            // The table of links keeps the name, too.
            kept = kept.saturating_mul(2);
        }
        self.tally.count(number(kept), &place)?;
        let key = (header.on, header.ino, header.mode);
        if is_shared && let Some(first) = self.links.get(&key).filter(|first| first.target == node.target) {
            let link_contents = stored.map(|stored| LinkContents { size: stored.size, contents: Arc::new(stored) });
            return Ok(Member { path, kind: MemberKind::HardLink(first.path.clone()), link_contents });
        }
        if is_shared {
            self.links.insert(key, First { path: path.clone(), target: node.target.clone() });
        }
        node.contents = stored.map(StoredRuns::shared);
        Ok(Member { path, kind: MemberKind::Node(node), link_contents: None })
    }

    fn contents(&mut self, header: &Header, place: &Place) -> Result<StoredRuns> {
        let size = u64::from(header.size);
        // A name without contents has the sum of those that stand at another name.
        let kept = match header.sum.filter(|_| size > 0) {
            None => self.bytes.keep(size, place, CONTENTS)?,
            Some(found) => {
                let (kept, expected) = self.bytes.keep_summed(size, place, CONTENTS)?;
                if found != expected {
                    let (expected, found) = (u64::from(expected), u64::from(found));
                    return Err(Error::Checksum { member: place.shown(), at: place.at, expected, found });
                }
                kept
            }
        };
        self.skip_padding(place)?;
        Ok(self.bytes.stored(size, kept.runs))
    }

    fn target(&mut self, header: &Header, place: &Place) -> Result<Vec<u8>> {
        let size = u64::from(header.size);
        if size > PATH_BYTES_MAX {
            return Err(place.field("target", "at most 4096 bytes", format!("{size} bytes")));
        }
        let target = self.bytes.take(size, place, "a target")?;
        check_path(&target, "target", place)?;
        self.skip_padding(place)?;
        Ok(target)
    }
}

fn metadata(header: &Header, kind: NodeKind, place: &Place) -> Result<Metadata> {
    let mut attr = plain_metadata(kind, header.mode & 0o7777, Time::new(i64::from(header.mtime), 0));
    (attr.uid, attr.gid) = (header.uid, header.gid);
    if matches!(kind, NodeKind::CharDevice | NodeKind::BlockDevice) {
        let (major, minor) = header.device;
        attr.rdev = device::number(major, minor)
            .ok_or_else(|| place.field("device number", "12 and 20 bits", format!("{major}:{minor}")))?;
    }
    Ok(attr)
}
