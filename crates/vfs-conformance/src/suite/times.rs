//! Tests which calls change which times of a node: `a` for access, `m` for modification, `c` for change. `suite` runs
//! these cases.

use vfs::file_system::{AllocateFlags, Errno, NodeFlags, NodeKind, OpenFlags, RenameFlags, SetAttr, SetTime};

use super::acls::list_for_user;
use super::case::cases;
use super::outcome::{Outcome, ok, refused};
use super::subject::{NO_HANDLE, ROOT, Subject};

cases! { "times":
    creation_changes_the_directory,
    linking,
    unlinking,
    removing_a_directory,
    renaming_within_a_directory,
    renaming_across_directories,
    replacing,
    exchanging,
    failing,
    reading,
    reading_twice,
    reading_without_a_trace,
    reading_a_file_without_access_times,
    listing,
    following_a_link,
    looking_up,
    writing,
    writing_in_the_middle,
    truncating,
    allocating,
    punching_and_zeroing,
    changing_permissions,
    changing_owners,
    changing_xattrs,
    changing_acls,
    changing_flags,
    syncing,
}

fn creation_changes_the_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    for kind in [NodeKind::File, NodeKind::Directory, NodeKind::Fifo] {
        s.age(dir)?;
        ok("create", s.try_make(dir, format!("{kind:?}").as_bytes(), kind))?;
        s.has_changed("creation", dir, "mc")?;
    }
    s.age(dir)?;
    s.symlink(dir, b"link", b"target")?;
    s.has_changed("creation of a symlink", dir, "mc")
}

fn linking(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let node = s.file(ROOT, b"a")?;
    s.age(dir)?;
    s.age(node)?;
    s.link(node, dir, b"b")?;
    s.has_changed("linking", node, "c")?;
    s.has_changed("linking in it", dir, "mc")
}

fn unlinking(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let node = s.file(dir, b"a")?;
    s.link(node, ROOT, b"b")?;
    s.age(dir)?;
    s.age(node)?;
    s.unlink(dir, b"a")?;
    s.has_changed("unlinking", node, "c")?;
    s.has_changed("unlinking in it", dir, "mc")
}

fn removing_a_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.dir(dir, b"sub")?;
    s.age(dir)?;
    s.remove_dir(dir, b"sub")?;
    s.has_changed("removal in it", dir, "mc")
}

fn renaming_within_a_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let node = s.file(dir, b"a")?;
    s.age(dir)?;
    s.age(node)?;
    s.rename((dir, b"a"), (dir, b"b"))?;
    s.has_changed("renaming", node, "c")?;
    s.has_changed("renaming in it", dir, "mc")
}

fn renaming_across_directories(s: &Subject) -> Outcome {
    let (d, e) = (s.dir(ROOT, b"d")?, s.dir(ROOT, b"e")?);
    for node in [s.file(d, b"a")?, s.dir(d, b"b")?] {
        let name: &[u8] = if s.attr(node)?.kind == NodeKind::File { b"a" } else { b"b" };
        for node in [d, e, node] {
            s.age(node)?;
        }
        s.rename((d, name), (e, name))?;
        s.has_changed("renaming", node, "c")?;
        s.has_changed("renaming out of it", d, "mc")?;
        s.has_changed("renaming into it", e, "mc")?;
    }
    Ok(())
}

fn replacing(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let (one, two) = (s.file(dir, b"a")?, s.file(dir, b"b")?);
    for node in [dir, one, two] {
        s.age(node)?;
    }
    s.rename((dir, b"a"), (dir, b"b"))?;
    s.has_changed("renaming", one, "c")?;
    s.has_changed("being replaced", two, "c")?;
    s.has_changed("renaming in it", dir, "mc")
}

fn exchanging(s: &Subject) -> Outcome {
    let (d, e) = (s.dir(ROOT, b"d")?, s.dir(ROOT, b"e")?);
    let (one, two) = (s.file(d, b"a")?, s.file(e, b"b")?);
    for node in [d, e, one, two] {
        s.age(node)?;
    }
    s.rename_with((d, b"a"), (e, b"b"), RenameFlags::EXCHANGE)?;
    for (node, expected) in [(one, "c"), (two, "c"), (d, "mc"), (e, "mc")] {
        s.has_changed("exchanging", node, expected)?;
    }
    Ok(())
}

fn failing(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let node = s.file(dir, b"a")?;
    s.dir(dir, b"sub")?;
    s.age(dir)?;
    s.age(node)?;
    let made = s.try_make(dir, b"a", NodeKind::File);
    refused("create", Errno::EEXIST, made)?;
    refused("unlink", Errno::EISDIR, s.fs.unlink(dir, b"sub"))?;
    let renamed = s.try_rename((dir, b"a"), (dir, b"sub"), RenameFlags::empty());
    refused("rename", Errno::EISDIR, renamed)?;
    refused("link", Errno::EEXIST, s.fs.link(node, dir, b"sub"))?;
    s.has_changed("what failed", dir, "")?;
    s.has_changed("what failed", node, "")
}

fn reading(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"contents")?;
    s.age(node)?;
    s.read(node, 0, 3)?;
    s.has_changed("reading", node, "a")
}

/// The second access is within a day of the first, and nothing was changed in between.
fn reading_twice(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"contents")?;
    s.age(node)?;
    s.read(node, 0, 3)?;
    let first = s.attr(node)?.atime;
    s.read(node, 0, 3)?;
    super::outcome::equal("access", first, s.attr(node)?.atime)
}

