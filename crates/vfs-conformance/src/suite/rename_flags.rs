//! Tests renaming with flags: without replacing, and exchanging. `suite` runs these cases.

use vfs::file_system::{Caller, Errno, NodeId, NodeKind, RenameFlags};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused};
use super::subject::{ROOT, Subject};

cases! { "rename_flags":
    no_replace_to_a_free_name,
    no_replace_over_a_name,
    exchange_of_files,
    exchange_of_unequal_kinds,
    exchange_across_directories,
    exchange_with_nothing,
    exchange_with_an_ancestor,
    exchange_of_names_of_one_node,
    exchange_leaves_full_directories,
    whiteout,
    whiteout_over_a_file,
    whiteout_of_no_replace,
    contradictions,
}

type Place<'a> = (NodeId, &'a [u8]);

const SWAP: RenameFlags = RenameFlags::EXCHANGE;

fn fails(s: &Subject, errno: Errno, from: Place<'_>, to: Place<'_>, flags: RenameFlags) -> Outcome {
    let what = format!("rename {flags:?}");
    refused(&what, errno, s.try_rename(from, to, flags))
}

fn no_replace_to_a_free_name(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.rename_with((ROOT, b"a"), (ROOT, b"b"), RenameFlags::NO_REPLACE)?;
    equal("node", node, s.lookup(ROOT, b"b")?.node)?;
    let flags = RenameFlags::NO_REPLACE;
    fails(s, Errno::ENOENT, (ROOT, b"a"), (ROOT, b"b"), flags)
}

fn no_replace_over_a_name(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.file(ROOT, b"b")?;
    s.dir(ROOT, b"dir")?;
    s.link(node, ROOT, b"c")?;
    for to in [&b"a"[..], b"b", b"c", b"dir"] {
        let flags = RenameFlags::NO_REPLACE;
        fails(s, Errno::EEXIST, (ROOT, b"a"), (ROOT, to), flags)?;
    }
    equal("links", 2, s.attr(node)?.nlink)
}

fn exchange_of_files(s: &Subject) -> Outcome {
    let (one, two) = (s.file(ROOT, b"a")?, s.file(ROOT, b"b")?);
    s.rename_with((ROOT, b"a"), (ROOT, b"b"), SWAP)?;
    equal("a", two, s.lookup(ROOT, b"a")?.node)?;
    equal("b", one, s.lookup(ROOT, b"b")?.node)?;
    equal("names", vec![b"a".to_vec(), b"b".to_vec()], s.names(ROOT)?)?;
    let links = (s.attr(one)?.nlink, s.attr(two)?.nlink);
    equal("links", (1, 1), links)
}

fn exchange_of_unequal_kinds(s: &Subject) -> Outcome {
    let (file, dir) = (s.file(ROOT, b"a")?, s.dir(ROOT, b"b")?);
    let link = s.symlink(ROOT, b"link", b"x")?;
    s.rename_with((ROOT, b"a"), (ROOT, b"b"), SWAP)?;
    s.rename_with((ROOT, b"a"), (ROOT, b"link"), SWAP)?;
    equal("a", link, s.lookup(ROOT, b"a")?.node)?;
    equal("b", file, s.lookup(ROOT, b"b")?.node)?;
    equal("link", dir, s.lookup(ROOT, b"link")?.node)
}

fn exchange_across_directories(s: &Subject) -> Outcome {
    let (d, e) = (s.dir(ROOT, b"d")?, s.dir(ROOT, b"e")?);
    let (one, two) = (s.dir(d, b"a")?, s.dir(e, b"bb")?);
    s.rename_with((d, b"a"), (e, b"bb"), SWAP)?;
    equal("d/a", two, s.lookup(d, b"a")?.node)?;
    equal("e/bb", one, s.lookup(e, b"bb")?.node)?;
    equal("above the first", e, s.lookup(one, b"..")?.node)?;
    equal("above the second", d, s.lookup(two, b"..")?.node)
}

fn exchange_with_nothing(s: &Subject) -> Outcome {
    s.file(ROOT, b"a")?;
    fails(s, Errno::ENOENT, (ROOT, b"a"), (ROOT, b"b"), SWAP)?;
    fails(s, Errno::ENOENT, (ROOT, b"b"), (ROOT, b"a"), SWAP)
}

