//! Tests that access control lists and permission bits keep in step. `suite` runs these cases.

use vfs::acl::{ACCESS_NAME, DEFAULT_NAME};
use vfs::file_system::{Errno, NewNode, NodeKind, XattrMode};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused, refused_as};
use super::subject::{ROOT, Subject, new};

cases! { "acls":
    are_read_back,
    set_permission_bits,
    follow_permission_bits,
    that_say_no_more_than_bits,
    without_entries_are_removed,
    that_are_invalid,
    are_removed,
    of_symlinks,
    by_default_for_directories_only,
    by_default_are_inherited,
    by_default_replace_the_mask,
    by_default_are_handed_down,
    by_default_without_named_entries,
    by_default_do_not_guard_the_directory,
    by_default_leave_symlinks_alone,
    by_default_for_unnamed_files,
    keep_set_group,
    take_set_group_away_when_told,
}

const NOBODY: u32 = u32::MAX;

type Raw = (u16, u16, u32);

fn list(entries: &[Raw]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Owner, owning group and others.
fn plain(owner: u16, group: u16, others: u16) -> Vec<u8> {
    list(&[(1, owner, NOBODY), (4, group, NOBODY), (0x20, others, NOBODY)])
}

/// With a named user.
fn named(owner: u16, user: Raw, group: u16, mask: u16, others: u16) -> Vec<u8> {
    list(&[(1, owner, NOBODY), user, (4, group, NOBODY), (0x10, mask, NOBODY), (0x20, others, NOBODY)])
}

/// Owner rw, one user as told, group r, mask the user's, others nothing.
pub(super) fn list_for_user(uid: u32, permissions: u16) -> Vec<u8> {
    named(6, (2, permissions, uid), 4, permissions, 0)
}

fn are_read_back(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let value = list_for_user(5, 7);
    s.set_xattr(node, ACCESS_NAME, &value)?;
    equal("list", Some(value), s.xattr(node, ACCESS_NAME)?)?;
    let names = ok("list_xattrs", s.fs.list_xattrs(node))?;
    equal("names", vec![ACCESS_NAME.to_vec()], names)
}

fn set_permission_bits(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.set_xattr(node, ACCESS_NAME, &named(6, (2, 7, 5), 4, 3, 1))?;
    equal("permissions", 0o631, s.attr(node)?.permissions)?;
    s.chmod(node, 0o1777)?;
    s.set_xattr(node, ACCESS_NAME, &named(4, (2, 7, 5), 4, 0, 0))?;
    equal("permissions", 0o1400, s.attr(node)?.permissions)
}

fn follow_permission_bits(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.set_xattr(node, ACCESS_NAME, &named(6, (2, 7, 5), 4, 3, 0))?;
    s.chmod(node, 0o125)?;
    let expected = named(1, (2, 7, 5), 4, 2, 5);
    equal("list", Some(expected), s.xattr(node, ACCESS_NAME)?)?;
    equal("permissions", 0o125, s.attr(node)?.permissions)
}

fn that_say_no_more_than_bits(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.set_xattr(node, ACCESS_NAME, &list_for_user(5, 7))?;
    s.set_xattr(node, ACCESS_NAME, &plain(7, 5, 1))?;
    equal("permissions", 0o751, s.attr(node)?.permissions)?;
    equal("list", None, s.xattr(node, ACCESS_NAME)?)
}

fn without_entries_are_removed(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.set_xattr(dir, ACCESS_NAME, &list_for_user(5, 7))?;
    s.set_xattr(dir, DEFAULT_NAME, &list_for_user(5, 7))?;
    for name in [ACCESS_NAME, DEFAULT_NAME] {
        s.set_xattr(dir, name, &list(&[]))?;
        equal("list", None, s.xattr(dir, name)?)?;
    }
    equal("permissions", 0o670, s.attr(dir)?.permissions)
}

fn that_are_invalid(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let mut other_version = plain(7, 5, 5);
    other_version[0] = 1;
    let mut cut_off = plain(7, 5, 5);
    cut_off.pop();
    let invalid = [
        list(&[(1, 7, NOBODY)]),
        list(&[(4, 7, NOBODY), (1, 7, NOBODY), (0x20, 0, NOBODY)]),
        list(&[(1, 8, NOBODY), (4, 0, NOBODY), (0x20, 0, NOBODY)]),
        list(&[(1, 7, NOBODY), (2, 7, 5), (4, 0, NOBODY), (0x20, 0, NOBODY)]),
        cut_off,
    ];
    for name in [ACCESS_NAME, DEFAULT_NAME] {
        for value in &invalid {
            let set = s.try_set_xattr(dir, name, value);
            refused("set_xattr", Errno::EINVAL, set)?;
        }
        let set = s.try_set_xattr(dir, name, &other_version);
        refused("other version", Errno::EOPNOTSUPP, set)?;
        equal("list", None, s.xattr(dir, name)?)?;
    }
    equal("permissions", 0o755, s.attr(dir)?.permissions)
}

fn are_removed(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.set_xattr(node, ACCESS_NAME, &list_for_user(5, 7))?;
    ok("remove_xattr", s.fs.remove_xattr(node, ACCESS_NAME))?;
    equal("list", None, s.xattr(node, ACCESS_NAME)?)?;
    equal("permissions", 0o670, s.attr(node)?.permissions)?;
    s.chmod(node, 0o600)?;
    equal("list", None, s.xattr(node, ACCESS_NAME)?)?;
    // Linux takes both for an answer.
    let again = s.fs.remove_xattr(node, ACCESS_NAME);
    holds("again", matches!(again, Ok(()) | Err(Errno::ENODATA)))
}

fn of_symlinks(s: &Subject) -> Outcome {
    let link = s.symlink(ROOT, b"link", b"target")?;
    let set = s.try_set_xattr(link, ACCESS_NAME, &plain(7, 5, 5));
    refused("set_xattr", Errno::EOPNOTSUPP, set)?;
    let value = s.fs.get_xattr(link, ACCESS_NAME);
    refused_as("get_xattr", &[Errno::EOPNOTSUPP, Errno::ENODATA], value)
}

fn by_default_for_directories_only(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let set = s.try_set_xattr(node, DEFAULT_NAME, &list_for_user(5, 7));
    refused("set_xattr", Errno::EACCES, set)?;
    equal("list", None, s.xattr(node, DEFAULT_NAME)?)
}

fn by_default_are_inherited(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.set_xattr(dir, DEFAULT_NAME, &named(7, (2, 7, 5), 5, 7, 5))?;
    let file = s.make(dir, b"a", &new(NodeKind::File, 0o640))?;
    equal("permissions", 0o640, file.attr.permissions)?;
    let expected = named(6, (2, 7, 5), 5, 4, 0);
    equal("list", Some(expected), s.xattr(file.node, ACCESS_NAME)?)?;
    equal("no default", None, s.xattr(file.node, DEFAULT_NAME)?)
}

fn masked(kind: NodeKind, permissions: u32) -> NewNode<'static> {
    NewNode { umask: 0o077, ..new(kind, permissions) }
}

