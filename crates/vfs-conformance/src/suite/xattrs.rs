//! Tests extended attributes. `suite` runs these cases.

use vfs::file_system::{Errno, NodeId, Result, XattrMode};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused, refused_as};
use super::random::Random;
use super::subject::{ROOT, Subject, numbered};

cases! { "xattrs":
    are_read_back,
    are_replaced,
    are_removed,
    that_are_missing,
    that_must_not_exist,
    that_must_exist,
    with_empty_values,
    of_every_name_space,
    of_no_name_space,
    without_a_name,
    with_long_names,
    with_too_long_names,
    with_large_values,
    with_too_large_values,
    in_numbers,
    on_directories_and_symlinks,
    belong_to_the_node,
    grow_and_shrink,
    survive_syncing,
}

fn set(s: &Subject, node: NodeId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
    s.fs.set_xattr(node, name, value, mode, false)
}

fn names(s: &Subject, node: NodeId) -> Outcome<Vec<Vec<u8>>> {
    let mut names = ok("list_xattrs", s.fs.list_xattrs(node))?;
    names.sort_unstable();
    Ok(names)
}

fn is(s: &Subject, node: NodeId, name: &[u8], value: &[u8]) -> Outcome {
    equal("value", Some(value.to_vec()), s.xattr(node, name)?)
}

fn are_read_back(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.set_xattr(node, b"user.a", b"one\0two\xff")?;
    is(s, node, b"user.a", b"one\0two\xff")?;
    equal("names", vec![b"user.a".to_vec()], names(s, node)?)
}

fn are_replaced(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for value in [&b"one"[..], b"three", b"2", b""] {
        s.set_xattr(node, b"user.a", value)?;
        is(s, node, b"user.a", value)?;
    }
    equal("names", 1, names(s, node)?.len())
}

fn are_removed(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.set_xattr(node, b"user.a", b"1")?;
    s.set_xattr(node, b"user.b", b"2")?;
    ok("remove_xattr", s.fs.remove_xattr(node, b"user.a"))?;
    equal("names", vec![b"user.b".to_vec()], names(s, node)?)?;
    let value = s.fs.get_xattr(node, b"user.a");
    refused("get_xattr", Errno::ENODATA, value)?;
    let removed = s.fs.remove_xattr(node, b"user.a");
    refused("remove_xattr", Errno::ENODATA, removed)
}

fn that_are_missing(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for name in [&b"user.a"[..], b"trusted.a", b"security.a"] {
        refused("get_xattr", Errno::ENODATA, s.fs.get_xattr(node, name))?;
        let removed = s.fs.remove_xattr(node, name);
        refused("remove_xattr", Errno::ENODATA, removed)?;
    }
    Ok(())
}

fn that_must_not_exist(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    ok("set_xattr", set(s, node, b"user.a", b"1", XattrMode::Create))?;
    let again = set(s, node, b"user.a", b"2", XattrMode::Create);
    refused("set_xattr", Errno::EEXIST, again)?;
    is(s, node, b"user.a", b"1")
}

fn that_must_exist(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let missing = set(s, node, b"user.a", b"1", XattrMode::Replace);
    refused("set_xattr", Errno::ENODATA, missing)?;
    equal("names", Vec::new(), names(s, node)?)?;
    s.set_xattr(node, b"user.a", b"1")?;
    ok("set_xattr", set(s, node, b"user.a", b"22", XattrMode::Replace))?;
    is(s, node, b"user.a", b"22")
}

fn with_empty_values(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.set_xattr(node, b"user.a", b"")?;
    is(s, node, b"user.a", b"")?;
    equal("names", vec![b"user.a".to_vec()], names(s, node)?)
}

fn of_every_name_space(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for name in [&b"user.a"[..], b"trusted.a", b"security.a"] {
        s.set_xattr(node, name, name)?;
        is(s, node, name, name)?;
    }
    equal("names", 3, names(s, node)?.len())
}

fn of_no_name_space(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for name in [&b"foo.a"[..], b"foo", b"system.a", b"User.a", b"usera", b"user"] {
        let value = s.fs.get_xattr(node, name);
        refused("get_xattr", Errno::EOPNOTSUPP, value)?;
        let set = s.try_set_xattr(node, name, b"1");
        refused("set_xattr", Errno::EOPNOTSUPP, set)?;
        let removed = s.fs.remove_xattr(node, name);
        refused("remove_xattr", Errno::EOPNOTSUPP, removed)?;
    }
    equal("names", Vec::new(), names(s, node)?)
}

