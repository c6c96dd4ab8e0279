//! Procedures on names and attributes.

use nfs::wire::{
    Access, Arguments, DirOp, How, MountArguments, NfsTime, Program, Reader, SetAttributes, Stability, Status,
    TimeChange, mount_procedure,
};
use vfs::file_system::NodeKind;

use crate::client::{Served, post_attr, wcc};

fn at<'a>(dir: &'a [u8], name: &'a str) -> DirOp<'a> {
    DirOp { dir, name: name.as_bytes() }
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

#[test]
fn nodes_of_every_kind_are_made_found_and_removed() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    assert!(client.call(Program::Nfs, 0, b"").is_empty());
    let file = client.create(&root, "file", 0o640).unwrap();
    assert_eq!((file.attr.kind, file.attr.mode, file.attr.nlink, file.attr.size), (1, 0o640, 1, 0));
    let dir = client.mkdir(&root, "dir", 0o750).unwrap();
    assert_eq!((dir.attr.kind, dir.attr.mode), (2, 0o750));
    let link =
        client.make(&Arguments::SymLink { at: at(&dir.handle, "link"), attributes: mode(0), target: b"../file" });
    let link = link.unwrap();
    assert_eq!(link.attr.kind, 5);
    let (status, target) = client.nfs(&Arguments::ReadLink { node: &link.handle });
    let mut read = Reader::new("READLINK", &target);
    post_attr(&mut read).unwrap();
    assert_eq!((status, read.opaque(100).unwrap()), (Status::OK, b"../file".as_slice()));
    let device = (4_u32, 0x12_345_u32);
    for (name, kind, device, expected) in [
        ("block", NodeKind::BlockDevice, device, 3),
        ("char", NodeKind::CharDevice, device, 4),
        ("socket", NodeKind::Socket, (0, 0), 6),
        ("fifo", NodeKind::Fifo, (0, 0), 7),
    ] {
        let arguments = Arguments::MkNod { at: at(&root, name), kind: Some(kind), attributes: mode(0o600), device };
        let made = client.make(&arguments).unwrap();
        assert_eq!((made.attr.kind, made.attr.device, made.attr.mode), (expected, device, 0o600));
        assert_eq!(client.lookup(&root, name).unwrap().attr, made.attr);
    }
    let wrong = Arguments::MkNod { at: at(&root, "x"), kind: None, attributes: mode(0), device: (0, 0) };
    assert_eq!(client.make(&wrong).unwrap_err(), Status::BADTYPE);
    assert_eq!(client.lookup(&dir.handle, "..").unwrap().handle, root);
    assert_eq!(client.lookup(&root, "..").unwrap().handle, root);
    assert_eq!(client.lookup(&root, ".").unwrap().handle, root);
    assert_eq!(client.names(&root), ["block", "char", "dir", "fifo", "file", "socket"]);

    assert_eq!(client.change(&Arguments::RmDir(at(&root, "dir"))), Err(Status::NOTEMPTY));
    assert_eq!(client.change(&Arguments::Remove(at(&root, "dir"))), Err(Status::ISDIR));
    assert_eq!(client.change(&Arguments::RmDir(at(&root, "file"))), Err(Status::NOTDIR));
    client.change(&Arguments::Remove(at(&dir.handle, "link"))).unwrap();
    client.change(&Arguments::RmDir(at(&root, "dir"))).unwrap();
    client.change(&Arguments::Remove(at(&root, "file"))).unwrap();
    assert_eq!(client.attr(&file.handle), Err(Status::STALE));
    assert_eq!(client.attr(&dir.handle), Err(Status::STALE));
    assert_eq!(client.lookup(&root, "file").unwrap_err(), Status::NOENT);
}

#[test]
fn creation_takes_a_file_that_exists_or_refuses_as_it_is_told() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let create = |how| Arguments::Create { at: DirOp { dir: &root, name: b"file" }, how };
    let first = client.make(&create(How::Unchecked(mode(0o600)))).unwrap();
    client.write(&first.handle, 0, b"contents", Stability::FileSync).unwrap();
    assert_eq!(client.make(&create(How::Guarded(mode(0o600)))).unwrap_err(), Status::EXIST);
    let again = client.make(&create(How::Unchecked(mode(0o777)))).unwrap();
    assert_eq!((again.handle.clone(), again.attr.mode, again.attr.size), (first.handle.clone(), 0o600, 8));
    let emptied = SetAttributes { size: Some(0), ..mode(0) };
    assert_eq!(client.make(&create(How::Unchecked(emptied))).unwrap().attr.size, 0);
    assert_eq!(client.make(&create(How::Exclusive(*b"verifier"))).unwrap_err(), Status::EXIST);
    client.mkdir(&root, "dir", 0o700).unwrap();
    let over = Arguments::Create { at: at(&root, "dir"), how: How::Unchecked(mode(0)) };
    assert_eq!(client.make(&over).unwrap_err(), Status::EXIST);
}

