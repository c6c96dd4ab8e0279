//! File handles: they outlive a server, and never lead out of the exported directory.

use std::sync::Arc;

use nfs::wire::{Arguments, DirOp, SetAttributes, Stability, Status};
use nfs::{HANDLE_BYTES, Options};
use vfs::Volume;

use crate::client::{Served, options};

#[test]
fn handles_outlive_the_server() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    let dir = client.mkdir(&root, "dir", 0o700).unwrap().handle;
    let file = client.create(&dir, "file", 0o600).unwrap().handle;
    client.write(&file, 0, b"data", Stability::FileSync).unwrap();
    let again = Served::with(Arc::clone(&served.fs), &options());
    let mut client = again.connect();
    assert_eq!(client.read(&file, 0, 10).unwrap().0, b"data");
    assert_eq!(client.lookup(&dir, "file").unwrap().handle, file);
    assert_eq!(client.mount("/").unwrap(), root);
}

#[test]
fn another_key_or_volume_makes_handles_stale() {
    let served = Served::new();
    let (_, root) = served.mounted();
    let others = [Options { key: [8; 32], ..options() }, Options { uuid: [9; 16], ..options() }];
    for options in others {
        let other = Served::with(Arc::clone(&served.fs), &options);
        assert_eq!(other.connect().attr(&root), Err(Status::STALE));
    }
}

#[test]
fn no_handle_leads_out_of_the_exported_directory() {
    let served = Served::new();
    let (mut whole, root) = served.mounted();
    let base = whole.mkdir(&root, "base", 0o777).unwrap().handle;
    let outside = whole.create(&root, "secret", 0o666).unwrap().handle;
    let inside = whole.create(&base, "file", 0o666).unwrap().handle;
    let volume = Volume::new(Arc::clone(&served.fs));
    volume.symlink("/../secret", "base/out").unwrap();
    volume.symlink("..", "base/up").unwrap();

    let part = Served::with(Arc::clone(&served.fs), &Options { path: b"/base".to_vec(), ..options() });
    let (mut client, part_root) = part.mounted();
    assert_ne!(part_root, base, "handles of one export are not valid for another");
    for handle in [&root, &base, &outside, &inside] {
        assert_eq!(client.attr(handle), Err(Status::STALE));
    }
    let found = client.lookup(&part_root, "file").unwrap();
    assert_ne!(found.handle, inside);
    assert_eq!(client.lookup(&part_root, "..").unwrap().handle, part_root);
    let dots = client.list(&part_root, 0, 4096, true).unwrap().0;
    let ino = client.attr(&part_root).unwrap().fileid;
    let above: Vec<_> = dots.iter().filter(|listed| listed.name == "..").map(|listed| listed.fileid).collect();
    assert_eq!(above, [ino]);
    for path in ["..", "/..", "/../secret", "/up/secret", "/out"] {
        match client.mount(path) {
            Ok(handle) => assert_eq!(handle, part_root, "{path}"),
            Err(status) => assert_eq!(status, Status::NOENT, "{path}"),
        }
    }
    assert_eq!(client.lookup(&part_root, "secret").unwrap_err(), Status::NOENT);
    // The name of a parent directory in a name is no path.
    assert_eq!(client.lookup(&part_root, "../secret").unwrap_err(), Status::INVAL);
}

#[test]
fn a_directory_that_was_moved_out_of_the_export_has_no_way_up() {
    let served = Served::new();
    let (mut whole, root) = served.mounted();
    let base = whole.mkdir(&root, "base", 0o777).unwrap().handle;
    let deep = whole.mkdir(&base, "deep", 0o777).unwrap().handle;
    whole.mkdir(&deep, "inner", 0o777).unwrap();
    let elsewhere = whole.mkdir(&root, "elsewhere", 0o777).unwrap().handle;
    whole.create(&elsewhere, "secret", 0o666).unwrap();

    let part = Served::with(Arc::clone(&served.fs), &Options { path: b"/base".to_vec(), ..options() });
    let (mut client, part_root) = part.mounted();
    let deep = client.lookup(&part_root, "deep").unwrap().handle;
    let inner = client.lookup(&deep, "inner").unwrap().handle;
    assert_eq!(client.lookup(&inner, "..").unwrap().handle, deep);
    Volume::new(Arc::clone(&served.fs)).rename("base/deep", "elsewhere/deep").unwrap();
    assert_eq!(client.lookup(&deep, "..").unwrap_err(), Status::NOENT);
    assert_eq!(client.lookup(&inner, "..").unwrap_err(), Status::NOENT);
}

#[test]
fn handles_that_were_made_up_lead_nowhere() {
    let served = Served::new();
    let (mut client, root) = served.mounted();
    for bytes in [b"".to_vec(), vec![0; 4], vec![0; HANDLE_BYTES], vec![0xff; 64]] {
        assert_eq!(client.attr(&bytes), Err(Status::BADHANDLE));
    }
    for at in 4..HANDLE_BYTES {
        let mut changed = root.clone();
        changed[at] ^= 0x80;
        assert_eq!(client.attr(&changed), Err(Status::STALE), "{at}");
    }
    // Every procedure refuses it, with a reply that can be decoded.
    let node = [0; 8].as_slice();
    let at = DirOp { dir: node, name: b"x" };
    let changes = SetAttributes::default();
    for arguments in [
        Arguments::SetAttr { node, changes, guard: None },
        Arguments::Lookup(at),
        Arguments::ReadLink { node },
        Arguments::Read { node, offset: 0, count: 1 },
        Arguments::Write { node, offset: 0, stability: Stability::FileSync, data: b"x" },
        Arguments::MkDir { at, attributes: changes },
        Arguments::SymLink { at, attributes: changes, target: b"x" },
        Arguments::Remove(at),
        Arguments::RmDir(at),
        Arguments::Rename { from: at, to: at },
        Arguments::Link { node, at },
        Arguments::ReadDir { dir: node, cookie: 0, verifier: 0, count: 100 },
        Arguments::FsStat { node },
        Arguments::FsInfo { node },
        Arguments::PathConf { node },
        Arguments::Commit { node, offset: 0, count: 0 },
    ] {
        let (status, rest) = client.nfs(&arguments);
        assert_eq!(status, Status::BADHANDLE, "{arguments:?}");
        assert!(rest.iter().all(|byte| *byte == 0), "no attributes: {arguments:?}");
    }
}
