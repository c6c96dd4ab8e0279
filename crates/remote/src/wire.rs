//! Encodes and decodes messages: eight bytes that say how long the rest is, a header, and contents of files behind it.
//! `client` and `serve` call it.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};
use vfs::file_system::{
    AllocateFlags, Attr, CopyRange, Entry, Errno, Extent, ExtentKind, Follow, Handle, KnownNode, NewNode, NodeFlags,
    NodeId, NodeKind, OpenFlags, RenameFlags, Seek, SetAttr, Size, SyncWhat, Time, VolumeStatus, WriteFlags, Written,
    XattrMode,
};
use vfs::{Blame, Error};

use crate::descriptors::{receive_with, send_with};
use crate::subvolume_call::SubvolumeCall;

/// Bytes of the longest header: attributes and their names have 64 KiB at most.
const HEADER_BYTES_MAX: usize = 256 << 10;
/// Bytes of contents that one message carries at most.
pub(crate) const DATA_BYTES_MAX: usize = 4 << 20;
/// Bytes of a message that are taken at once: most are shorter.
const BEGIN_BYTES: usize = 32 << 10;
/// Bytes that a list of names may fill before the rest is left for the next answer.
pub(crate) const LIST_BYTES_MAX: usize = 64 << 10;
/// Extents in one answer.
pub(crate) const EXTENTS_MAX: usize = 2048;

/// The owner of a new file, as the client gives it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// As [`vfs::file_system::WholeNode`]; the contents are behind the header.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Whole<'a> {
    pub(crate) kind: NodeKind,
    pub(crate) permissions: u32,
    pub(crate) owner: Owner,
    /// Access, modification, change, birth.
    pub(crate) times: [Option<Time>; 4],
    pub(crate) rdev: u32,
    #[serde(borrow)]
    pub(crate) target: &'a [u8],
    #[serde(borrow)]
    pub(crate) xattrs: Vec<(&'a [u8], &'a [u8])>,
}

/// A node of several.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Named<'a> {
    #[serde(borrow)]
    pub(crate) name: &'a [u8],
    #[serde(borrow)]
    pub(crate) node: Whole<'a>,
    pub(crate) len: u32,
}

/// As [`vfs::file_system::EncodedData`]; the contents are behind the header.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Encoded<'a> {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) extent_len: u64,
    pub(crate) extent_offset: u64,
    pub(crate) compression: &'a str,
}

/// References and handles that a client releases, sent with the next request.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Gone {
    Node(NodeId, u64),
    Opening(NodeId, Handle),
}