#[test]
fn an_exclusive_creation_that_is_repeated_finds_its_file() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let create = |verifier: &[u8; 8]| Arguments::Create { at: at(&root, "lock"), how: How::Exclusive(*verifier) };
    let made = client.make(&create(b"\xffirst 11")).unwrap();
    // As a client does whose server was started again in between.
    let served = Served::with(served.fs, &crate::client::options());
    let mut client = served.connect();
    assert_eq!(client.make(&create(b"\xffirst 11")).unwrap().handle, made.handle);
    assert_eq!(client.make(&create(b"\xffirst 12")).unwrap_err(), Status::EXIST);
    let now = SetAttributes { atime: TimeChange::Now, mtime: TimeChange::Now, ..mode(0o644) };
    client.set(&made.handle, now).unwrap();
    assert_eq!(client.make(&create(b"\xffirst 11")).unwrap_err(), Status::EXIST);
}

#[test]
fn names_move_and_multiply() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let dir = client.mkdir(&root, "dir", 0o700).unwrap().handle;
    let file = client.create(&root, "a", 0o600).unwrap().handle;
    let other = client.create(&dir, "b", 0o600).unwrap().handle;
    let rename = |client: &mut crate::client::Client, from, to| client.change(&Arguments::Rename { from, to });
    rename(&mut client, at(&root, "a"), at(&dir, "b")).unwrap();
    assert_eq!(client.lookup(&dir, "b").unwrap().handle, file);
    assert_eq!(client.attr(&other), Err(Status::STALE), "it was replaced");
    rename(&mut client, at(&dir, "b"), at(&dir, "c")).unwrap();
    assert_eq!(rename(&mut client, at(&dir, "b"), at(&dir, "d")), Err(Status::NOENT));
    assert_eq!(rename(&mut client, at(&root, "dir"), at(&dir, "below")), Err(Status::INVAL));

    let (status, rest) = client.nfs(&Arguments::Link { node: &file, at: at(&root, "linked") });
    let mut read = Reader::new("LINK", &rest);
    assert_eq!((status, post_attr(&mut read).unwrap().nlink), (Status::OK, 2));
    let (before, after) = wcc(&mut read);
    assert!(before.is_some() && after.is_some());
    client.change(&Arguments::Remove(at(&dir, "c"))).unwrap();
    assert_eq!(client.attr(&file).unwrap().nlink, 1);
    assert_eq!(client.names(&root), ["dir", "linked"]);
}

#[test]
fn names_that_are_none_are_refused() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let file = client.create(&root, "file", 0o600).unwrap().handle;
    for (name, expected) in [("", Status::INVAL), ("a/b", Status::INVAL), ("a\0", Status::INVAL)] {
        assert_eq!(client.create(&root, name, 0).unwrap_err(), expected, "{name:?}");
        assert_eq!(client.lookup(&root, name).unwrap_err(), expected, "{name:?}");
        assert_eq!(client.change(&Arguments::Remove(at(&root, name))), Err(expected), "{name:?}");
    }
    for name in [".", ".."] {
        assert_eq!(client.mkdir(&root, name, 0).unwrap_err(), Status::EXIST);
        assert!(client.change(&Arguments::RmDir(at(&root, name))).is_err());
        assert_eq!(
            client.change(&Arguments::Rename { from: at(&root, "file"), to: at(&root, name) }),
            Err(Status::EXIST)
        );
    }
    assert_eq!(client.create(&root, &"n".repeat(256), 0).unwrap_err(), Status::NAMETOOLONG);
    assert_eq!(client.lookup(&file, "x").unwrap_err(), Status::NOTDIR);
    assert_eq!(client.create(&file, "x", 0).unwrap_err(), Status::NOTDIR);
    assert_eq!(client.list(&file, 0, 4096, true).unwrap_err(), Status::NOTDIR);
}

