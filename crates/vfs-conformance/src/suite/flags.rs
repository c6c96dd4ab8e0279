//! Tests immutable and append-only nodes, and the permission to set these flags. `suite` runs these cases.

use vfs::file_system::{
    AllocateFlags, Caller, Errno, NodeFlags, NodeId, NodeKind, OpenFlags, RenameFlags, Result, SetAttr, SetTime, Time,
    WriteFlags,
};

use super::acls::list_for_user;
use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused};
use super::subject::{CALLER, NO_HANDLE, ROOT, Subject, size_change};

cases! { "flags":
    are_read_back,
    are_shown_by_attr,
    that_do_not_exist,
    that_contradict,
    of_others,
    of_the_owner,
    for_root_only,
    of_symlinks,
    immutable_file_is_not_written,
    immutable_file_keeps_its_attributes,
    immutable_file_keeps_its_names,
    immutable_directory_keeps_its_names,
    immutable_directory_does_not_guard_what_is_in_it,
    immutable_no_longer,
    append_only_file_grows,
    append_only_file_keeps_what_it_has,
    append_only_file_keeps_what_a_mapping_changes,
    append_only_file_keeps_its_attributes,
    append_only_file_keeps_its_names,
    append_only_directory_takes_names,
    append_only_directory_keeps_its_names,
}

const BOTH: [NodeFlags; 2] = [NodeFlags::IMMUTABLE, NodeFlags::APPEND];

/// Flags without a name here say how a format keeps the node.
fn flags(s: &Subject, node: NodeId) -> Outcome<NodeFlags> {
    let named: NodeFlags = NodeFlags::all().iter_names().map(|(_, flag)| flag).collect();
    Ok(ok("flags", s.fs.flags(node))? & named)
}

fn forbidden<T>(what: &str, result: Result<T>) -> Outcome {
    refused(what, Errno::EPERM, result)
}

fn are_read_back(s: &Subject) -> Outcome {
    let file = s.file(ROOT, b"a")?;
    let dir = s.dir(ROOT, b"dir")?;
    let kept = NodeFlags::SYNC | NodeFlags::NODUMP | NodeFlags::NOATIME;
    for node in [file, dir] {
        equal("new", NodeFlags::empty(), flags(s, node)?)?;
        for flag in kept.iter().chain(BOTH).chain([kept, NodeFlags::empty()]) {
            s.set_flags(node, flag)?;
            equal("flags", flag, flags(s, node)?)?;
        }
    }
    Ok(())
}

fn are_shown_by_attr(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for flag in BOTH {
        s.set_flags(node, flag)?;
        let shown = s.attr(node)?.flags;
        holds("shown by attr", shown.contains(flag))?;
    }
    s.set_flags(node, NodeFlags::empty())?;
    let shown = s.attr(node)?.flags;
    holds("no longer shown", !shown.intersects(BOTH[0] | BOTH[1]))
}

fn that_do_not_exist(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    // Secure deletion, undeletion, data journaling, case folding.
    for bits in [0x1, 0x2, 0x4000, 0x4000_0000] {
        let flag = NodeFlags::from_bits_retain(bits);
        let set = s.fs.set_flags(&CALLER, node, flag);
        refused("set_flags", Errno::EOPNOTSUPP, set)?;
    }
    equal("flags", NodeFlags::empty(), flags(s, node)?)
}

fn that_contradict(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let both = NodeFlags::COMPRESS | NodeFlags::NOCOMPRESS;
    let set = s.fs.set_flags(&CALLER, node, both);
    holds("refused", matches!(set, Err(Errno::EINVAL | Errno::EOPNOTSUPP)))?;
    equal("flags", NodeFlags::empty(), flags(s, node)?)
}

const USER: Caller = Caller { uid: 1000, gid: 1000, pid: 1 };

fn of_others(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let set = s.fs.set_flags(&USER, node, NodeFlags::NODUMP);
    forbidden("set_flags", set)?;
    equal("flags", NodeFlags::empty(), flags(s, node)?)
}

/// A file of the user's.
fn owned(s: &Subject) -> Outcome<NodeId> {
    let node = s.file(ROOT, b"owned")?;
    let changes = SetAttr { uid: Some(USER.uid), ..SetAttr::default() };
    s.set(node, &changes)?;
    Ok(node)
}