/// A call of the file system.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    /// The descriptor that comes with it is one more stream of this session.
    Join,
    /// A job of a format; the descriptor that comes with it is read or written by it.
    Job {
        words: Vec<String>,
    },
    Lookup {
        parent: NodeId,
        name: &'a [u8],
    },
    Resolve {
        path: &'a [u8],
        follow: Follow,
    },
    AttrAt {
        path: &'a [u8],
        follow: Follow,
    },
    KnownAt {
        path: &'a [u8],
        follow: Follow,
        data_bytes_max: u32,
    },
    Attr {
        node: NodeId,
    },
    SetAttr {
        owner: Owner,
        node: NodeId,
        changes: SetAttr,
    },
    ReadLink {
        node: NodeId,
    },
    Create {
        owner: Owner,
        parent: NodeId,
        name: &'a [u8],
        #[serde(borrow)]
        new: NewNode<'a>,
    },
    CreateWhole {
        parent: NodeId,
        name: &'a [u8],
        #[serde(borrow)]
        node: Whole<'a>,
    },
    KnownMany {
        #[serde(borrow)]
        paths: Vec<&'a [u8]>,
        follow: Follow,
        data_bytes_max: u32,
    },
    /// The contents of all of them are behind the header, as many bytes of each as is said.
    CreateMany {
        parent: NodeId,
        #[serde(borrow)]
        nodes: Vec<Named<'a>>,
    },
    CreateUnnamed {
        owner: Owner,
        parent: NodeId,
        #[serde(borrow)]
        new: NewNode<'a>,
        flags: OpenFlags,
    },
    Link {
        node: NodeId,
        parent: NodeId,
        name: &'a [u8],
    },
    Unlink {
        parent: NodeId,
        name: &'a [u8],
    },
    RemoveDir {
        parent: NodeId,
        name: &'a [u8],
    },
    Rename {
        owner: Owner,
        from: (NodeId, &'a [u8]),
        to: (NodeId, &'a [u8]),
        flags: RenameFlags,
    },
    Open {
        owner: Owner,
        node: NodeId,
        flags: OpenFlags,
    },
    Read {
        node: NodeId,
        handle: Handle,
        offset: u64,
        len: u32,
    },
    Write {
        node: NodeId,
        handle: Handle,
        offset: u64,
        flags: WriteFlags,
    },
    WriteEncoded {
        node: NodeId,
        #[serde(borrow)]
        encoded: Encoded<'a>,
    },
    SyncFile {
        node: NodeId,
        handle: Handle,
        what: SyncWhat,
    },
    SyncFs,
    Allocate {
        node: NodeId,
        flags: AllocateFlags,
        offset: u64,
        len: u64,
    },
    Seek {
        node: NodeId,
        what: Seek,
        offset: u64,
    },
    Copy {
        how: Copy,
        range: CopyRange,
    },
    Defragment {
        node: NodeId,
        range: Range<u64>,
        extent_bytes: u64,
        compression: Option<&'a str>,
    },
    Trim {
        range: Range<u64>,
        bytes_min: u64,
    },
    Resize {
        size: Size,
    },
    ReadDir {
        node: NodeId,
        from: u64,
        with_nodes: bool,
    },
    GetXattr {
        node: NodeId,
        name: &'a [u8],
    },
    ListXattrs {
        node: NodeId,
    },
    SetXattr {
        node: NodeId,
        name: &'a [u8],
        value: &'a [u8],
        mode: XattrMode,
        clear_set_group: bool,
    },
    RemoveXattr {
        node: NodeId,
        name: &'a [u8],
    },
    IsOrder {
        name: &'a [u8],
    },
    Order {
        name: &'a [u8],
        value: &'a [u8],
    },
    Flags {
        node: NodeId,
    },
    SetFlags {
        owner: Owner,
        node: NodeId,
        flags: NodeFlags,
    },
    FlagNames {
        node: NodeId,
    },
    Extents {
        node: NodeId,
        offset: u64,
    },
    Status,
    HasSubvolumes,
    Subvolume(#[serde(borrow)] SubvolumeCall<'a>),
}

/// Three ways to copy within a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Copy {
    Range,
    Reflink,
    Dedupe,
}

/// A request with the releases before it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call<'a> {
    pub(crate) gone: Vec<Gone>,
    #[serde(borrow)]
    pub(crate) request: Request<'a>,
}

/// A name of a directory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: u64,
    pub(crate) kind: NodeKind,
    pub(crate) next: u64,
    /// Where it was asked for, and counts as a reference then.
    pub(crate) node: Option<Entry>,
}

/// An extent; the compression is a word.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) kind: ExtentKind,
    pub(crate) logical: Option<u64>,
    pub(crate) disk_len: u64,
    pub(crate) compression: Option<String>,
}

/// Names of compressions that extents may have.
const COMPRESSIONS: [&str; 3] = ["zlib", "lzo", "zstd"];

impl From<Placed> for Extent {
    fn from(placed: Placed) -> Self {
        let known = |name: String| COMPRESSIONS.into_iter().find(|known| *known == name).unwrap_or("compressed");
        Self {
            offset: placed.offset,
            len: placed.len,
            kind: placed.kind,
            logical: placed.logical,
            disk_len: placed.disk_len,
            compression: placed.compression.map(known),
        }
    }
}

impl From<&Extent> for Placed {
    fn from(extent: &Extent) -> Self {
        let Extent { offset, len, kind, logical, disk_len, compression } = *extent;
        Self { offset, len, kind, logical, disk_len, compression: compression.map(str::to_owned) }
    }
}

/// The result of a call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    /// Data behind the header.
    Data,
    Entry(Entry),
    Attr(Attr),
    /// The contents are behind the header, where there are any.
    Known {
        node: KnownNode,
        has_data: bool,
    },
    Bytes(Vec<u8>),
    Text(String),
    /// Of a job: an exit status, and why.
    JobFailed {
        status: u8,
        text: String,
    },
    Opened(Handle),
    Unnamed(Entry, Handle),
    Count(u64),
    Is(bool),
    Written(Written),
    Flags(NodeFlags),
    Status {
        status: VolumeStatus,
        is_read_only: bool,
    },
    Names(Vec<Vec<u8>>),
    Listed {
        names: Vec<Listed>,
        is_end: bool,
    },
    Extents(Vec<Placed>),
    /// One for each of several.
    Many(Vec<Result<Attr, Refusal>>),
    /// One for each of several, and how long its contents are where they come along: they are behind the header, one
    /// behind the other.
    KnownMany(Vec<Result<(KnownNode, Option<u32>), Refusal>>),
    Failed(Refusal),
}