#[test]
fn attributes_are_set_and_guarded() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let file = client.create(&root, "file", 0o600).unwrap().handle;
    let to = |seconds| TimeChange::To(NfsTime { seconds, nanoseconds: 5 });
    let all = SetAttributes {
        mode: Some(0o4711),
        uid: Some(7),
        gid: Some(8),
        size: Some(1 << 20),
        atime: to(u32::MAX),
        mtime: to(9),
    };
    client.set(&file, all).unwrap();
    let attr = client.attr(&file).unwrap();
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.size), (0o711, 7, 8, 1 << 20), "a new owner, no set-user");
    assert_eq!((attr.atime, attr.mtime), ((u32::MAX, 5), (9, 5)));
    let wrong = TimeChange::To(NfsTime { seconds: 0, nanoseconds: 1_000_000_000 });
    assert_eq!(client.set(&file, SetAttributes { mtime: wrong, ..mode(0) }), Err(Status::INVAL));
    let guarded = |(seconds, nanoseconds)| Arguments::SetAttr {
        node: &file,
        changes: mode(0o600),
        guard: Some(NfsTime { seconds, nanoseconds }),
    };
    assert_eq!(client.change(&guarded((1, 1))), Err(Status::NOT_SYNC));
    client.change(&guarded(attr.ctime)).unwrap();
    let size = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert_eq!(client.set(&root, size), Err(Status::ISDIR));
    client.set(&file, SetAttributes::default()).unwrap();
    client.set(&file, SetAttributes { atime: TimeChange::Now, mtime: TimeChange::Now, ..size }).unwrap();
    client.set(&file, mode(0o4711)).unwrap();
    client.set(&file, SetAttributes { uid: Some(9), ..SetAttributes::default() }).unwrap();
    assert_eq!(client.attr(&file).unwrap().mode, 0o711);
    assert_eq!(client.attr(&file).unwrap().size, 0);
}

#[test]
fn a_change_of_a_directory_tells_how_it_was_before() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let dir = client.mkdir(&root, "dir", 0o700).unwrap();
    let create = Arguments::Create { at: at(&dir.handle, "a"), how: How::Guarded(mode(0o600)) };
    let (made, (before, after)) = client.make_wcc(&create);
    made.unwrap();
    assert_eq!(before.unwrap(), (dir.attr.size, dir.attr.mtime));
    let after = after.unwrap();
    assert_eq!(client.attr(&dir.handle).unwrap().mtime, after.mtime);
    let (again, (before, still)) = client.make_wcc(&create);
    assert_eq!(again.unwrap_err(), Status::EXIST);
    assert_eq!((before.unwrap().1, still.unwrap().mtime), (after.mtime, after.mtime));
}

#[test]
fn the_volume_has_facts() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let results = |client: &mut crate::client::Client, arguments: &Arguments<'_>| {
        let (status, rest) = client.nfs(arguments);
        assert_eq!(status, Status::OK);
        let mut read = Reader::new("facts", &rest);
        post_attr(&mut read).unwrap();
        read.rest().to_vec()
    };
    let stat = results(&mut client, &Arguments::FsStat { node: &root });
    assert_eq!(stat.len(), 6 * 8 + 4);
    let info = results(&mut client, &Arguments::FsInfo { node: &root });
    assert_eq!(info.len(), 12 * 4);
    assert_eq!(info[..4], (1_u32 << 20).to_be_bytes());
    let conf = results(&mut client, &Arguments::PathConf { node: &root });
    assert_eq!(conf[4..8], 255_u32.to_be_bytes());
    assert_eq!(conf[8..], [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    let all = Access::READ | Access::LOOKUP | Access::MODIFY | Access::EXTEND | Access::DELETE;
    assert_eq!(client.access(&root), all);
}

#[test]
fn the_export_is_listed_and_directories_below_it_are_mounted() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let dir = client.mkdir(&root, "dir", 0o700).unwrap();
    client.create(&root, "file", 0o600).unwrap();
    for path in ["", "/", "//", "/dir/..", ".."] {
        assert_eq!(client.mount(path).unwrap(), root, "{path}");
    }
    for path in ["/dir", "dir", "/dir/.", "/../dir"] {
        assert_eq!(client.mount(path).unwrap(), dir.handle, "{path}");
    }
    assert_eq!(client.mount("/file"), Err(Status::NOTDIR));
    assert_eq!(client.mount("/none"), Err(Status::NOENT));
    let exports = client.call(Program::Mount, mount_procedure::EXPORT, b"");
    assert_eq!(exports, [0, 0, 0, 1, 0, 0, 0, 1, b'/', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(client.call(Program::Mount, mount_procedure::DUMP, b""), [0; 4]);
    assert!(client.call(Program::Mount, mount_procedure::UMNT, &[0, 0, 0, 1, b'/', 0, 0, 0]).is_empty());
    assert!(client.call(Program::Mount, mount_procedure::UMNTALL, b"").is_empty());
    assert_eq!(MountArguments::decode(6, b""), Ok(None));
}
