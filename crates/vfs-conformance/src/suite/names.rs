//! Tests names: which ones there are, and where they lead. `suite` runs these cases.

use vfs::file_system::{Errno, NewNode, NodeId, NodeKind, RenameFlags};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, refused};
use super::subject::{ROOT, Subject, new, shown};

cases! { "names":
    root_is_a_directory,
    missing,
    in_what_is_no_directory,
    of_255_bytes,
    too_long_to_look_up,
    too_long_to_make,
    too_long_to_link,
    too_long_to_rename,
    too_long_to_remove,
    of_any_bytes,
    that_differ_in_case,
    dot_dot_leads_up,
    dot_dot_of_root_is_root,
    of_a_node_that_is_gone,
    dot_finds_any_node_again,
    dot_finds_no_node_without_names,
    dot_finds_no_node_that_never_was,
}

fn root_is_a_directory(s: &Subject) -> Outcome {
    let attr = s.attr(ROOT)?;
    equal("kind", NodeKind::Directory, attr.kind)?;
    holds("ino is not 0", attr.ino != 0)?;
    holds("it has a link", attr.nlink > 0)
}

fn missing(s: &Subject) -> Outcome {
    refused("lookup", Errno::ENOENT, s.fs.lookup(ROOT, b"a"))?;
    s.file(ROOT, b"ab")?;
    refused("lookup of a prefix", Errno::ENOENT, s.fs.lookup(ROOT, b"a"))?;
    refused("lookup of more", Errno::ENOENT, s.fs.lookup(ROOT, b"abc"))
}

fn in_what_is_no_directory(s: &Subject) -> Outcome {
    let file = s.file(ROOT, b"file")?;
    let link = s.symlink(ROOT, b"link", b"file")?;
    for node in [file, link] {
        refused("lookup", Errno::ENOTDIR, s.fs.lookup(node, b"a"))?;
        let made = s.try_make(node, b"a", NodeKind::File);
        refused("create", Errno::ENOTDIR, made)?;
        refused("unlink", Errno::ENOTDIR, s.fs.unlink(node, b"a"))?;
        refused("remove_dir", Errno::ENOTDIR, s.fs.remove_dir(node, b"a"))?;
    }
    Ok(())
}

fn of_255_bytes(s: &Subject) -> Outcome {
    let (one, two) = ([b'a'; 255], [b'b'; 255]);
    let node = s.file(ROOT, &one)?;
    equal("node", node, s.lookup(ROOT, &one)?.node)?;
    s.rename((ROOT, &one), (ROOT, &two))?;
    s.link(node, ROOT, &one)?;
    equal("names", vec![one.to_vec(), two.to_vec()], s.names(ROOT)?)?;
    s.unlink(ROOT, &one)?;
    s.unlink(ROOT, &two)?;
    s.dir(ROOT, &one)?;
    s.remove_dir(ROOT, &one)
}

const TOO_LONG: &[u8] = &[b'a'; 256];

fn too_long_to_look_up(s: &Subject) -> Outcome {
    let found = s.fs.lookup(ROOT, TOO_LONG);
    refused("lookup", Errno::ENAMETOOLONG, found)
}

fn too_long_to_make(s: &Subject) -> Outcome {
    for kind in [NodeKind::File, NodeKind::Directory, NodeKind::Fifo] {
        let made = s.try_make(ROOT, TOO_LONG, kind);
        refused("create", Errno::ENAMETOOLONG, made)?;
    }
    equal("names", Vec::new(), s.names(ROOT)?)
}

fn too_long_to_link(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let linked = s.fs.link(node, ROOT, TOO_LONG);
    refused("link", Errno::ENAMETOOLONG, linked)?;
    equal("links", 1, s.attr(node)?.nlink)
}

fn too_long_to_rename(s: &Subject) -> Outcome {
    s.file(ROOT, b"a")?;
    let none = RenameFlags::empty();
    let renamed = s.try_rename((ROOT, b"a"), (ROOT, TOO_LONG), none);
    refused("rename", Errno::ENAMETOOLONG, renamed)?;
    equal("names", vec![b"a".to_vec()], s.names(ROOT)?)
}

