//! Tests nodes without names: how long they live. `suite` runs these cases.

use vfs::file_system::{Errno, NodeId, OpenFlags, SetAttr};

use super::case::cases;
use super::outcome::{Outcome, equal, ok, refused, same_bytes};
use super::subject::{NO_HANDLE, ROOT, Subject, is_dots};

cases! { "unlinked":
    while_open,
    while_referred_to,
    until_forgotten_and_then_released,
    until_released_and_then_forgotten,
    until_the_last_of_several,
    can_still_be_changed,
    large_file,
    directory,
    directory_within_a_removed_one,
    more_forgotten_than_given,
    forgotten_with_a_name,
    many_at_once,
}

fn is_gone(s: &Subject, node: NodeId) -> Outcome {
    refused("attr", Errno::ESTALE, s.fs.attr(node))?;
    let opened = s.fs.open(&super::subject::CALLER, node, OpenFlags::READ);
    refused("open", Errno::ESTALE, opened)
}

fn while_open(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"one")?;
    let handle = s.open(node, OpenFlags::READ | OpenFlags::WRITE)?;
    s.fs.forget(node, 1);
    s.unlink(ROOT, b"a")?;
    s.write(node, 3, b"two")?;
    equal("contents", b"onetwo".to_vec(), s.read(node, 0, 100)?)?;
    let attr = s.attr(node)?;
    equal("links and size", (0, 6), (attr.nlink, attr.size))?;
    s.fs.release(node, handle);
    is_gone(s, node)
}

fn while_referred_to(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"one")?;
    s.unlink(ROOT, b"a")?;
    let handle = s.open(node, OpenFlags::READ)?;
    s.fs.release(node, handle);
    equal("contents", b"one".to_vec(), s.read(node, 0, 100)?)?;
    s.fs.forget(node, 1);
    is_gone(s, node)
}

fn until_forgotten_and_then_released(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let handle = s.open(node, OpenFlags::READ)?;
    s.unlink(ROOT, b"a")?;
    s.fs.forget(node, 1);
    equal("links", 0, s.attr(node)?.nlink)?;
    s.fs.release(node, handle);
    is_gone(s, node)
}

fn until_released_and_then_forgotten(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let handle = s.open(node, OpenFlags::READ)?;
    s.unlink(ROOT, b"a")?;
    s.fs.release(node, handle);
    equal("links", 0, s.attr(node)?.nlink)?;
    s.fs.forget(node, 1);
    is_gone(s, node)
}

fn until_the_last_of_several(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.lookup(ROOT, b"a")?;
    s.lookup(ROOT, b"a")?;
    let handles = [s.open(node, OpenFlags::READ)?, s.open(node, OpenFlags::WRITE)?];
    s.unlink(ROOT, b"a")?;
    s.fs.forget(node, 2);
    for handle in handles {
        s.fs.release(node, handle);
        equal("links", 0, s.attr(node)?.nlink)?;
    }
    s.fs.forget(node, 1);
    is_gone(s, node)
}

fn can_still_be_changed(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"contents")?;
    s.unlink(ROOT, b"a")?;
    let changes = SetAttr { permissions: Some(0o600), size: Some(4), ..SetAttr::default() };
    let attr = s.set(node, &changes)?;
    equal("attr", (0o600, 4, 0), (attr.permissions, attr.size, attr.nlink))?;
    s.set_xattr(node, b"user.a", b"1")?;
    equal("xattr", Some(b"1".to_vec()), s.xattr(node, b"user.a")?)?;
    ok("sync_file", s.fs.sync_file(node, NO_HANDLE, vfs::file_system::SyncWhat::All))?;
    equal("contents", b"cont".to_vec(), s.read(node, 0, 100)?)
}

fn large_file(s: &Subject) -> Outcome {
    let data = super::random::Random::new(1).bytes(1 << 20);
    let node = s.file_with(ROOT, b"a", &data)?;
    s.unlink(ROOT, b"a")?;
    ok("sync_fs", s.fs.sync_fs())?;
    same_bytes("contents", &data, &s.read(node, 0, 2 << 20)?)?;
    s.fs.forget(node, 1);
    ok("sync_fs", s.fs.sync_fs())?;
    is_gone(s, node)
}

fn directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.remove_dir(ROOT, b"dir")?;
    equal("links", 0, s.attr(dir)?.nlink)?;
    refused("lookup", Errno::ENOENT, s.fs.lookup(dir, b"a"))?;
    refused("unlink", Errno::ENOENT, s.fs.unlink(dir, b"a"))?;
    s.chmod(dir, 0o700)?;
    // Linux does not ask for a listing any more.
    let listed = s.list(dir, 0, 10).unwrap_or_default();
    let names = listed.iter().filter(|listed| !is_dots(&listed.name));
    equal("names", 0, names.count())?;
    s.fs.forget(dir, 1);
    is_gone(s, dir)
}

fn directory_within_a_removed_one(s: &Subject) -> Outcome {
    let outer = s.dir(ROOT, b"outer")?;
    let inner = s.dir(outer, b"inner")?;
    s.remove_dir(outer, b"inner")?;
    s.remove_dir(ROOT, b"outer")?;
    s.fs.forget(outer, 1);
    equal("links", 0, s.attr(inner)?.nlink)?;
    s.fs.forget(inner, 1);
    is_gone(s, inner)
}

fn more_forgotten_than_given(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.fs.forget(node, 1000);
    s.fs.forget(node, u64::MAX);
    s.fs.forget(NodeId(0xffff_ffff_ffff), 1);
    let found = s.lookup(ROOT, b"a")?;
    equal("size", 0, s.attr(found.node)?.size)?;
    s.fs.forget(ROOT, 1000);
    holds_root(s)
}

fn holds_root(s: &Subject) -> Outcome {
    equal("names", vec![b"a".to_vec()], s.names(ROOT)?)
}

fn forgotten_with_a_name(s: &Subject) -> Outcome {
    let data = super::random::Random::new(2).bytes(100_000);
    let node = s.file_with(ROOT, b"a", &data)?;
    s.chmod(node, 0o640)?;
    s.fs.forget(node, 1);
    equal("links", 1, s.attr(node)?.nlink)?;
    let found = s.lookup(ROOT, b"a")?;
    equal("permissions", 0o640, found.attr.permissions)?;
    same_bytes("contents", &data, &s.read(found.node, 0, 200_000)?)
}

fn many_at_once(s: &Subject) -> Outcome {
    let mut nodes = Vec::new();
    for number in 0..200_u8 {
        let node = s.file_with(ROOT, b"a", &[number; 10])?;
        s.unlink(ROOT, b"a")?;
        nodes.push((number, node));
    }
    for (number, node) in nodes {
        equal("contents", vec![number; 10], s.read(node, 0, 100)?)?;
        s.fs.forget(node, 1);
        is_gone(s, node)?;
    }
    Ok(())
}