fn of_the_owner(s: &Subject) -> Outcome {
    let node = owned(s)?;
    ok("set_flags", s.fs.set_flags(&USER, node, NodeFlags::NODUMP))?;
    equal("flags", NodeFlags::NODUMP, flags(s, node)?)
}

fn for_root_only(s: &Subject) -> Outcome {
    let node = owned(s)?;
    for flag in BOTH {
        forbidden("setting", s.fs.set_flags(&USER, node, flag))?;
        s.set_flags(node, flag)?;
        let none = NodeFlags::empty();
        forbidden("clearing", s.fs.set_flags(&USER, node, none))?;
        let more = flag | NodeFlags::NOATIME;
        ok("keeping", s.fs.set_flags(&USER, node, more))?;
        equal("flags", more, flags(s, node)?)?;
        s.set_flags(node, none)?;
    }
    Ok(())
}

fn of_symlinks(s: &Subject) -> Outcome {
    let link = s.symlink(ROOT, b"link", b"target")?;
    let set = s.fs.set_flags(&CALLER, link, NodeFlags::NODUMP);
    refused("set_flags", Errno::EOPNOTSUPP, set)
}

/// A file `a` with contents and an attribute that then gets a flag.
fn flagged(s: &Subject, flag: NodeFlags) -> Outcome<NodeId> {
    let node = s.file_with(ROOT, b"a", &[1; 10_000])?;
    s.link(node, ROOT, b"other name")?;
    s.set_xattr(node, b"user.a", b"1")?;
    s.set_flags(node, flag)?;
    Ok(node)
}

fn immutable_file_is_not_written(s: &Subject) -> Outcome {
    let node = flagged(s, NodeFlags::IMMUTABLE)?;
    let (write, append) = (OpenFlags::WRITE, OpenFlags::APPEND);
    for how in [write, write | append, write | OpenFlags::TRUNCATE] {
        forbidden("open", s.fs.open(&CALLER, node, how))?;
    }
    forbidden("write", s.try_write(node, 0, b"x"))?;
    forbidden("write at the end", s.try_write(node, 10_000, b"x"))?;
    let set = s.fs.set_attr(&CALLER, node, &size_change(1));
    forbidden("set_attr", set)?;
    let (keep, punch) = (AllocateFlags::KEEP_SIZE, AllocateFlags::PUNCH_HOLE);
    for how in [AllocateFlags::empty(), keep, keep | punch] {
        forbidden("allocate", s.try_allocate(node, how, 0, 4096))?;
    }
    let handle = s.open(node, OpenFlags::READ)?;
    s.fs.release(node, handle);
    equal("contents", vec![1; 10], s.read(node, 9990, 100)?)
}

/// Changes that both flags forbid.
fn keeps_its_attributes(s: &Subject, node: NodeId) -> Outcome {
    let none = SetAttr::default();
    let time = Some(SetTime::To(Time { sec: 1, nsec: 1 }));
    let changes = [
        SetAttr { permissions: Some(0o600), ..none },
        SetAttr { uid: Some(1), ..none },
        SetAttr { gid: Some(1), ..none },
        SetAttr { atime: time, ..none },
        SetAttr { mtime: time, ..none },
        SetAttr { size: Some(5), ..none },
    ];
    let before = s.attr(node)?;
    for changes in &changes {
        let what = format!("{changes:?}");
        forbidden(&what, s.fs.set_attr(&CALLER, node, changes))?;
    }
    for name in [&b"user.a"[..], b"user.b", b"trusted.a"] {
        forbidden("set_xattr", s.try_set_xattr(node, name, b"2"))?;
    }
    forbidden("remove_xattr", s.fs.remove_xattr(node, b"user.a"))?;
    let list = list_for_user(5, 7);
    let set = s.try_set_xattr(node, vfs::acl::ACCESS_NAME, &list);
    forbidden("an access list", set)?;
    equal("xattr", Some(b"1".to_vec()), s.xattr(node, b"user.a")?)?;
    equal("attr", before, s.attr(node)?)
}

fn touch() -> SetAttr {
    SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() }
}