/// A failure, as it is told to the other process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Refusal {
    errno: Errno,
    blame: Blame,
    /// Text of the format.
    text: Option<String>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        use std::error::Error as _;
        let text = error.source().map(ToString::to_string);
        Self { errno: error.errno(), blame: error.blame(), text }
    }
}

impl From<Refusal> for Error {
    fn from(Refusal { errno, blame, text }: Refusal) -> Self {
        match text {
            Some(text) => Self::new(errno, blame, Told(text)),
            None => errno.into(),
        }
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

/// A failure as the other process told it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Told(pub(crate) String);

/// One end of a stream of messages.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: UnixStream,
    out: Vec<u8>,
    begin: Vec<u8>,
}

/// The last received message.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) header: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) descriptor: Option<OwnedFd>,
}

impl Wire {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, out: Vec::new(), begin: vec![0; BEGIN_BYTES] }
    }

    /// Sends a message, with a descriptor if it needs one.
    pub(crate) fn send<T: Serialize>(
        &mut self,
        header: &T,
        data: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        out.extend([0; 8]);
        self.out = postcard::to_extend(header, out).map_err(io::Error::other)?;
        let lengths = [self.out.len().saturating_sub(8), data.len()];
        if lengths.iter().zip([HEADER_BYTES_MAX, DATA_BYTES_MAX]).any(|(len, max)| *len > max) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (place, len) in self.out.chunks_exact_mut(4).zip(lengths) {
            place.copy_from_slice(&u32::try_from(len).map_err(io::Error::other)?.to_le_bytes());
        }
        if let Some(descriptor) = descriptor {
            send_with(&self.stream, &self.out, descriptor)?;
            return self.stream.write_all(data);
        }
        let mut parts = [IoSlice::new(&self.out), IoSlice::new(data)];
        let mut left = parts.as_mut_slice();
        // An empty part at the end is left out.
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match self.stream.write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for a message; `None` when the other side is gone. Contents go to `into` where that is given: so many
    /// bytes of it.
    pub(crate) fn receive(&mut self, inbox: &mut Inbox, into: Option<&mut [u8]>) -> io::Result<Option<usize>> {
        // Messages alternate, so that the received bytes belong to one.
        let Some((count, descriptor)) = receive_with(&self.stream, &mut self.begin)? else { return Ok(None) };
        inbox.descriptor = descriptor;
        let mut come = Come { stream: &self.stream, begun: self.begin.get(..count).unwrap_or_default() };
        let mut lengths = [0; 8];
        come.fill(&mut lengths)?;
        let [header_len, data_len] = lengths_of(lengths);
        if header_len > HEADER_BYTES_MAX || data_len > DATA_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        inbox.header.resize(header_len, 0);
        come.fill(&mut inbox.header)?;
        match into {
            Some(into) => come.fill(into.get_mut(..data_len).ok_or(io::ErrorKind::InvalidData)?)?,
            None => {
                inbox.data.resize(data_len, 0);
                come.fill(&mut inbox.data)?;
            }
        }
        if come.begun.is_empty() { Ok(Some(data_len)) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

/// A message that is coming.
struct Come<'a> {
    stream: &'a UnixStream,
    /// Bytes received with its beginning.
    begun: &'a [u8],
}

impl Come<'_> {
    fn fill(&mut self, place: &mut [u8]) -> io::Result<()> {
        let (now, later) = self.begun.split_at(self.begun.len().min(place.len()));
        let (first, rest) = place.split_at_mut(now.len());
        first.copy_from_slice(now);
        self.begun = later;
        self.stream.read_exact(rest)
    }
}

fn lengths_of(bytes: [u8; 8]) -> [usize; 2] {
    let [a, b, c, d, e, f, g, h] = bytes;
    let len = |bytes| usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX);
    [len([a, b, c, d]), len([e, f, g, h])]
}
