//! Tests renaming without flags. `suite` runs these cases.

use vfs::file_system::{Errno, NodeId, NodeKind, RenameFlags};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused, refused_as};
use super::subject::{ROOT, Subject};

cases! { "rename":
    to_a_free_name,
    to_another_directory,
    of_every_kind,
    of_a_missing_name,
    over_a_file,
    over_one_of_two_names,
    over_a_directory_by_a_file,
    over_a_file_by_a_directory,
    over_an_empty_directory,
    over_a_full_directory,
    to_below_itself,
    to_its_own_ancestor,
    to_itself,
    to_another_name_of_the_node,
    with_symlinks,
    in_what_is_no_directory,
    to_a_removed_directory,
    of_a_directory_moves_dot_dot,
    of_an_open_file,
    over_an_open_file,
    back_and_forth,
}

const NONE: RenameFlags = RenameFlags::empty();

type Place<'a> = (NodeId, &'a [u8]);

fn fails(s: &Subject, errno: Errno, from: Place<'_>, to: Place<'_>) -> Outcome {
    refused("rename", errno, s.try_rename(from, to, NONE))
}

fn to_a_free_name(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"contents")?;
    s.rename((ROOT, b"a"), (ROOT, b"b"))?;
    equal("node", node, s.lookup(ROOT, b"b")?.node)?;
    equal("names", vec![b"b".to_vec()], s.names(ROOT)?)?;
    equal("links", 1, s.attr(node)?.nlink)?;
    equal("contents", b"contents".to_vec(), s.read(node, 0, 100)?)
}

fn to_another_directory(s: &Subject) -> Outcome {
    let (d, e) = (s.dir(ROOT, b"d")?, s.dir(ROOT, b"e")?);
    let node = s.file(d, b"a")?;
    s.rename((d, b"a"), (e, b"b"))?;
    equal("old place", Vec::new(), s.names(d)?)?;
    equal("new place", vec![b"b".to_vec()], s.names(e)?)?;
    equal("node", node, s.lookup(e, b"b")?.node)
}

fn of_every_kind(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let kinds = [NodeKind::File, NodeKind::Directory, NodeKind::Fifo, NodeKind::Socket, NodeKind::CharDevice];
    for kind in kinds {
        let made = ok("create", s.try_make(ROOT, b"a", kind))?;
        let name = format!("{kind:?}").into_bytes();
        s.rename((ROOT, b"a"), (dir, &name))?;
        let found = s.lookup(dir, &name)?;
        equal("node", made.node, found.node)?;
        equal("kind", kind, found.attr.kind)?;
    }
    Ok(())
}

fn of_a_missing_name(s: &Subject) -> Outcome {
    s.file(ROOT, b"file")?;
    s.dir(ROOT, b"dir")?;
    for to in [&b"b"[..], b"file", b"dir", b"a"] {
        fails(s, Errno::ENOENT, (ROOT, b"a"), (ROOT, to))?;
    }
    Ok(())
}

fn over_a_file(s: &Subject) -> Outcome {
    let one = s.file_with(ROOT, b"a", b"one")?;
    let two = s.file_with(ROOT, b"b", b"two")?;
    s.rename((ROOT, b"a"), (ROOT, b"b"))?;
    equal("names", vec![b"b".to_vec()], s.names(ROOT)?)?;
    equal("node", one, s.lookup(ROOT, b"b")?.node)?;
    equal("links of the replaced", 0, s.attr(two)?.nlink)?;
    s.fs.forget(two, 1);
    refused("attr", Errno::ESTALE, s.fs.attr(two))
}

fn over_one_of_two_names(s: &Subject) -> Outcome {
    s.file(ROOT, b"a")?;
    let two = s.file_with(ROOT, b"b", b"two")?;
    s.link(two, ROOT, b"c")?;
    s.rename((ROOT, b"a"), (ROOT, b"b"))?;
    equal("links", 1, s.attr(two)?.nlink)?;
    equal("node", two, s.lookup(ROOT, b"c")?.node)
}