fn immutable_file_keeps_its_attributes(s: &Subject) -> Outcome {
    let node = flagged(s, NodeFlags::IMMUTABLE)?;
    keeps_its_attributes(s, node)?;
    forbidden("touch", s.fs.set_attr(&CALLER, node, &touch()))
}

fn keeps_its_names(s: &Subject, node: NodeId) -> Outcome {
    s.file(ROOT, b"b")?;
    let none = RenameFlags::empty();
    forbidden("link", s.fs.link(node, ROOT, b"c"))?;
    forbidden("unlink", s.fs.unlink(ROOT, b"a"))?;
    forbidden("unlink", s.fs.unlink(ROOT, b"other name"))?;
    let renamed = s.try_rename((ROOT, b"a"), (ROOT, b"c"), none);
    forbidden("rename", renamed)?;
    let renamed = s.try_rename((ROOT, b"b"), (ROOT, b"a"), none);
    forbidden("rename over it", renamed)?;
    let swap = RenameFlags::EXCHANGE;
    forbidden("exchange", s.try_rename((ROOT, b"a"), (ROOT, b"b"), swap))?;
    forbidden("exchange", s.try_rename((ROOT, b"b"), (ROOT, b"a"), swap))?;
    equal("links", 2, s.attr(node)?.nlink)
}

fn immutable_file_keeps_its_names(s: &Subject) -> Outcome {
    let node = flagged(s, NodeFlags::IMMUTABLE)?;
    keeps_its_names(s, node)
}

/// A directory with a file `x`, a file `y` and a directory `sub`, that then gets a flag.
fn flagged_dir(s: &Subject, flag: NodeFlags) -> Outcome<NodeId> {
    let dir = s.dir(ROOT, b"dir")?;
    s.file_with(dir, b"x", b"contents")?;
    s.file(dir, b"y")?;
    s.dir(dir, b"sub")?;
    s.file(ROOT, b"outside")?;
    s.set_flags(dir, flag)?;
    Ok(dir)
}

type Place<'a> = (NodeId, &'a [u8]);

fn dir_keeps_its_names(s: &Subject, dir: NodeId) -> Outcome {
    let none = RenameFlags::empty();
    forbidden("unlink", s.fs.unlink(dir, b"x"))?;
    forbidden("remove_dir", s.fs.remove_dir(dir, b"sub"))?;
    let places: [(Place<'_>, Place<'_>); 4] = [
        ((dir, b"x"), (ROOT, b"x")),
        ((dir, b"x"), (dir, b"z")),
        ((ROOT, b"outside"), (dir, b"x")),
        ((ROOT, b"dir"), (ROOT, b"moved")),
    ];
    for (from, to) in places {
        forbidden("rename", s.try_rename(from, to, none))?;
    }
    let swap = RenameFlags::EXCHANGE;
    forbidden("exchange", s.try_rename((dir, b"x"), (dir, b"y"), swap))?;
    forbidden("remove_dir of it", s.fs.remove_dir(ROOT, b"dir"))?;
    refused("unlink", Errno::ENOENT, s.fs.unlink(dir, b"missing"))?;
    let made = s.try_make(dir, b"x", NodeKind::File);
    refused("create", Errno::EEXIST, made)
}

fn immutable_directory_keeps_its_names(s: &Subject) -> Outcome {
    let dir = flagged_dir(s, NodeFlags::IMMUTABLE)?;
    dir_keeps_its_names(s, dir)?;
    for kind in [NodeKind::File, NodeKind::Directory, NodeKind::Fifo] {
        forbidden("create", s.try_make(dir, b"new", kind))?;
    }
    let outside = s.lookup(ROOT, b"outside")?.node;
    forbidden("link", s.fs.link(outside, dir, b"new"))?;
    let from = (ROOT, &b"outside"[..]);
    forbidden("rename", s.try_rename(from, (dir, b"new"), RenameFlags::empty()))?;
    equal("names", 3, s.names(dir)?.len())
}

