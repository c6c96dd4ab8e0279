//! Runs the conformance suite through a socket, as root, and tests which requests of other users are refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use access::{Permitted, User};
use parking_lot::Mutex;
use remote::{Host, Remote, Watch, receive_hello};
use vfs::file_system::{
    AllocateFlags, Caller, CopyRange, Errno, Follow, NewNode, NodeId, NodeKind, OpenFlags, SetAttr, SetTime, WholeNode,
    XattrMode,
};
use vfs::{FileOptions, FileSystem, Volume};
use vfs_conformance::MemoryFs;

/// Records notifications to the kernel.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Watch for Heard {
    fn name(&self, _parent: NodeId, name: &[u8]) {
        self.0.lock().push(format!("name {}", String::from_utf8_lossy(name)));
    }

    fn attributes(&self, _node: NodeId) {
        self.0.lock().push("attributes".to_owned());
    }

    fn contents(&self, _node: NodeId) {
        self.0.lock().push("contents".to_owned());
    }
}

struct Served {
    fs: Arc<dyn FileSystem>,
    host: Arc<Host>,
    heard: Arc<Heard>,
}

impl Served {
    fn new() -> Self {
        let heard = Arc::new(Heard::default());
        let watch: Arc<dyn Watch> = Arc::<Heard>::clone(&heard);
        Self { fs: Arc::new(MemoryFs::default()), host: Host::new(watch, None), heard }
    }

    fn connect(&self, who: User, base: NodeId) -> Arc<dyn FileSystem> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let root = std::fs::File::open("/").unwrap();
        let permitted = Permitted::new(Arc::clone(&self.fs), who.clone(), base, false);
        let host = Arc::clone(&self.host);
        let greeter = std::thread::spawn(move || {
            receive_hello(&theirs).unwrap();
            host.serve(theirs, permitted, who.uid).unwrap();
        });
        let remote = Remote::new(ours, root).unwrap();
        greeter.join().unwrap();
        Arc::new(remote)
    }

    fn root(&self) -> Volume {
        Volume::new(self.connect(user(0, &[]), NodeId::ROOT))
    }

    fn of(&self, uid: u32, groups: &[u32]) -> Volume {
        Volume::new(self.connect(user(uid, groups), NodeId::ROOT))
    }
}

fn user(uid: u32, groups: &[u32]) -> User {
    User { uid, gid: uid, groups: groups.to_vec(), serves: false }
}

#[track_caller]
fn refused<T>(result: vfs::Result<T>, errno: Errno) {
    match result {
        Ok(_) => panic!("allowed, expected {errno:?}"),
        Err(error) => assert_eq!(error.errno(), errno, "{error}"),
    }
}

#[test]
fn a_file_system_behind_a_socket_conforms() {
    // The servers live as long as their streams.
    let report = vfs_conformance::run(&|| Served::new().connect(user(0, &[]), NodeId::ROOT));
    // A client cannot use the number of a node again after it has released the node.
    let failed: Vec<&str> = report.failures().iter().map(|failure| failure.case).collect();
    assert_eq!(failed, ["names::dot_finds_any_node_again", "unlinked::forgotten_with_a_name"], "{report}");
    assert!(report.case_count() >= 300, "{report}");
}

#[test]
fn threads_share_a_session() {
    let served = Served::new();
    let volume = served.root();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let volume = volume.clone();
            scope.spawn(move || {
                let dir = format!("d{thread}");
                volume.create_dir(&dir).unwrap();
                for index in 0..200 {
                    let path = format!("{dir}/{index}");
                    volume.write(&path, format!("{thread} {index}")).unwrap();
                    assert_eq!(volume.read(&path).unwrap(), format!("{thread} {index}").as_bytes());
                }
            });
        }
    });
    let names = volume.read_dir("d3").unwrap().count();
    assert_eq!(names, 200);
    // Larger than the largest message.
    let large: Vec<u8> = (0..9 << 20).map(|index: u32| index.to_le_bytes()[1]).collect();
    volume.write("large", &large).unwrap();
    assert_eq!(volume.read("large").unwrap(), large);
    drop(volume);
    served.host.close();
    refused(Volume::new(Arc::clone(&served.fs)).read("none"), Errno::ENOENT);
}