fn without_a_name(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for name in [&b"user."[..], b"trusted.", b"security."] {
        let set = s.try_set_xattr(node, name, b"1");
        refused("set_xattr", Errno::EINVAL, set)?;
    }
    Ok(())
}

fn with_long_names(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let name = [&b"user."[..], &[b'x'; 250]].concat();
    s.set_xattr(node, &name, b"1")?;
    is(s, node, &name, b"1")?;
    equal("names", vec![name], names(s, node)?)
}

fn with_too_long_names(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let name = [&b"user."[..], &[b'x'; 251]].concat();
    let set = s.try_set_xattr(node, &name, b"1");
    refused_as("set_xattr", &[Errno::ERANGE, Errno::ENAMETOOLONG], set)?;
    equal("names", Vec::new(), names(s, node)?)
}

fn with_large_values(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for len in [100, 1000, 3500] {
        let value = Random::new(1).bytes(len);
        s.set_xattr(node, b"user.a", &value)?;
        is(s, node, b"user.a", &value)?;
    }
    Ok(())
}

fn with_too_large_values(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.set_xattr(node, b"user.a", b"1")?;
    let errnos = [Errno::ENOSPC, Errno::E2BIG, Errno::ERANGE];
    let set = s.try_set_xattr(node, b"user.a", &[7; 70_000]);
    refused_as("set_xattr", &errnos, set)?;
    is(s, node, b"user.a", b"1")
}

fn in_numbers(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let name = |number| [b"user.".to_vec(), numbered("n", number)].concat();
    for number in 0..100 {
        s.set_xattr(node, &name(number), &[b'v'; 25])?;
    }
    let expected: Vec<_> = (0..100).map(name).collect();
    equal("names", expected, names(s, node)?)?;
    for number in (0..100).step_by(2) {
        ok("remove_xattr", s.fs.remove_xattr(node, &name(number)))?;
    }
    equal("names", 50, names(s, node)?.len())?;
    is(s, node, &name(51), &[b'v'; 25])
}

fn on_directories_and_symlinks(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let link = s.symlink(ROOT, b"link", b"dir")?;
    for node in [dir, link, ROOT] {
        s.set_xattr(node, b"trusted.a", b"1")?;
        is(s, node, b"trusted.a", b"1")?;
    }
    Ok(())
}

fn belong_to_the_node(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.set_xattr(node, b"user.a", b"1")?;
    s.link(node, ROOT, b"b")?;
    s.rename((ROOT, b"a"), (ROOT, b"c"))?;
    is(s, s.lookup(ROOT, b"b")?.node, b"user.a", b"1")?;
    s.unlink(ROOT, b"b")?;
    s.unlink(ROOT, b"c")?;
    s.fs.forget(node, 3);
    let new = s.file(ROOT, b"a")?;
    holds("a new file has none", names(s, new)?.is_empty())
}

fn grow_and_shrink(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let mut random = Random::new(2);
    let mut model = vec![None; 8];
    for _ in 0..200 {
        let index = usize::try_from(random.below(8)).unwrap_or(0);
        let name = [b"user.".to_vec(), numbered("n", index)].concat();
        let len = usize::try_from(random.below(400)).unwrap_or(0);
        if len < 40 && model[index].is_some() {
            ok("remove_xattr", s.fs.remove_xattr(node, &name))?;
            model[index] = None;
        } else {
            let value = random.bytes(len);
            s.set_xattr(node, &name, &value)?;
            model[index] = Some(value);
        }
        equal("value", model[index].clone(), s.xattr(node, &name)?)?;
    }
    let count = model.iter().flatten().count();
    equal("names", count, names(s, node)?.len())
}

fn survive_syncing(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.set_xattr(node, b"user.a", b"1")?;
    ok("sync_fs", s.fs.sync_fs())?;
    s.set_xattr(node, b"user.b", b"2")?;
    s.fs.forget(node, 1);
    let node = s.lookup(ROOT, b"a")?.node;
    is(s, node, b"user.a", b"1")?;
    is(s, node, b"user.b", b"2")
}