fn immutable_directory_does_not_guard_what_is_in_it(s: &Subject) -> Outcome {
    let dir = flagged_dir(s, NodeFlags::IMMUTABLE)?;
    let node = s.lookup(dir, b"x")?.node;
    s.write(node, 0, b"C")?;
    s.chmod(node, 0o600)?;
    s.link(node, ROOT, b"out")?;
    let sub = s.lookup(dir, b"sub")?.node;
    s.file(sub, b"new")?;
    equal("contents", b"Contents".to_vec(), s.read(node, 0, 100)?)
}

fn immutable_no_longer(s: &Subject) -> Outcome {
    let node = flagged(s, NodeFlags::IMMUTABLE)?;
    s.set_flags(node, NodeFlags::empty())?;
    s.write(node, 0, b"x")?;
    s.chmod(node, 0o600)?;
    s.unlink(ROOT, b"a")
}

fn append_only_file_grows(s: &Subject) -> Outcome {
    let node = flagged(s, NodeFlags::APPEND)?;
    let handle = s.open(node, OpenFlags::WRITE | OpenFlags::APPEND)?;
    let written = s.fs.write(node, handle, 0, b"x", WriteFlags::APPEND);
    ok("append", written)?;
    s.fs.release(node, handle);
    equal("size", 10_001, s.attr(node)?.size)?;
    s.allocate(node, AllocateFlags::KEEP_SIZE, 0, 65_536)?;
    equal("size", 10_001, s.attr(node)?.size)
}

fn append_only_file_keeps_what_it_has(s: &Subject) -> Outcome {
    let node = flagged(s, NodeFlags::APPEND)?;
    let (write, append) = (OpenFlags::WRITE, OpenFlags::APPEND);
    for how in [write, write | append | OpenFlags::TRUNCATE] {
        forbidden("open", s.fs.open(&CALLER, node, how))?;
    }
    let none = WriteFlags::empty();
    let written = s.fs.write(node, NO_HANDLE, 0, b"x", none);
    forbidden("write", written)?;
    let (keep, punch) = (AllocateFlags::KEEP_SIZE, AllocateFlags::PUNCH_HOLE);
    for how in [keep | punch, AllocateFlags::ZERO_RANGE] {
        forbidden("allocate", s.try_allocate(node, how, 0, 4096))?;
    }
    equal("contents", vec![1; 10], s.read(node, 0, 10)?)
}

/// Linux has no shared mapping for writing of such a file, but a server's kernel does not know.
fn append_only_file_keeps_what_a_mapping_changes(s: &Subject) -> Outcome {
    let node = flagged(s, NodeFlags::APPEND)?;
    let size = s.attr(node)?.size;
    for flags in [WriteFlags::FROM_CACHE, WriteFlags::FROM_CACHE | WriteFlags::FROM_MAPPING] {
        forbidden("store", s.fs.write(node, NO_HANDLE, 0, b"x", flags))?;
    }
    // A page with appended data.
    let page = [vec![1; 10], b"more".to_vec()].concat();
    ok("write", s.fs.write(node, NO_HANDLE, size - 10, &page, WriteFlags::FROM_CACHE))?;
    equal("contents", page, s.read(node, size - 10, 14)?)
}

fn append_only_file_keeps_its_attributes(s: &Subject) -> Outcome {
    let node = flagged(s, NodeFlags::APPEND)?;
    keeps_its_attributes(s, node)?;
    let before = s.attr(node)?.ctime;
    let attr = s.set(node, &touch())?;
    holds("touch", attr.mtime >= before)
}

fn append_only_file_keeps_its_names(s: &Subject) -> Outcome {
    let node = flagged(s, NodeFlags::APPEND)?;
    keeps_its_names(s, node)
}

fn append_only_directory_takes_names(s: &Subject) -> Outcome {
    let dir = flagged_dir(s, NodeFlags::APPEND)?;
    s.file(dir, b"new file")?;
    s.dir(dir, b"new dir")?;
    let outside = s.lookup(ROOT, b"outside")?.node;
    s.link(outside, dir, b"new link")?;
    s.rename((ROOT, b"outside"), (dir, b"moved"))?;
    equal("names", 7, s.names(dir)?.len())
}

fn append_only_directory_keeps_its_names(s: &Subject) -> Outcome {
    let dir = flagged_dir(s, NodeFlags::APPEND)?;
    dir_keeps_its_names(s, dir)?;
    equal("names", 3, s.names(dir)?.len())
}
