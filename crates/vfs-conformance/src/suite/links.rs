//! Tests several names for one node: hard links. `suite` runs these cases.

use vfs::file_system::Errno;

use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused};
use super::subject::{ROOT, Subject, numbered};

cases! { "links":
    lead_to_one_node,
    over_an_existing_name,
    to_a_directory,
    in_what_is_no_directory,
    in_a_removed_directory,
    to_what_has_no_name_left,
    to_a_symlink,
    in_hundreds,
    within_and_across_directories,
}

fn lead_to_one_node(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let node = s.file_with(ROOT, b"a", b"one")?;
    let linked = s.link(node, dir, b"b")?;
    equal("node", node, linked.node)?;
    equal("links", 2, linked.attr.nlink)?;
    let found = s.lookup(dir, b"b")?;
    equal("ino", s.attr(node)?.ino, found.attr.ino)?;
    s.write(found.node, 0, b"two")?;
    equal("contents", b"two".to_vec(), s.read(node, 0, 9)?)?;
    s.unlink(ROOT, b"a")?;
    equal("links left", 1, s.attr(node)?.nlink)?;
    holds("the other name", s.is_there(dir, b"b")?)
}

fn over_an_existing_name(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.file(ROOT, b"b")?;
    let dir = s.dir(ROOT, b"dir")?;
    for name in [&b"a"[..], b"b", b"dir"] {
        refused("link", Errno::EEXIST, s.fs.link(node, ROOT, name))?;
    }
    let link = s.fs.link(dir, ROOT, b"a");
    refused("link of a directory", Errno::EEXIST, link)?;
    equal("links", 1, s.attr(node)?.nlink)
}

fn to_a_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    refused("link", Errno::EPERM, s.fs.link(dir, ROOT, b"a"))?;
    refused("link of root", Errno::EPERM, s.fs.link(ROOT, dir, b"a"))
}

fn in_what_is_no_directory(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    refused("link", Errno::ENOTDIR, s.fs.link(node, node, b"b"))
}

fn in_a_removed_directory(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let dir = s.dir(ROOT, b"dir")?;
    s.remove_dir(ROOT, b"dir")?;
    refused("link", Errno::ENOENT, s.fs.link(node, dir, b"b"))?;
    equal("links", 1, s.attr(node)?.nlink)
}

fn to_what_has_no_name_left(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.unlink(ROOT, b"a")?;
    refused("link", Errno::ENOENT, s.fs.link(node, ROOT, b"b"))
}

fn to_a_symlink(s: &Subject) -> Outcome {
    let node = s.symlink(ROOT, b"a", b"target")?;
    s.link(node, ROOT, b"b")?;
    s.unlink(ROOT, b"a")?;
    let found = s.lookup(ROOT, b"b")?;
    let target = ok("read_link", s.fs.read_link(found.node))?;
    equal("target", b"target".to_vec(), target)
}

fn in_hundreds(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let dir = s.dir(ROOT, b"dir")?;
    let name = |number| [numbered("", number), vec![b'n'; 100]].concat();
    for number in 0..500 {
        s.link(node, dir, &name(number))?;
    }
    equal("links", 501, s.attr(node)?.nlink)?;
    equal("names", 500, s.names(dir)?.len())?;
    for number in (0..500).step_by(2) {
        s.unlink(dir, &name(number))?;
    }
    equal("links", 251, s.attr(node)?.nlink)?;
    for number in (1..500).step_by(2) {
        equal("node", node, s.lookup(dir, &name(number))?.node)?;
    }
    Ok(())
}

fn within_and_across_directories(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let dirs = [ROOT, s.dir(ROOT, b"d")?, s.dir(ROOT, b"e")?];
    for dir in dirs {
        s.link(node, dir, b"x")?;
        s.link(node, dir, b"y")?;
    }
    equal("links", 7, s.attr(node)?.nlink)?;
    for dir in dirs {
        s.unlink(dir, b"x")?;
        holds("the other name", s.is_there(dir, b"y")?)?;
        holds("no longer", !s.is_there(dir, b"x")?)?;
    }
    equal("links", 4, s.attr(node)?.nlink)
}