fn by_default_replace_the_mask(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.set_xattr(dir, DEFAULT_NAME, &named(7, (2, 7, 5), 5, 7, 5))?;
    let file = s.make(dir, b"a", &masked(NodeKind::File, 0o666))?;
    equal("permissions", 0o664, file.attr.permissions)?;
    s.set_xattr(dir, DEFAULT_NAME, &list(&[]))?;
    let file = s.make(dir, b"b", &masked(NodeKind::File, 0o666))?;
    equal("without a list", 0o600, file.attr.permissions)
}

fn by_default_are_handed_down(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let default = named(7, (2, 7, 5), 5, 7, 5);
    s.set_xattr(dir, DEFAULT_NAME, &default)?;
    let sub = s.make(dir, b"sub", &masked(NodeKind::Directory, 0o777))?;
    equal("permissions", 0o775, sub.attr.permissions)?;
    equal("default", Some(default), s.xattr(sub.node, DEFAULT_NAME)?)?;
    let file = s.make(sub.node, b"a", &new(NodeKind::File, 0o600))?;
    let expected = named(6, (2, 7, 5), 5, 0, 0);
    equal("list below", Some(expected), s.xattr(file.node, ACCESS_NAME)?)
}

fn by_default_without_named_entries(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.set_xattr(dir, DEFAULT_NAME, &plain(7, 5, 0))?;
    let file = s.make(dir, b"a", &masked(NodeKind::File, 0o4666))?;
    equal("permissions", 0o4640, file.attr.permissions)?;
    equal("list", None, s.xattr(file.node, ACCESS_NAME)?)?;
    let sub = s.make(dir, b"sub", &masked(NodeKind::Directory, 0o1777))?;
    equal("permissions", 0o1750, sub.attr.permissions)?;
    equal("default", Some(plain(7, 5, 0)), s.xattr(sub.node, DEFAULT_NAME)?)
}

fn by_default_do_not_guard_the_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.set_xattr(dir, DEFAULT_NAME, &list_for_user(5, 7))?;
    equal("permissions", 0o755, s.attr(dir)?.permissions)?;
    equal("list", None, s.xattr(dir, ACCESS_NAME)?)?;
    s.chmod(dir, 0o700)?;
    let default = s.xattr(dir, DEFAULT_NAME)?;
    equal("default", Some(list_for_user(5, 7)), default)
}

fn by_default_leave_symlinks_alone(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.set_xattr(dir, DEFAULT_NAME, &list_for_user(5, 7))?;
    let link = s.symlink(dir, b"link", b"target")?;
    equal("permissions", 0o777, s.attr(link)?.permissions)?;
    let names = ok("list_xattrs", s.fs.list_xattrs(link))?;
    equal("names", Vec::new(), names)
}

fn by_default_for_unnamed_files(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.set_xattr(dir, DEFAULT_NAME, &list_for_user(5, 7))?;
    let caller = &super::subject::CALLER;
    let flags = vfs::file_system::OpenFlags::WRITE;
    let node = masked(NodeKind::File, 0o666);
    let made = s.fs.create_unnamed(caller, dir, &node, flags);
    let (entry, handle) = ok("create_unnamed", made)?;
    equal("permissions", 0o660, entry.attr.permissions)?;
    s.fs.release(entry.node, handle);
    let expected = Some(list_for_user(5, 7)).map(|_| named(6, (2, 7, 5), 4, 6, 0));
    equal("list", expected, s.xattr(entry.node, ACCESS_NAME)?)
}

fn keep_set_group(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.chmod(node, 0o6755)?;
    s.set_xattr(node, ACCESS_NAME, &list_for_user(5, 7))?;
    equal("permissions", 0o6670, s.attr(node)?.permissions)
}

fn take_set_group_away_when_told(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.chmod(node, 0o6755)?;
    let mode = XattrMode::Either;
    let value = list_for_user(5, 7);
    let set = s.fs.set_xattr(node, ACCESS_NAME, &value, mode, true);
    ok("set_xattr", set)?;
    equal("permissions", 0o4670, s.attr(node)?.permissions)
}