fn reading_without_a_trace(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"contents")?;
    s.age(node)?;
    let handle = s.open(node, OpenFlags::READ | OpenFlags::NO_ATIME)?;
    let mut bytes = [0; 3];
    ok("read", s.fs.read(node, handle, 0, &mut bytes))?;
    s.fs.release(node, handle);
    s.has_changed("reading", node, "")
}

fn reading_a_file_without_access_times(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"contents")?;
    s.set_flags(node, NodeFlags::NOATIME)?;
    s.age(node)?;
    s.read(node, 0, 3)?;
    s.has_changed("reading", node, "")
}

fn listing(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.file(dir, b"a")?;
    s.age(dir)?;
    s.list(dir, 0, 10)?;
    s.has_changed("listing", dir, "a")
}

fn following_a_link(s: &Subject) -> Outcome {
    let link = s.symlink(ROOT, b"link", b"target")?;
    s.age(link)?;
    ok("read_link", s.fs.read_link(link))?;
    s.has_changed("following", link, "a")
}

fn looking_up(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let node = s.file(dir, b"a")?;
    s.age(dir)?;
    s.age(node)?;
    s.lookup(dir, b"a")?;
    s.is_there(dir, b"b")?;
    let handle = s.open(node, OpenFlags::READ | OpenFlags::WRITE)?;
    s.fs.release(node, handle);
    ok("list_xattrs", s.fs.list_xattrs(node))?;
    s.has_changed("looking", dir, "")?;
    s.has_changed("looking and opening", node, "")
}

fn writing(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.age(node)?;
    s.age(ROOT)?;
    s.write(node, 0, b"contents")?;
    s.has_changed("writing", node, "mc")?;
    s.has_changed("writing to a file in it", ROOT, "")
}

fn writing_in_the_middle(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &[1; 100_000])?;
    ok("sync_fs", s.fs.sync_fs())?;
    s.age(node)?;
    s.write(node, 50_000, b"contents")?;
    s.has_changed("writing", node, "mc")?;
    s.age(node)?;
    let flags = vfs::file_system::WriteFlags::APPEND;
    ok("write", s.fs.write(node, NO_HANDLE, 0, b"x", flags))?;
    s.has_changed("appending", node, "mc")
}

fn truncating(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &[1; 100_000])?;
    for size in [50_000, 200_000, 0] {
        s.age(node)?;
        s.set_size(node, size)?;
        s.has_changed("truncating", node, "mc")?;
        s.age(node)?;
        s.set_size(node, size)?;
        s.has_changed("truncating to the same size", node, "")?;
        let said = SetAttr { size: Some(size), mtime: Some(SetTime::Now), ..SetAttr::default() };
        s.set(node, &said)?;
        s.has_changed("truncating what is open to the same size", node, "mc")?;
    }
    Ok(())
}

fn allocating(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &[1; 100_000])?;
    let (plain, keep) = (AllocateFlags::empty(), AllocateFlags::KEEP_SIZE);
    for (flags, offset) in [(plain, 200_000), (keep, 400_000), (plain, 0)] {
        s.age(node)?;
        s.allocate(node, flags, offset, 65_536)?;
        s.has_changed("allocating", node, "mc")?;
    }
    Ok(())
}

fn punching_and_zeroing(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &[1; 300_000])?;
    let punch = AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE;
    for flags in [punch, AllocateFlags::ZERO_RANGE] {
        s.age(node)?;
        s.allocate(node, flags, 65_536, 65_536)?;
        s.has_changed("changing a range", node, "mc")?;
    }
    Ok(())
}

fn changing_permissions(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    for node in [s.file(ROOT, b"a")?, dir] {
        s.age(node)?;
        s.chmod(node, 0o700)?;
        s.has_changed("chmod", node, "c")?;
        s.age(node)?;
        s.chmod(node, 0o700)?;
        s.has_changed("the same chmod", node, "c")?;
    }
    Ok(())
}

fn changing_owners(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.age(node)?;
    let changes = vfs::file_system::SetAttr { uid: Some(1), ..Default::default() };
    s.set(node, &changes)?;
    s.has_changed("chown", node, "c")
}

fn changing_xattrs(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for value in [&b"1"[..], b"2", b"2"] {
        s.age(node)?;
        s.set_xattr(node, b"user.a", value)?;
        s.has_changed("set_xattr", node, "c")?;
    }
    s.age(node)?;
    s.xattr(node, b"user.a")?;
    s.has_changed("get_xattr", node, "")?;
    ok("remove_xattr", s.fs.remove_xattr(node, b"user.a"))?;
    s.has_changed("remove_xattr", node, "c")
}

fn changing_acls(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.age(node)?;
    s.set_xattr(node, vfs::acl::ACCESS_NAME, &list_for_user(5, 7))?;
    s.has_changed("an access list", node, "c")
}

fn changing_flags(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.age(node)?;
    s.set_flags(node, NodeFlags::NODUMP)?;
    s.has_changed("set_flags", node, "c")
}

fn syncing(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &[1; 100_000])?;
    s.age(node)?;
    s.age(ROOT)?;
    ok("sync_file", s.fs.sync_file(node, NO_HANDLE, vfs::file_system::SyncWhat::All))?;
    ok("sync_fs", s.fs.sync_fs())?;
    s.has_changed("syncing", node, "")?;
    s.has_changed("syncing", ROOT, "")
}