fn over_a_directory_by_a_file(s: &Subject) -> Outcome {
    s.file(ROOT, b"a")?;
    let dir = s.dir(ROOT, b"dir")?;
    fails(s, Errno::EISDIR, (ROOT, b"a"), (ROOT, b"dir"))?;
    s.file(dir, b"x")?;
    fails(s, Errno::EISDIR, (ROOT, b"a"), (ROOT, b"dir"))?;
    holds("it stays", s.is_there(ROOT, b"a")?)
}

fn over_a_file_by_a_directory(s: &Subject) -> Outcome {
    s.file(ROOT, b"a")?;
    s.dir(ROOT, b"dir")?;
    fails(s, Errno::ENOTDIR, (ROOT, b"dir"), (ROOT, b"a"))?;
    holds("it stays", s.is_there(ROOT, b"dir")?)
}

fn over_an_empty_directory(s: &Subject) -> Outcome {
    let d = s.dir(ROOT, b"d")?;
    s.file(d, b"x")?;
    let e = s.dir(ROOT, b"e")?;
    s.rename((ROOT, b"d"), (ROOT, b"e"))?;
    equal("node", d, s.lookup(ROOT, b"e")?.node)?;
    equal("names", vec![b"e".to_vec()], s.names(ROOT)?)?;
    equal("links of the replaced", 0, s.attr(e)?.nlink)?;
    let made = s.try_make(e, b"y", NodeKind::File);
    refused("creation in the replaced", Errno::ENOENT, made)
}

fn over_a_full_directory(s: &Subject) -> Outcome {
    s.dir(ROOT, b"d")?;
    let e = s.dir(ROOT, b"e")?;
    s.file(e, b"x")?;
    fails(s, Errno::ENOTEMPTY, (ROOT, b"d"), (ROOT, b"e"))?;
    holds("it stays", s.is_there(e, b"x")?)
}

fn to_below_itself(s: &Subject) -> Outcome {
    let a = s.dir(ROOT, b"a")?;
    let b = s.dir(a, b"b")?;
    let c = s.dir(b, b"c")?;
    fails(s, Errno::EINVAL, (ROOT, b"a"), (a, b"x"))?;
    fails(s, Errno::EINVAL, (ROOT, b"a"), (c, b"x"))?;
    fails(s, Errno::EINVAL, (ROOT, b"a"), (b, b"c"))?;
    fails(s, Errno::EINVAL, (a, b"b"), (c, b"x"))?;
    equal("above b", a, s.lookup(b, b"..")?.node)
}

fn to_its_own_ancestor(s: &Subject) -> Outcome {
    let a = s.dir(ROOT, b"a")?;
    let b = s.dir(a, b"b")?;
    s.dir(b, b"c")?;
    s.file(b, b"file")?;
    fails(s, Errno::ENOTEMPTY, (b, b"c"), (ROOT, b"a"))?;
    fails(s, Errno::ENOTEMPTY, (b, b"c"), (a, b"b"))?;
    fails(s, Errno::ENOTEMPTY, (a, b"b"), (ROOT, b"a"))?;
    let renamed = s.try_rename((b, b"file"), (ROOT, b"a"), NONE);
    refused_as("rename of a file", &[Errno::ENOTEMPTY, Errno::EISDIR], renamed)
}

fn to_itself(s: &Subject) -> Outcome {
    let file = s.file_with(ROOT, b"a", b"contents")?;
    s.dir(ROOT, b"dir")?;
    s.rename((ROOT, b"a"), (ROOT, b"a"))?;
    s.rename((ROOT, b"dir"), (ROOT, b"dir"))?;
    equal("links", 1, s.attr(file)?.nlink)?;
    equal("contents", b"contents".to_vec(), s.read(file, 0, 100)?)?;
    equal("names", vec![b"a".to_vec(), b"dir".to_vec()], s.names(ROOT)?)
}

fn to_another_name_of_the_node(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let node = s.file(ROOT, b"a")?;
    s.link(node, ROOT, b"b")?;
    s.link(node, dir, b"c")?;
    s.rename((ROOT, b"a"), (ROOT, b"b"))?;
    s.rename((ROOT, b"a"), (dir, b"c"))?;
    holds("a stays", s.is_there(ROOT, b"a")?)?;
    equal("links", 3, s.attr(node)?.nlink)
}

