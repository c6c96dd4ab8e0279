//! A client that says what a test wants, and decodes the replies; a server of a file system in memory.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nfs::wire::{
    Access, Arguments, Call, Credential, DirOp, How, Mark, Program, Reader, SetAttributes, Stability, Status,
    UserCredential, Writer, mount_procedure,
};
use nfs::{KEY_BYTES, Options, Server, Squash};
use vfs::FileSystem;
use vfs_conformance::MemoryFs;

pub(crate) const UUID: [u8; 16] = *b"the volume's own";

/// A server.
pub(crate) struct Served {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) server: Server,
}

pub(crate) fn options() -> Options {
    Options { path: b"/".to_vec(), uuid: UUID, key: [7; KEY_BYTES], squash: Squash::None, read_only: false }
}

impl Served {
    pub(crate) fn new() -> Self {
        Self::with(Arc::new(MemoryFs::default()), &options())
    }

    pub(crate) fn with(fs: Arc<dyn FileSystem>, options: &Options) -> Self {
        Self { server: Server::new(Arc::clone(&fs), options).unwrap(), fs }
    }

    pub(crate) fn connect_from(&self, address: Option<SocketAddr>) -> Client {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = self.server.clone();
        thread::spawn(move || server.serve(Arc::new(theirs.into()), address));
        ours.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client { stream: ours, xid: 100, user: Some(UserCredential { uid: 0, gid: 0, groups: Vec::new() }) }
    }

    pub(crate) fn connect(&self) -> Client {
        self.connect_from(None)
    }

    /// A client, and the handle of the exported directory.
    pub(crate) fn mounted(&self) -> (Client, Vec<u8>) {
        let mut client = self.connect();
        let root = client.mount("/").unwrap();
        (client, root)
    }
}

pub(crate) struct Client {
    pub(crate) stream: UnixStream,
    pub(crate) xid: u32,
    pub(crate) user: Option<UserCredential>,
}

/// `fattr3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attr {
    pub(crate) kind: u32,
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) device: (u32, u32),
    pub(crate) fsid: u64,
    pub(crate) fileid: u64,
    pub(crate) atime: (u32, u32),
    pub(crate) mtime: (u32, u32),
    pub(crate) ctime: (u32, u32),
}

/// A node of a reply.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) handle: Vec<u8>,
    pub(crate) attr: Attr,
}

/// A name of a listing.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) fileid: u64,
    pub(crate) cookie: u64,
    pub(crate) attr: Option<Attr>,
    pub(crate) handle: Option<Vec<u8>>,
}

/// Attributes before and after: size and mtime, and all.
pub(crate) type Wcc = (Option<(u64, (u32, u32))>, Option<Attr>);

pub(crate) fn time(read: &mut Reader<'_>) -> (u32, u32) {
    (read.u32().unwrap(), read.u32().unwrap())
}

pub(crate) fn attr(read: &mut Reader<'_>) -> Attr {
    let (kind, mode, nlink) = (read.u32().unwrap(), read.u32().unwrap(), read.u32().unwrap());
    let (uid, gid, size, _used) = (read.u32().unwrap(), read.u32().unwrap(), read.u64().unwrap(), read.u64().unwrap());
    let (device, fsid, fileid) = ((read.u32().unwrap(), read.u32().unwrap()), read.u64().unwrap(), read.u64().unwrap());
    let (atime, mtime, ctime) = (time(read), time(read), time(read));
    Attr { kind, mode, nlink, uid, gid, size, device, fsid, fileid, atime, mtime, ctime }
}

pub(crate) fn post_attr(read: &mut Reader<'_>) -> Option<Attr> {
    read.optional(|read| Ok(attr(read))).unwrap()
}

fn post_handle(read: &mut Reader<'_>) -> Option<Vec<u8>> {
    read.optional(|read| Ok(read.opaque(64).unwrap().to_vec())).unwrap()
}

pub(crate) fn wcc(read: &mut Reader<'_>) -> Wcc {
    let before = read.optional(|read| {
        let (size, mtime) = (read.u64()?, time(read));
        time(read);
        Ok((size, mtime))
    });
    (before.unwrap(), post_attr(read))
}

impl Client {
    pub(crate) fn with_user(mut self, uid: u32, gid: u32, groups: &[u32]) -> Self {
        self.user = Some(UserCredential { uid, gid, groups: groups.to_vec() });
        self
    }