fn exchange_with_an_ancestor(s: &Subject) -> Outcome {
    let a = s.dir(ROOT, b"a")?;
    let b = s.dir(a, b"b")?;
    s.dir(b, b"c")?;
    s.file(b, b"file")?;
    fails(s, Errno::EINVAL, (ROOT, b"a"), (b, b"c"), SWAP)?;
    fails(s, Errno::EINVAL, (b, b"c"), (ROOT, b"a"), SWAP)?;
    fails(s, Errno::EINVAL, (b, b"file"), (ROOT, b"a"), SWAP)?;
    fails(s, Errno::EINVAL, (a, b"b"), (ROOT, b"a"), SWAP)
}

fn exchange_of_names_of_one_node(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.link(node, ROOT, b"b")?;
    s.rename_with((ROOT, b"a"), (ROOT, b"b"), SWAP)?;
    s.rename_with((ROOT, b"a"), (ROOT, b"a"), SWAP)?;
    equal("links", 2, s.attr(node)?.nlink)?;
    equal("names", 2, s.names(ROOT)?.len())
}

fn exchange_leaves_full_directories(s: &Subject) -> Outcome {
    let (d, e) = (s.dir(ROOT, b"d")?, s.dir(ROOT, b"e")?);
    s.file(d, b"in d")?;
    s.file(e, b"in e")?;
    s.rename_with((ROOT, b"d"), (ROOT, b"e"), SWAP)?;
    let found = s.lookup(ROOT, b"e")?.node;
    holds("what was in d", s.is_there(found, b"in d")?)
}

fn is_whiteout(s: &Subject, dir: NodeId, name: &[u8]) -> Outcome {
    let attr = s.lookup(dir, name)?.attr;
    equal("kind", NodeKind::CharDevice, attr.kind)?;
    equal("device", 0, attr.rdev)?;
    equal("permissions", 0, attr.permissions)?;
    equal("links", 1, attr.nlink)
}

fn whiteout(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let node = s.file(ROOT, b"a")?;
    let caller = Caller { uid: 7, gid: 8, pid: 1 };
    let flags = RenameFlags::WHITEOUT;
    let renamed = s.fs.rename(&caller, (ROOT, b"a"), (dir, b"b"), flags);
    ok("rename", renamed)?;
    equal("node", node, s.lookup(dir, b"b")?.node)?;
    is_whiteout(s, ROOT, b"a")?;
    let attr = s.lookup(ROOT, b"a")?.attr;
    equal("owner", (7, 8), (attr.uid, attr.gid))?;
    s.unlink(ROOT, b"a")
}

fn whiteout_over_a_file(s: &Subject) -> Outcome {
    let one = s.file(ROOT, b"a")?;
    let two = s.file(ROOT, b"b")?;
    s.rename_with((ROOT, b"a"), (ROOT, b"b"), RenameFlags::WHITEOUT)?;
    equal("b", one, s.lookup(ROOT, b"b")?.node)?;
    equal("links of the replaced", 0, s.attr(two)?.nlink)?;
    is_whiteout(s, ROOT, b"a")
}

fn whiteout_of_no_replace(s: &Subject) -> Outcome {
    let flags = RenameFlags::WHITEOUT | RenameFlags::NO_REPLACE;
    s.dir(ROOT, b"a")?;
    s.file(ROOT, b"c")?;
    fails(s, Errno::EEXIST, (ROOT, b"a"), (ROOT, b"c"), flags)?;
    s.rename_with((ROOT, b"a"), (ROOT, b"b"), flags)?;
    is_whiteout(s, ROOT, b"a")
}

fn contradictions(s: &Subject) -> Outcome {
    s.file(ROOT, b"a")?;
    s.file(ROOT, b"b")?;
    for other in [RenameFlags::NO_REPLACE, RenameFlags::WHITEOUT] {
        fails(s, Errno::EINVAL, (ROOT, b"a"), (ROOT, b"b"), SWAP | other)?;
    }
    Ok(())
}
