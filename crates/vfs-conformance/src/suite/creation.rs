//! Tests new nodes: kinds, owners, permissions, times, numbers, and files without a name. `suite` runs these cases.

use vfs::file_system::{Caller, Errno, NewNode, NodeKind, OpenFlags, Time};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused};
use super::subject::{CALLER, ROOT, Subject, new, numbered};

cases! { "creation":
    of_every_kind,
    belongs_to_the_caller,
    asks_for_permissions,
    is_masked,
    over_an_existing_name,
    in_a_removed_directory,
    of_a_symlink,
    of_a_symlink_far_away,
    of_a_device,
    starts_empty,
    starts_now,
    has_numbers_of_its_own,
    keeps_its_number,
    in_a_set_group_directory,
    without_a_name,
    without_a_name_and_then_with_one,
}

const KINDS: [NodeKind; 7] = [
    NodeKind::File,
    NodeKind::Directory,
    NodeKind::Symlink,
    NodeKind::CharDevice,
    NodeKind::BlockDevice,
    NodeKind::Fifo,
    NodeKind::Socket,
];

fn of_every_kind(s: &Subject) -> Outcome {
    for (number, kind) in KINDS.into_iter().enumerate() {
        let node = NewNode { target: b"target", ..new(kind, 0o644) };
        let name = numbered("node", number);
        let made = s.make(ROOT, &name, &node)?;
        equal("kind as made", kind, made.attr.kind)?;
        let found = s.lookup(ROOT, &name)?;
        equal("node", made.node, found.node)?;
        equal("kind as found", kind, found.attr.kind)?;
        if kind != NodeKind::Directory {
            equal("links", 1, found.attr.nlink)?;
        }
    }
    Ok(())
}

fn belongs_to_the_caller(s: &Subject) -> Outcome {
    let caller = Caller { uid: 1234, gid: 5678, pid: 1 };
    for (number, kind) in KINDS.into_iter().enumerate() {
        let node = NewNode { target: b"target", ..new(kind, 0o644) };
        let name = numbered("node", number);
        let made = ok("create", s.fs.create(&caller, ROOT, &name, &node))?;
        let attr = s.attr(made.node)?;
        equal("owner and group", (1234, 5678), (attr.uid, attr.gid))?;
    }
    Ok(())
}

fn asks_for_permissions(s: &Subject) -> Outcome {
    for (number, permissions) in [0, 0o644, 0o777, 0o4755, 0o1777, 0o6711].into_iter().enumerate() {
        for kind in [NodeKind::File, NodeKind::Directory, NodeKind::Fifo] {
            let name = numbered(&format!("{kind:?}"), number);
            let made = s.make(ROOT, &name, &new(kind, permissions))?;
            equal("permissions", permissions, made.attr.permissions)?;
        }
    }
    Ok(())
}

fn is_masked(s: &Subject) -> Outcome {
    let node = |kind| NewNode { umask: 0o027, target: b"target", ..new(kind, 0o4777) };
    let file = s.make(ROOT, b"file", &node(NodeKind::File))?;
    equal("of a file", 0o4750, file.attr.permissions)?;
    let dir = s.make(ROOT, b"dir", &node(NodeKind::Directory))?;
    equal("of a directory", 0o4750, dir.attr.permissions)?;
    let link = NewNode { permissions: 0o777, ..node(NodeKind::Symlink) };
    let link = s.make(ROOT, b"link", &link)?;
    equal("of a symlink", 0o777, link.attr.permissions)
}

fn over_an_existing_name(s: &Subject) -> Outcome {
    let file = s.file_with(ROOT, b"file", b"contents")?;
    s.dir(ROOT, b"dir")?;
    s.symlink(ROOT, b"link", b"nowhere")?;
    for name in [&b"file"[..], b"dir", b"link"] {
        for kind in [NodeKind::File, NodeKind::Directory, NodeKind::Fifo] {
            let made = s.try_make(ROOT, name, kind);
            refused("create", Errno::EEXIST, made)?;
        }
    }
    equal("contents", b"contents".to_vec(), s.read(file, 0, 100)?)
}

fn in_a_removed_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.remove_dir(ROOT, b"dir")?;
    for kind in [NodeKind::File, NodeKind::Directory, NodeKind::Fifo] {
        let made = s.try_make(dir, b"a", kind);
        refused("create", Errno::ENOENT, made)?;
    }
    Ok(())
}

fn of_a_symlink(s: &Subject) -> Outcome {
    let target = b"../some where/\xff";
    let link = s.symlink(ROOT, b"link", target)?;
    let read = ok("read_link", s.fs.read_link(link))?;
    equal("target", target.to_vec(), read)?;
    let attr = s.attr(link)?;
    equal("size", 15, attr.size)?;
    equal("permissions", 0o777, attr.permissions)?;
    let file = s.file(ROOT, b"file")?;
    refused("read_link of a file", Errno::EINVAL, s.fs.read_link(file))?;
    let root = s.fs.read_link(ROOT);
    refused("read_link of a directory", Errno::EINVAL, root)
}

fn of_a_symlink_far_away(s: &Subject) -> Outcome {
    let target = [b'x'; 4000];
    let link = s.symlink(ROOT, b"link", &target)?;
    equal("size", 4000, s.attr(link)?.size)?;
    let read = ok("read_link", s.fs.read_link(link))?;
    equal("target", target.to_vec(), read)
}