#[test]
fn a_closed_host_answers_no_request() {
    let served = Served::new();
    let volume = served.root();
    volume.create_dir("d").unwrap();
    served.host.close();
    refused(volume.create_dir("e"), Errno::EIO);
    assert!(!Volume::new(Arc::clone(&served.fs)).exists("e").unwrap());
}

#[test]
fn requests_without_permission_are_refused() {
    let served = Served::new();
    let root = served.root();
    root.create_dir("closed").unwrap();
    root.write("closed/file", "secret").unwrap();
    root.set_permissions("closed", 0o700).unwrap();
    root.write("readable", "text").unwrap();
    root.set_permissions("readable", 0o644).unwrap();
    root.create_dir("team").unwrap();
    root.set_owner("team", Some(0), Some(50)).unwrap();
    root.set_permissions("team", 0o770).unwrap();
    root.create_dir("tmp").unwrap();
    root.set_permissions("tmp", 0o1777).unwrap();
    root.write("tmp/of-root", "").unwrap();

    let user = served.of(1000, &[50]);
    let stranger = served.of(1001, &[]);
    refused(user.read("closed/file"), Errno::EACCES);
    refused(user.metadata("closed/file"), Errno::EACCES);
    refused(user.read_dir("closed"), Errno::EACCES);
    assert_eq!(user.read("readable").unwrap(), b"text");
    refused(user.write("readable", "other"), Errno::EACCES);
    refused(user.create_dir("new"), Errno::EACCES);
    refused(user.remove_file("readable"), Errno::EACCES);
    refused(user.set_permissions("readable", 0o777), Errno::EPERM);
    refused(user.set_owner("readable", Some(1000), None), Errno::EPERM);
    refused(user.hard_link("closed/file", "tmp/stolen"), Errno::EACCES);
    refused(user.rename("tmp/of-root", "tmp/mine"), Errno::EPERM);
    refused(user.remove_file("tmp/of-root"), Errno::EPERM);

    // New files belong to their maker, whatever owner is requested.
    user.clone().owner(0, 0).write("team/made", "x").unwrap();
    let made = root.metadata("team/made").unwrap();
    assert_eq!((made.uid, made.gid), (1000, 1000));
    refused(stranger.metadata("team/made"), Errno::EACCES);
    refused(user.mknod("tmp/device", NodeKind::BlockDevice, 0o666, 1), Errno::EPERM);
    let of_root = WholeNode { permissions: 0o4755, ..WholeNode::default() };
    refused(user.create_node("tmp/program", &of_root), Errno::EPERM);
    let own = WholeNode { uid: 1000, gid: 50, permissions: 0o644, data: b"whole", ..WholeNode::default() };
    user.create_node("tmp/whole", &own).unwrap();
    assert_eq!(stranger.read("tmp/whole").unwrap(), b"whole");
    refused(stranger.remove_file("tmp/whole"), Errno::EPERM);
    refused(user.set_xattr("tmp/whole", "trusted.x", b"1", XattrMode::Either), Errno::EPERM);
    refused(user.set_xattr("tmp/whole", "security.capability", b"1", XattrMode::Either), Errno::EPERM);
    user.set_xattr("tmp/whole", "user.x", b"1", XattrMode::Either).unwrap();
    refused(stranger.set_xattr("tmp/whole", "user.x", b"2", XattrMode::Either), Errno::EACCES);
    root.set_xattr("tmp/whole", "trusted.x", b"1", XattrMode::Either).unwrap();
    assert_eq!(user.list_xattrs("tmp/whole").unwrap(), ["user.x"]);
    assert_eq!(user.get_xattr("tmp/whole", "trusted.x").unwrap(), None);

    // A write clears the set-user-ID and set-group-ID bits.
    root.write("tmp/suid", "").unwrap();
    root.set_permissions("tmp/suid", 0o6777).unwrap();
    let file = FileOptions::new().write(true).open(&stranger, "tmp/suid").unwrap();
    file.write_at(b"changed", 0).unwrap();
    assert_eq!(root.metadata("tmp/suid").unwrap().permissions, 0o777);
}

