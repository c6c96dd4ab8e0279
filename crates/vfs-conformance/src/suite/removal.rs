//! Tests the removal of names: unlink and rmdir. `suite` runs these cases.

use vfs::file_system::{Errno, NodeId, NodeKind};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, refused};
use super::subject::{ROOT, Subject, numbered};

cases! { "removal":
    of_a_file,
    of_a_missing_name,
    of_a_directory_by_unlink,
    of_a_file_by_rmdir,
    of_a_full_directory,
    of_an_emptied_directory,
    of_a_symlink_leaves_its_target,
    of_every_kind,
    makes_room_for_the_name,
    counts_subdirectories_or_not,
    of_many,
}

fn of_a_file(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.file(ROOT, b"b")?;
    s.unlink(ROOT, b"a")?;
    equal("links", 0, s.attr(node)?.nlink)?;
    equal("names", vec![b"b".to_vec()], s.names(ROOT)?)
}

fn of_a_missing_name(s: &Subject) -> Outcome {
    refused("unlink", Errno::ENOENT, s.fs.unlink(ROOT, b"a"))?;
    refused("remove_dir", Errno::ENOENT, s.fs.remove_dir(ROOT, b"a"))
}

fn of_a_directory_by_unlink(s: &Subject) -> Outcome {
    s.dir(ROOT, b"dir")?;
    refused("unlink", Errno::EISDIR, s.fs.unlink(ROOT, b"dir"))?;
    holds("it stays", s.is_there(ROOT, b"dir")?)
}

fn of_a_file_by_rmdir(s: &Subject) -> Outcome {
    s.file(ROOT, b"file")?;
    s.symlink(ROOT, b"link", b"file")?;
    for name in [&b"file"[..], b"link"] {
        let removed = s.fs.remove_dir(ROOT, name);
        refused("remove_dir", Errno::ENOTDIR, removed)?;
        holds("it stays", s.is_there(ROOT, name)?)?;
    }
    Ok(())
}

fn of_a_full_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.dir(dir, b"sub")?;
    refused("remove_dir", Errno::ENOTEMPTY, s.fs.remove_dir(ROOT, b"dir"))?;
    holds("it stays", s.is_there(dir, b"sub")?)
}

fn of_an_emptied_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.dir(dir, b"sub")?;
    s.file(dir, b"file")?;
    s.remove_dir(dir, b"sub")?;
    s.unlink(dir, b"file")?;
    s.remove_dir(ROOT, b"dir")?;
    equal("links", 0, s.attr(dir)?.nlink)?;
    holds("it is gone", !s.is_there(ROOT, b"dir")?)
}

fn of_a_symlink_leaves_its_target(s: &Subject) -> Outcome {
    s.dir(ROOT, b"dir")?;
    s.symlink(ROOT, b"link", b"dir")?;
    s.unlink(ROOT, b"link")?;
    equal("names", vec![b"dir".to_vec()], s.names(ROOT)?)
}

fn of_every_kind(s: &Subject) -> Outcome {
    s.symlink(ROOT, b"a", b"b")?;
    s.unlink(ROOT, b"a")?;
    let kinds = [NodeKind::File, NodeKind::Fifo, NodeKind::Socket, NodeKind::CharDevice, NodeKind::BlockDevice];
    for kind in kinds {
        super::outcome::ok("create", s.try_make(ROOT, b"a", kind))?;
        s.unlink(ROOT, b"a")?;
    }
    equal("names", Vec::new(), s.names(ROOT)?)
}

fn makes_room_for_the_name(s: &Subject) -> Outcome {
    let old = s.file_with(ROOT, b"a", b"old")?;
    s.unlink(ROOT, b"a")?;
    let new = s.file(ROOT, b"a")?;
    holds("another node", old != new)?;
    equal("contents", Vec::new(), s.read(new, 0, 100)?)?;
    equal("old contents", b"old".to_vec(), s.read(old, 0, 100)?)?;
    s.unlink(ROOT, b"a")?;
    s.dir(ROOT, b"a")?;
    s.remove_dir(ROOT, b"a")
}

/// A directory has one link, or one more for `.` and for every subdirectory's `..`.
fn counts_subdirectories_or_not(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let check = |count: u32| {
        let nlink = s.attr(dir)?.nlink;
        let expected = if nlink == 1 { 1 } else { 2 + count };
        equal("links", expected, nlink)
    };
    check(0)?;
    s.dir(dir, b"a")?;
    s.dir(dir, b"b")?;
    s.file(dir, b"c")?;
    check(2)?;
    s.rename((dir, b"a"), (ROOT, b"a"))?;
    check(1)?;
    s.remove_dir(dir, b"b")?;
    check(0)
}

fn of_many(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let count = |dir: NodeId| Ok(s.names(dir)?.len());
    for number in 0..1000 {
        let node = s.file(dir, &numbered("file", number))?;
        s.fs.forget(node, 1);
    }
    equal("names", 1000, count(dir)?)?;
    for number in (0..1000).rev() {
        s.unlink(dir, &numbered("file", number))?;
    }
    equal("names", 0, count(dir)?)?;
    s.remove_dir(ROOT, b"dir")
}