    pub(crate) fn send(&mut self, record: &[u8]) {
        let mark = Mark { is_last: true, len: u32::try_from(record.len()).unwrap() };
        self.stream.write_all(&[mark.encode().as_slice(), record].concat()).unwrap();
    }

    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let mark = Mark::decode(mark);
        assert!(mark.is_last);
        let mut record = vec![0; mark.len as usize];
        self.stream.read_exact(&mut record).unwrap();
        record
    }

    pub(crate) fn record(&mut self, program: Program, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let credential = self.user.clone().map_or(Credential::None, Credential::Sys);
        let (program, version) = (program.number(), Program::VERSION);
        Call { xid: self.xid, rpc_version: 2, program, version, procedure, credential, arguments }.encode()
    }

    /// The results of a call.
    pub(crate) fn call(&mut self, program: Program, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let record = self.record(program, procedure, arguments);
        self.send(&record);
        let reply = self.receive();
        let mut head = Reader::new("reply", &reply);
        let expected = [self.xid, 1, 0, 0, 0, 0];
        assert_eq!(expected.map(|_| head.u32().unwrap()), expected);
        head.rest().to_vec()
    }

    /// Status and rest of the results of a procedure of NFS.
    pub(crate) fn nfs(&mut self, arguments: &Arguments<'_>) -> (Status, Vec<u8>) {
        let results = self.call(Program::Nfs, arguments.procedure(), &arguments.encode());
        let (status, rest) = results.split_at(4);
        (Status(u32::from_be_bytes(status.try_into().unwrap())), rest.to_vec())
    }

    pub(crate) fn mount(&mut self, path: &str) -> Result<Vec<u8>, Status> {
        let mut arguments = Writer::default();
        arguments.opaque(path.as_bytes());
        let results = self.call(Program::Mount, mount_procedure::MNT, &arguments.into_bytes());
        let mut read = Reader::new("MNT", &results);
        match read.u32().unwrap() {
            0 => {
                let handle = read.opaque(64).unwrap().to_vec();
                assert_eq!([0; 3].map(|_| read.u32().unwrap()), [2, 1, 0]);
                read.end().unwrap();
                Ok(handle)
            }
            status => Err(Status(status)),
        }
    }

    pub(crate) fn attr(&mut self, node: &[u8]) -> Result<Attr, Status> {
        match self.nfs(&Arguments::GetAttr { node }) {
            (Status::OK, rest) => {
                let mut read = Reader::new("GETATTR", &rest);
                let attr = attr(&mut read);
                read.end().unwrap();
                Ok(attr)
            }
            (status, rest) => {
                assert!(rest.is_empty());
                Err(status)
            }
        }
    }

    pub(crate) fn lookup(&mut self, dir: &[u8], name: &str) -> Result<Found, Status> {
        let (status, rest) = self.nfs(&Arguments::Lookup(DirOp { dir, name: name.as_bytes() }));
        let mut read = Reader::new("LOOKUP", &rest);
        let found = (status == Status::OK).then(|| {
            let handle = read.opaque(64).unwrap().to_vec();
            Found { handle, attr: post_attr(&mut read).unwrap() }
        });
        let _dir = post_attr(&mut read);
        read.end().unwrap();
        found.ok_or(status)
    }

    pub(crate) fn access(&mut self, node: &[u8]) -> Access {
        let (status, rest) = self.nfs(&Arguments::Access { node, wanted: Access::all() });
        assert_eq!(status, Status::OK);
        let mut read = Reader::new("ACCESS", &rest);
        post_attr(&mut read).unwrap();
        Access::from_bits_retain(read.u32().unwrap())
    }

    /// A procedure that makes a node, with the attributes of its directory.
    pub(crate) fn make_wcc(&mut self, arguments: &Arguments<'_>) -> (Result<Found, Status>, Wcc) {
        let (status, rest) = self.nfs(arguments);
        let mut read = Reader::new("CREATE", &rest);
        let found = (status == Status::OK)
            .then(|| Found { handle: post_handle(&mut read).unwrap(), attr: post_attr(&mut read).unwrap() });
        let wcc = wcc(&mut read);
        read.end().unwrap();
        (found.ok_or(status), wcc)
    }

    pub(crate) fn make(&mut self, arguments: &Arguments<'_>) -> Result<Found, Status> {
        self.make_wcc(arguments).0
    }

    pub(crate) fn create(&mut self, dir: &[u8], name: &str, mode: u32) -> Result<Found, Status> {
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let at = DirOp { dir, name: name.as_bytes() };
        self.make(&Arguments::Create { at, how: How::Guarded(attributes) })
    }

    pub(crate) fn mkdir(&mut self, dir: &[u8], name: &str, mode: u32) -> Result<Found, Status> {
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        self.make(&Arguments::MkDir { at: DirOp { dir, name: name.as_bytes() }, attributes })
    }

    /// A procedure whose result is a status.
    pub(crate) fn change(&mut self, arguments: &Arguments<'_>) -> Result<(), Status> {
        match self.nfs(arguments).0 {
            Status::OK => Ok(()),
            status => Err(status),
        }
    }

    pub(crate) fn set(&mut self, node: &[u8], changes: SetAttributes) -> Result<(), Status> {
        self.change(&Arguments::SetAttr { node, changes, guard: None })
    }

    /// Count and verifier of a write.
    pub(crate) fn write(
        &mut self,
        node: &[u8],
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Result<(u32, u64), Status> {
        let (status, rest) = self.nfs(&Arguments::Write { node, offset, stability, data });
        let mut read = Reader::new("WRITE", &rest);
        let _ = wcc(&mut read);
        if status != Status::OK {
            return Err(status);
        }
        let (count, committed, verifier) = (read.u32().unwrap(), read.u32().unwrap(), read.u64().unwrap());
        assert!(committed >= stability.number());
        read.end().unwrap();
        Ok((count, verifier))
    }

    /// The verifier of a commit.
    pub(crate) fn commit(&mut self, node: &[u8]) -> Result<u64, Status> {
        let (status, rest) = self.nfs(&Arguments::Commit { node, offset: 0, count: 0 });
        let mut read = Reader::new("COMMIT", &rest);
        let _ = wcc(&mut read);
        if status == Status::OK { Ok(read.u64().unwrap()) } else { Err(status) }
    }

    /// Data, and whether it is the end.
    pub(crate) fn read(&mut self, node: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), Status> {
        let (status, rest) = self.nfs(&Arguments::Read { node, offset, count });
        let mut read = Reader::new("READ", &rest);
        let _ = post_attr(&mut read);
        if status != Status::OK {
            read.end().unwrap();
            return Err(status);
        }
        let (count, is_end) = (read.u32().unwrap(), read.bool().unwrap());
        let data = read.opaque(1 << 20).unwrap().to_vec();
        assert_eq!(data.len(), count as usize);
        read.end().unwrap();
        Ok((data, is_end))
    }

    /// A part of a listing; with `plus` of READDIRPLUS.
    pub(crate) fn list(
        &mut self,
        dir: &[u8],
        cookie: u64,
        count: u32,
        plus: bool,
    ) -> Result<(Vec<Listed>, bool), Status> {
        let arguments = match plus {
            true => Arguments::ReadDirPlus { dir, cookie, verifier: 0, dir_count: count, max_count: count },
            false => Arguments::ReadDir { dir, cookie, verifier: 0, count },
        };
        let (status, rest) = self.nfs(&arguments);
        let mut read = Reader::new("READDIR", &rest);
        let _ = post_attr(&mut read);
        if status != Status::OK {
            read.end().unwrap();
            return Err(status);
        }
        assert!(rest.len() <= count as usize, "{} {count}", rest.len());
        let _verifier = read.u64().unwrap();
        let mut names = Vec::new();
        while read.bool().unwrap() {
            let fileid = read.u64().unwrap();
            let name = String::from_utf8(read.opaque(255).unwrap().to_vec()).unwrap();
            let cookie = read.u64().unwrap();
            let (attr, handle) = if plus { (post_attr(&mut read), post_handle(&mut read)) } else { (None, None) };
            names.push(Listed { name, fileid, cookie, attr, handle });
        }
        let is_end = read.bool().unwrap();
        read.end().unwrap();
        Ok((names, is_end))
    }

    /// All names of a directory but `.` and `..`, in order.
    pub(crate) fn names(&mut self, dir: &[u8]) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let (more, is_end) = self.list(dir, cookie, 4096, false).unwrap();
            cookie = more.last().map_or(cookie, |last| last.cookie);
            names.extend(more.into_iter().map(|listed| listed.name).filter(|name| name != "." && name != ".."));
            if is_end {
                names.sort();
                return names;
            }
        }
    }

    /// True where the server closes the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read_to_end(&mut Vec::new()) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