/// A program must not run with its owner's rights after another user has changed its contents.
#[test]
fn new_contents_take_privileges_away() {
    let served = Served::new();
    let root = served.root();
    root.write("source", vec![1; 8192]).unwrap();
    root.set_permissions("source", 0o644).unwrap();
    let stranger = served.of(1001, &[]);
    let fs = stranger.file_system();
    let node = |path: &str| fs.resolve(path.as_bytes(), Follow::Last).unwrap().node;
    let source = node("source");
    let range = |target| CopyRange { source, source_offset: 0, target, target_offset: 0, len: 4096 };
    let changes: [(&str, &dyn Fn(NodeId)); 4] = [
        ("allocate", &|node| drop(fs.allocate(node, AllocateFlags::empty(), 0, 4096))),
        ("copy", &|node| drop(fs.copy_range(&range(node)))),
        ("reflink", &|node| drop(fs.reflink(&range(node)))),
        ("empty", &|node| drop(fs.open(&Caller::default(), node, OpenFlags::WRITE | OpenFlags::TRUNCATE))),
    ];
    for (name, change) in changes {
        root.write(name, "#!").unwrap();
        root.set_permissions(name, 0o6777).unwrap();
        let node = node(name);
        served.heard.0.lock().clear();
        change(node);
        assert_eq!(root.metadata(name).unwrap().permissions, 0o777, "{name}");
        // The kernel was told first, before it could read the new contents.
        assert_eq!(served.heard.0.lock().first().map(String::as_str), Some("attributes"), "{name}");
    }
    // A refused write does not clear the bits.
    root.write("closed", "#!").unwrap();
    root.set_permissions("closed", 0o6755).unwrap();
    let closed = node("closed");
    refused(fs.copy_range(&range(closed)), Errno::EACCES);
    refused(fs.allocate(closed, AllocateFlags::empty(), 0, 4096), Errno::EACCES);
    assert_eq!(root.metadata("closed").unwrap().permissions, 0o6755);
}

#[test]
fn a_directory_gives_its_group_to_programs_of_members_alone() {
    let served = Served::new();
    let root = served.root();
    root.create_dir("team").unwrap();
    root.set_owner("team", Some(0), Some(50)).unwrap();
    root.set_permissions("team", 0o2777).unwrap();
    let made = |user: &Volume, name: &str, permissions| {
        let fs = user.file_system();
        let dir = fs.resolve(b"team", Follow::Last).unwrap().node;
        let new = NewNode { permissions, ..NewNode::default() };
        let attr = fs.create(&Caller::default(), dir, name.as_bytes(), &new).unwrap().attr;
        (attr.permissions, attr.gid)
    };
    let (member, stranger) = (served.of(1000, &[50]), served.of(1001, &[]));
    assert_eq!(made(&member, "a", 0o2755), (0o2755, 50));
    assert_eq!(made(&stranger, "b", 0o2755), (0o755, 50));
    assert_eq!(made(&stranger, "c", 0o6777), (0o4777, 50));
    refused(stranger.set_permissions("team/a", 0o2755), Errno::EPERM);
    let fs = stranger.file_system();
    let dir = fs.resolve(b"team", Follow::Last).unwrap().node;
    let new = NewNode { permissions: 0o2755, ..NewNode::default() };
    if let Ok((unnamed, _)) = fs.create_unnamed(&Caller::default(), dir, &new, OpenFlags::WRITE) {
        assert_eq!(unnamed.attr.permissions, 0o755);
    }
}