fn of_a_device(s: &Subject) -> Outcome {
    // 8:1 and 0x123:0x45678, as stat encodes them in 32 bits.
    for (number, rdev) in [0x801, 0x4561_2378, 0].into_iter().enumerate() {
        for kind in [NodeKind::CharDevice, NodeKind::BlockDevice] {
            let node = NewNode { rdev, ..new(kind, 0o600) };
            let name = numbered(&format!("{kind:?}"), number);
            let made = s.make(ROOT, &name, &node)?;
            equal("rdev", rdev, s.attr(made.node)?.rdev)?;
        }
    }
    let file = s.file(ROOT, b"file")?;
    equal("rdev of a file", 0, s.attr(file)?.rdev)
}

fn starts_empty(s: &Subject) -> Outcome {
    let file = s.file(ROOT, b"file")?;
    let attr = s.attr(file)?;
    equal("size and blocks", (0, 0), (attr.size, attr.blocks))?;
    equal("contents", Vec::new(), s.read(file, 0, 100)?)?;
    let xattrs = ok("list_xattrs", s.fs.list_xattrs(file))?;
    equal("xattrs", Vec::new(), xattrs)
}

fn starts_now(s: &Subject) -> Outcome {
    let attr = s.make(ROOT, b"file", &new(NodeKind::File, 0o644))?.attr;
    let times = [attr.atime, attr.mtime, attr.ctime];
    // A format may not store the birth time.
    let now = if attr.btime == Time::default() { attr.ctime } else { attr.btime };
    equal("times", [now; 3], times)?;
    holds("after 2001", now.sec > 1_000_000_000)?;
    holds("nanoseconds", now.nsec < 1_000_000_000)
}

fn has_numbers_of_its_own(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let mut seen = vec![(ROOT, s.attr(ROOT)?.ino), (dir, s.attr(dir)?.ino)];
    for number in 0..200 {
        let parent = if number % 2 == 0 { ROOT } else { dir };
        let node = s.file(parent, &numbered("file", number))?;
        seen.push((node, s.attr(node)?.ino));
    }
    let mut nodes: Vec<_> = seen.iter().map(|(node, _)| *node).collect();
    let mut inos: Vec<_> = seen.iter().map(|(_, ino)| *ino).collect();
    nodes.sort_unstable();
    nodes.dedup();
    inos.sort_unstable();
    inos.dedup();
    equal("nodes", 202, nodes.len())?;
    equal("numbers", 202, inos.len())
}

fn keeps_its_number(s: &Subject) -> Outcome {
    let made = s.make(ROOT, b"file", &new(NodeKind::File, 0o644))?;
    s.write(made.node, 0, b"contents")?;
    s.fs.forget(made.node, 1);
    let found = s.lookup(ROOT, b"file")?;
    equal("ino", made.attr.ino, found.attr.ino)?;
    equal("contents", b"contents".to_vec(), s.read(found.node, 0, 100)?)
}

fn in_a_set_group_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let changes = vfs::file_system::SetAttr { permissions: Some(0o2777), gid: Some(50), ..Default::default() };
    s.set(dir, &changes)?;
    let file = s.make(dir, b"file", &new(NodeKind::File, 0o644))?.attr;
    equal("file", (50, 0o644), (file.gid, file.permissions))?;
    let sub = s.make(dir, b"sub", &new(NodeKind::Directory, 0o755))?.attr;
    equal("directory", (50, 0o2755), (sub.gid, sub.permissions))?;
    let program = s.make(dir, b"program", &new(NodeKind::File, 0o2755))?.attr;
    equal("program", (50, 0o2755), (program.gid, program.permissions))?;
    let link = s.symlink(dir, b"link", b"file")?;
    equal("symlink", 50, s.attr(link)?.gid)
}

fn without_a_name(s: &Subject) -> Outcome {
    let node = new(NodeKind::File, 0o600);
    let flags = OpenFlags::READ | OpenFlags::WRITE;
    let made = s.fs.create_unnamed(&CALLER, ROOT, &node, flags);
    let (entry, handle) = ok("create_unnamed", made)?;
    equal("links", 0, entry.attr.nlink)?;
    equal("permissions", 0o600, entry.attr.permissions)?;
    equal("names", Vec::new(), s.names(ROOT)?)?;
    s.write(entry.node, 0, b"contents")?;
    equal("contents", b"contents".to_vec(), s.read(entry.node, 0, 100)?)?;
    s.fs.forget(entry.node, 1);
    equal("size", 8, s.attr(entry.node)?.size)?;
    s.fs.release(entry.node, handle);
    refused("attr", Errno::ESTALE, s.fs.attr(entry.node))
}

fn without_a_name_and_then_with_one(s: &Subject) -> Outcome {
    let node = new(NodeKind::File, 0o600);
    let made = s.fs.create_unnamed(&CALLER, ROOT, &node, OpenFlags::WRITE);
    let (entry, handle) = ok("create_unnamed", made)?;
    s.write(entry.node, 0, b"contents")?;
    let linked = s.link(entry.node, ROOT, b"a")?;
    equal("links", 1, linked.attr.nlink)?;
    s.fs.release(entry.node, handle);
    s.fs.forget(entry.node, 2);
    let found = s.lookup(ROOT, b"a")?;
    equal("ino", entry.attr.ino, found.attr.ino)?;
    equal("contents", b"contents".to_vec(), s.read(found.node, 0, 100)?)
}
