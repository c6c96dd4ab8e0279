//! For whom a client acts, and what it may do then.

use std::sync::Arc;

use nfs::wire::{Access, Arguments, DirOp, SetAttributes, Stability, Status};
use nfs::{NOBODY, Options, Squash};
use vfs::Volume;
use vfs_conformance::MemoryFs;

use crate::client::{Client, Served, options};

fn served(squash: Squash, read_only: bool) -> Served {
    let served = Served::with(Arc::new(MemoryFs::default()), &Options { squash, read_only, ..options() });
    let volume = Volume::new(Arc::clone(&served.fs));
    volume.set_permissions("/", 0o755).unwrap();
    for (dir, permissions, owner) in [("open", 0o777, 0), ("shared", 0o1777, 0), ("home", 0o700, 7)] {
        volume.create_dir(dir).unwrap();
        volume.set_permissions(dir, permissions).unwrap();
        volume.set_owner(dir, Some(owner), Some(70)).unwrap();
    }
    volume.write("home/file", "text").unwrap();
    volume.set_permissions("home/file", 0o640).unwrap();
    volume.set_owner("home/file", Some(7), Some(70)).unwrap();
    served
}

fn mounted(served: &Served, uid: u32, gid: u32, groups: &[u32]) -> (Client, Vec<u8>) {
    let mut client = served.connect().with_user(uid, gid, groups);
    let root = client.mount("/").unwrap();
    (client, root)
}

#[test]
fn root_is_nobody_unless_it_is_believed() {
    let squashed = served(Squash::Root, false);
    let (mut client, root) = mounted(&squashed, 0, 0, &[0, 70]);
    let home = client.lookup(&root, "home").unwrap();
    assert_eq!(client.lookup(&home.handle, "file").unwrap_err(), Status::ACCES);
    assert_eq!(client.create(&root, "x", 0o600).unwrap_err(), Status::ACCES);
    assert_eq!(client.mount("/home"), Ok(home.handle));
    let open = client.lookup(&root, "open").unwrap().handle;
    let made = client.create(&open, "x", 0o4777).unwrap();
    assert_eq!((made.attr.uid, made.attr.gid), (NOBODY, NOBODY));
    let gives = SetAttributes { uid: Some(0), ..SetAttributes::default() };
    assert_eq!(client.set(&made.handle, gives), Err(Status::PERM));

    let believed = served(Squash::None, false);
    let (mut client, root) = mounted(&believed, 0, 0, &[]);
    let made = client.create(&root, "x", 0o600).unwrap();
    client.set(&made.handle, SetAttributes { uid: Some(9), gid: Some(9), ..SetAttributes::default() }).unwrap();
    assert_eq!(client.attr(&made.handle).unwrap().uid, 9);
}

#[test]
fn all_clients_act_for_one_user_where_that_is_asked_for() {
    let served = served(Squash::All { uid: 7, gid: 70 }, false);
    for uid in [0, 5] {
        let (mut client, root) = mounted(&served, uid, uid, &[]);
        let home = client.lookup(&root, "home").unwrap().handle;
        let made = client.create(&home, &format!("of {uid}"), 0o600).unwrap();
        assert_eq!((made.attr.uid, made.attr.gid), (7, 70));
    }
    let mut nameless = served.connect();
    nameless.user = None;
    let home = nameless.mount("/home").unwrap();
    assert_eq!(nameless.names(&home), ["file", "of 0", "of 5"]);
}

#[test]
fn users_and_groups_get_what_the_modes_permit() {
    let served = served(Squash::Root, false);
    let (mut owner, root) = mounted(&served, 7, 7, &[]);
    let home = owner.lookup(&root, "home").unwrap().handle;
    let file = owner.lookup(&home, "file").unwrap().handle;
    assert_eq!(owner.access(&file), Access::READ | Access::MODIFY | Access::EXTEND);
    let (mut member, _) = mounted(&served, 8, 8, &[70]);
    assert_eq!(member.access(&file), Access::READ);
    assert_eq!(member.access(&home), Access::empty());
    assert_eq!(member.read(&file, 0, 10).unwrap().0, b"text");
    assert_eq!(member.write(&file, 0, b"x", Stability::FileSync), Err(Status::ACCES));
    assert_eq!(member.list(&home, 0, 4096, true).unwrap_err(), Status::ACCES);
    let (mut other, _) = mounted(&served, 9, 9, &[]);
    assert_eq!(other.read(&file, 0, 10).unwrap_err(), Status::ACCES);
    assert_eq!(other.access(&file), Access::empty());
    assert_eq!(other.mount("/home/below"), Err(Status::ACCES));
    // In a sticky directory only the owner removes a name.
    let shared = other.lookup(&root, "shared").unwrap().handle;
    other.create(&shared, "others", 0o666).unwrap();
    let remove = Arguments::Remove(DirOp { dir: &shared, name: b"others" });
    assert_eq!(owner.change(&remove), Err(Status::PERM));
    other.change(&remove).unwrap();
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let served = served(Squash::None, true);
    let (mut client, root) = mounted(&served, 0, 0, &[]);
    let home = client.lookup(&root, "home").unwrap().handle;
    let file = client.lookup(&home, "file").unwrap().handle;
    assert_eq!(client.read(&file, 0, 10).unwrap().0, b"text");
    assert_eq!(client.access(&file), Access::READ);
    assert_eq!(client.access(&home), Access::READ | Access::LOOKUP);
    let at = DirOp { dir: &root, name: b"home" };
    for arguments in [
        Arguments::Remove(at),
        Arguments::RmDir(at),
        Arguments::MkDir { at: DirOp { name: b"new", ..at }, attributes: SetAttributes::default() },
        Arguments::Rename { from: at, to: DirOp { name: b"new", ..at } },
        Arguments::Link { node: &file, at: DirOp { name: b"new", ..at } },
        Arguments::Write { node: &file, offset: 0, stability: Stability::Unstable, data: b"x" },
        Arguments::SetAttr { node: &file, changes: SetAttributes { size: Some(0), ..Default::default() }, guard: None },
        Arguments::Commit { node: &file, offset: 0, count: 0 },
    ] {
        assert_eq!(client.change(&arguments), Err(Status::ROFS), "{arguments:?}");
    }
}