#[test]
fn only_the_owner_sets_times() {
    let served = Served::new();
    let root = served.root();
    root.write("file", "").unwrap();
    root.set_permissions("file", 0o666).unwrap();
    let before = root.metadata("file").unwrap();
    let stranger = served.of(1001, &[]);
    let fs = stranger.file_system();
    let node = fs.resolve(b"file", Follow::Last).unwrap().node;
    let set = |changes: SetAttr| fs.set_attr(&Caller::default(), node, &changes);
    let clears = SetAttr { clear_privileges: true, ..SetAttr::default() };
    for nothing in [SetAttr::default(), clears] {
        set(nothing).unwrap();
    }
    assert_eq!(root.metadata("file").unwrap(), before);
    let now = Some(SetTime::Now);
    refused(set(SetAttr { mtime: now, ..SetAttr::default() }), Errno::EPERM);
    refused(set(SetAttr { atime: Some(SetTime::To(before.atime)), mtime: now, ..SetAttr::default() }), Errno::EPERM);
    set(SetAttr { atime: now, mtime: now, ..SetAttr::default() }).unwrap();
}

/// An access control list with entries for a named user and a named group.
#[test]
fn access_control_lists_decide() {
    let served = Served::new();
    let root = served.root();
    root.write("file", "text").unwrap();
    root.set_permissions("file", 0o600).unwrap();
    // Owner rw-, user 1000 r--, owning group ---, group 60 rw-, mask r--, others ---.
    let entry = |tag: u16, bits: u16, id: u32| {
        [tag.to_le_bytes().as_slice(), bits.to_le_bytes().as_slice(), id.to_le_bytes().as_slice()].concat()
    };
    let none = u32::MAX;
    let list = [
        2_u32.to_le_bytes().to_vec(),
        entry(0x01, 6, none),
        entry(0x02, 4, 1000),
        entry(0x04, 0, none),
        entry(0x08, 6, 60),
        entry(0x10, 4, none),
        entry(0x20, 0, none),
    ];
    root.set_xattr("file", "system.posix_acl_access", list.concat(), XattrMode::Either).unwrap();
    assert_eq!(served.of(1000, &[]).read("file").unwrap(), b"text");
    assert_eq!(served.of(1002, &[60]).read("file").unwrap(), b"text");
    refused(served.of(1002, &[61]).read("file"), Errno::EACCES);
    refused(served.of(1002, &[60]).write("file", "x"), Errno::EACCES);
    refused(served.of(1000, &[60]).write("file", "x"), Errno::EACCES);
}

#[test]
fn nothing_above_the_first_directory_is_reached() {
    let served = Served::new();
    let whole = served.root();
    whole.create_dir_all("a/b").unwrap();
    whole.write("a/outside", "x").unwrap();
    whole.symlink("/a/outside", "a/b/absolute").unwrap();
    whole.symlink("../outside", "a/b/relative").unwrap();
    let base = served.fs.resolve(b"/a/b", vfs::file_system::Follow::Last).unwrap();
    let inner = Volume::new(served.connect(user(0, &[]), base.node));
    refused(inner.read("../outside"), Errno::ENOENT);
    refused(inner.read("absolute"), Errno::ENOENT);
    refused(inner.read("relative"), Errno::ENOENT);
    inner.write("new", "y").unwrap();
    assert_eq!(whole.read("a/b/new").unwrap(), b"y");
    // A client cannot use the number of a node that it did not get from the server.
    let outside = served.fs.resolve(b"/a/outside", vfs::file_system::Follow::Last).unwrap();
    refused(inner.file_system().attr(outside.node), Errno::ESTALE);
    let changes = SetAttr { permissions: Some(0), ..SetAttr::default() };
    refused(inner.file_system().set_attr(&Caller::default(), outside.node, &changes), Errno::ESTALE);
}