fn with_symlinks(s: &Subject) -> Outcome {
    s.dir(ROOT, b"dir")?;
    s.symlink(ROOT, b"link", b"dir")?;
    fails(s, Errno::EISDIR, (ROOT, b"link"), (ROOT, b"dir"))?;
    fails(s, Errno::ENOTDIR, (ROOT, b"dir"), (ROOT, b"link"))?;
    s.file(ROOT, b"file")?;
    s.rename((ROOT, b"link"), (ROOT, b"file"))?;
    let kind = s.lookup(ROOT, b"file")?.attr.kind;
    equal("kind", NodeKind::Symlink, kind)
}

fn in_what_is_no_directory(s: &Subject) -> Outcome {
    let file = s.file(ROOT, b"a")?;
    fails(s, Errno::ENOTDIR, (ROOT, b"a"), (file, b"b"))?;
    fails(s, Errno::ENOTDIR, (file, b"b"), (ROOT, b"b"))
}

fn to_a_removed_directory(s: &Subject) -> Outcome {
    s.file(ROOT, b"a")?;
    let dir = s.dir(ROOT, b"dir")?;
    s.remove_dir(ROOT, b"dir")?;
    fails(s, Errno::ENOENT, (ROOT, b"a"), (dir, b"b"))?;
    holds("it stays", s.is_there(ROOT, b"a")?)?;
    // Whether a directory would come to be below itself is looked for on the way up, and here there is none.
    s.dir(ROOT, b"moved")?;
    fails(s, Errno::ENOENT, (ROOT, b"moved"), (dir, b"b"))?;
    holds("the directory stays", s.is_there(ROOT, b"moved")?)
}

fn of_a_directory_moves_dot_dot(s: &Subject) -> Outcome {
    let (d, e) = (s.dir(ROOT, b"d")?, s.dir(ROOT, b"e")?);
    let moved = s.dir(d, b"x")?;
    s.file(moved, b"inside")?;
    s.rename((d, b"x"), (e, b"y"))?;
    equal("above", e, s.lookup(moved, b"..")?.node)?;
    holds("what is in it", s.is_there(moved, b"inside")?)?;
    let dots = s.list(moved, 0, 2)?;
    let above = dots.iter().find(|dot| dot.name == b"..");
    equal("ino of ..", Some(s.attr(e)?.ino), above.map(|dot| dot.ino))
}

fn of_an_open_file(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let handle = s.open(node, vfs::file_system::OpenFlags::WRITE)?;
    s.rename((ROOT, b"a"), (ROOT, b"b"))?;
    s.write(node, 0, b"contents")?;
    s.fs.release(node, handle);
    let found = s.lookup(ROOT, b"b")?;
    equal("size", 8, found.attr.size)
}

fn over_an_open_file(s: &Subject) -> Outcome {
    s.file_with(ROOT, b"a", b"new")?;
    let old = s.file_with(ROOT, b"b", b"old")?;
    let handle = s.open(old, vfs::file_system::OpenFlags::READ)?;
    s.fs.forget(old, 1);
    s.rename((ROOT, b"a"), (ROOT, b"b"))?;
    equal("old contents", b"old".to_vec(), s.read(old, 0, 100)?)?;
    let new = s.lookup(ROOT, b"b")?.node;
    equal("new contents", b"new".to_vec(), s.read(new, 0, 100)?)?;
    s.fs.release(old, handle);
    refused("attr", Errno::ESTALE, s.fs.attr(old))
}

fn back_and_forth(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let node = s.file(ROOT, b"a")?;
    for _ in 0..100 {
        s.rename((ROOT, b"a"), (dir, b"b"))?;
        s.rename((dir, b"b"), (ROOT, b"a"))?;
    }
    equal("node", node, s.lookup(ROOT, b"a")?.node)?;
    equal("names", Vec::new(), s.names(dir)?)
}