fn too_long_to_remove(s: &Subject) -> Outcome {
    let unlinked = s.fs.unlink(ROOT, TOO_LONG);
    refused("unlink", Errno::ENAMETOOLONG, unlinked)?;
    let removed = s.fs.remove_dir(ROOT, TOO_LONG);
    refused("remove_dir", Errno::ENAMETOOLONG, removed)
}

fn of_any_bytes(s: &Subject) -> Outcome {
    let mut names: Vec<Vec<u8>> =
        (1..=255).filter(|byte| !matches!(byte, b'/' | b'.')).map(|byte| vec![byte]).collect();
    names.extend([b"...".to_vec(), b"..a".to_vec(), b"\xff\xfe\x80".to_vec()]);
    names.sort_unstable();
    for name in &names {
        s.file(ROOT, name)?;
    }
    equal("names", &names, &s.names(ROOT)?)?;
    for name in &names {
        s.unlink(ROOT, name)?;
    }
    equal("names", Vec::new(), s.names(ROOT)?)
}

fn that_differ_in_case(s: &Subject) -> Outcome {
    let (lower, upper) = (s.file(ROOT, b"a")?, s.file(ROOT, b"A")?);
    equal("lower", lower, s.lookup(ROOT, b"a")?.node)?;
    equal("upper", upper, s.lookup(ROOT, b"A")?.node)
}

fn dot_dot_leads_up(s: &Subject) -> Outcome {
    let outer = s.dir(ROOT, b"outer")?;
    let inner = s.dir(outer, b"inner")?;
    equal("above inner", outer, s.lookup(inner, b"..")?.node)?;
    equal("above outer", ROOT, s.lookup(outer, b"..")?.node)
}

fn dot_dot_of_root_is_root(s: &Subject) -> Outcome {
    equal("above root", ROOT, s.lookup(ROOT, b"..")?.node)
}

fn of_a_node_that_is_gone(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.unlink(ROOT, b"a")?;
    s.fs.forget(node, 1);
    refused("lookup", Errno::ENOENT, s.fs.lookup(ROOT, b"a"))?;
    refused("attr", Errno::ESTALE, s.fs.attr(node))
}

fn dot_finds_any_node_again(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    for kind in [NodeKind::File, NodeKind::Directory, NodeKind::Fifo, NodeKind::Symlink] {
        let target: &[u8] = if kind == NodeKind::Symlink { b"target" } else { b"" };
        let made = s.make(dir, b"a", &NewNode { target, ..new(kind, 0o755) })?;
        for _ in 0..2 {
            let found = s.lookup(made.node, b".")?;
            equal("node", (made.node, made.generation), (found.node, found.generation))?;
            equal("attributes", made.attr.kind, found.attr.kind)?;
            // All references go, and it is found by its number alone.
            s.fs.forget(made.node, 2);
        }
        s.rename((dir, b"a"), (ROOT, b"b"))?;
        equal("moved", made.node, s.lookup(made.node, b".")?.node)?;
        match kind {
            NodeKind::Directory => s.remove_dir(ROOT, b"b")?,
            _ => s.unlink(ROOT, b"b")?,
        }
    }
    equal("root", (ROOT, 0), s.lookup(ROOT, b".").map(|root| (root.node, root.generation))?)
}

fn dot_finds_no_node_without_names(s: &Subject) -> Outcome {
    let (file, dir) = (s.file(ROOT, b"file")?, s.dir(ROOT, b"dir")?);
    s.unlink(ROOT, b"file")?;
    s.remove_dir(ROOT, b"dir")?;
    for node in [file, dir] {
        refused("lookup while referred to", Errno::ESTALE, s.fs.lookup(node, b"."))?;
        s.fs.forget(node, 1);
        refused("lookup", Errno::ESTALE, s.fs.lookup(node, b"."))?;
    }
    Ok(())
}

fn dot_finds_no_node_that_never_was(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"file")?.0;
    for number in [0, node + 1, node ^ (1 << 20), node ^ (1 << 50), node ^ (1 << 62), node | (1 << 63), u64::MAX] {
        for name in [&b"."[..], b".."] {
            let what = format!("lookup of {} in {number}", shown(name));
            refused(&what, Errno::ESTALE, s.fs.lookup(NodeId(number), name))?;
        }
    }
    Ok(())
}