#[test]
fn the_kernel_hears_of_each_change() {
    let served = Served::new();
    let volume = served.root();
    let heard = || std::mem::take(&mut *served.heard.0.lock());
    volume.create_dir("d").unwrap();
    assert_eq!(heard(), ["name d"]);
    volume.write("d/f", "text").unwrap();
    assert_eq!(heard(), ["name f", "contents"]);
    volume.hard_link("d/f", "g").unwrap();
    assert_eq!(heard(), ["name g", "attributes"]);
    volume.remove_file("g").unwrap();
    assert_eq!(heard(), ["attributes", "name g"]);
    volume.rename("d/f", "h").unwrap();
    assert_eq!(heard(), ["name f", "name h"]);
    volume.set_permissions("h", 0o600).unwrap();
    assert_eq!(heard(), ["attributes"]);
    FileOptions::new().write(true).truncate(true).open(&volume, "h").unwrap();
    assert!(heard().contains(&"contents".to_owned()));
}

#[test]
fn a_client_that_makes_no_sense_loses_its_stream_alone() {
    use std::io::{Read as _, Write as _};
    let served = Served::new();
    let volume = served.root();
    for message in [
        [0xff; 16].as_slice(),
        // A header of one byte that is not the number of a request.
        &[1, 0, 0, 0, 0, 0, 0, 0, 0xff],
        // A header that ends too early.
        &[2, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        // A list of releases that claims to be endless.
        &[6, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0],
    ] {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let permitted = Permitted::new(Arc::clone(&served.fs), user(0, &[]), NodeId::ROOT, false);
        served.host.serve(theirs, permitted, 0).unwrap();
        ours.write_all(message).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // The server may close with unread bytes: the client then gets a reset instead of the end.
        let _ = ours.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
    volume.write("still", "here").unwrap();
    assert_eq!(volume.read("still").unwrap(), b"here");
}

/// Sends a request for a further stream with this descriptor, and returns the kind of answer.
fn join(ours: &UnixStream, other: std::os::fd::BorrowedFd<'_>) -> u8 {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use std::io::Read as _;
    let message = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let others = [other];
    assert!(control.push(SendAncillaryMessage::ScmRights(&others)));
    let parts = [std::io::IoSlice::new(&message)];
    rustix::net::sendmsg(ours, &parts, &mut control, SendFlags::empty()).unwrap();
    let mut answer = [0; 9];
    (&*ours).read_exact(&mut answer).unwrap();
    let [.., kind] = answer;
    let mut rest = vec![0; usize::from(answer[0]) - 1];
    (&*ours).read_exact(&mut rest).unwrap();
    kind
}

/// With a descriptor that cannot be shut down, closing the mount would wait for it.
#[test]
fn only_stream_sockets_are_accepted_as_streams() {
    use rustix::net::{AddressFamily, SocketType, socket};
    use std::os::fd::AsFd as _;
    const DONE: u8 = 0;
    let served = Served::new();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let permitted = Permitted::new(Arc::clone(&served.fs), user(1000, &[]), NodeId::ROOT, false);
    served.host.serve(theirs, permitted, 1000).unwrap();
    let (_mine, stream) = UnixStream::pair().unwrap();
    assert_eq!(join(&ours, stream.as_fd()), DONE);
    let (_mine, datagrams) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let netlink = socket(AddressFamily::NETLINK, SocketType::RAW, None).unwrap();
    let file = std::fs::File::open("/").unwrap();
    for other in [datagrams.as_fd(), netlink.as_fd(), file.as_fd()] {
        assert_ne!(join(&ours, other), DONE);
    }
    let begun = std::time::Instant::now();
    served.host.close();
    assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn some_streams_are_kept_for_root() {
    let served = Served::new();
    let serve = |uid: u32| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let permitted = Permitted::new(Arc::clone(&served.fs), user(uid, &[]), NodeId::ROOT, false);
        served.host.serve(theirs, permitted, uid).map(|()| ours)
    };
    let mut open: Vec<UnixStream> = (0..64).map(|index| serve(1000 + index % 2).unwrap()).collect();
    assert!(serve(1000).is_err() && serve(1002).is_err());
    open.extend((64..remote::STREAMS_MAX).map(|_| serve(0).unwrap()));
    assert!(serve(0).is_err());
    drop(open);
    served.host.close();
}
