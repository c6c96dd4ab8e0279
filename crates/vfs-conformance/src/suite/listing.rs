//! Tests listings of directories: their entries, the places at which they resume, and listings while names are added
//! and removed. `suite` runs these cases.

use std::collections::HashMap;

use vfs::file_system::{Errno, NodeId, NodeKind};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused};
use super::subject::{Listed, ROOT, Subject, is_dots, new, numbered};

cases! { "listing":
    of_an_empty_directory,
    of_the_dots,
    of_all_names,
    agrees_with_lookup,
    in_small_steps,
    after_the_end,
    after_every_name,
    goes_on_where_a_name_was_removed,
    goes_on_while_others_are_removed,
    goes_on_while_names_are_added,
    goes_on_while_names_are_replaced,
    ends_when_all_listed_names_are_removed,
    keeps_the_place_of_a_name,
    with_nodes_refers_to_them,
    with_nodes_into_a_full_sink,
    of_a_file,
    of_long_names,
}

const COUNT: usize = 300;

/// Makes a directory with many files, and forgets the files' nodes.
fn filled(s: &Subject) -> Outcome<NodeId> {
    let dir = s.dir(ROOT, b"dir")?;
    for number in 0..COUNT {
        let node = s.file(dir, &numbered("file", number))?;
        s.fs.forget(node, 1);
    }
    Ok(dir)
}

/// Lists a directory in steps of `step` names and calls `between` after each; returns how often each name was listed.
fn walk(
    s: &Subject,
    dir: NodeId,
    step: usize,
    mut between: impl FnMut(&[Listed]) -> Outcome,
) -> Outcome<HashMap<Vec<u8>, usize>> {
    let mut seen = HashMap::new();
    let mut from = 0;
    for _ in 0..10 * COUNT {
        let listed = s.list(dir, from, step)?;
        let Some(last) = listed.last() else {
            return Ok(seen);
        };
        from = last.next;
        for name in listed.iter().filter(|listed| !is_dots(&listed.name)) {
            *seen.entry(name.name.clone()).or_insert(0) += 1;
        }
        between(&listed)?;
    }
    holds("the listing ends", false)?;
    Ok(seen)
}

/// Checks that each of the files with these numbers was listed exactly once.
fn listed_once(seen: &HashMap<Vec<u8>, usize>, numbers: impl Iterator<Item = usize>) -> Outcome {
    for number in numbers {
        let name = numbered("file", number);
        let times = seen.get(&name).copied().unwrap_or_default();
        equal(&format!("times that file {number} was listed"), 1, times)?;
    }
    Ok(())
}

fn of_an_empty_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    for dir in [dir, ROOT] {
        let listed = s.list(dir, 0, 10)?;
        let listed: Vec<_> = listed.into_iter().filter(|l| l.name != b"dir").collect();
        let mut names: Vec<_> = listed.iter().map(|listed| &listed.name[..]).collect();
        names.sort_unstable();
        equal("names", vec![&b"."[..], b".."], names)?;
    }
    Ok(())
}

fn of_the_dots(s: &Subject) -> Outcome {
    let outer = s.dir(ROOT, b"outer")?;
    let inner = s.dir(outer, b"inner")?;
    for (dir, above) in [(inner, outer), (outer, ROOT)] {
        for dot in s.list(dir, 0, 2)? {
            let node = if dot.name == b"." { dir } else { above };
            holds("a dot", is_dots(&dot.name))?;
            equal("ino", s.attr(node)?.ino, dot.ino)?;
            equal("kind", NodeKind::Directory, dot.kind)?;
        }
    }
    Ok(())
}

fn of_all_names(s: &Subject) -> Outcome {
    let dir = filled(s)?;
    let expected: Vec<_> = (0..COUNT).map(|number| numbered("file", number)).collect();
    equal("names", expected, s.names(dir)?)?;
    let listed = s.list(dir, 0, usize::MAX)?;
    let mut places: Vec<_> = listed.iter().map(|listed| listed.next).collect();
    holds("no place is 0", !places.contains(&0))?;
    places.sort_unstable();
    places.dedup();
    equal("places", COUNT + 2, places.len())
}

fn agrees_with_lookup(s: &Subject) -> Outcome {
    s.file(ROOT, b"file")?;
    s.dir(ROOT, b"dir")?;
    s.symlink(ROOT, b"link", b"file")?;
    for kind in [NodeKind::Fifo, NodeKind::Socket, NodeKind::CharDevice] {
        let name = format!("{kind:?}");
        s.make(ROOT, name.as_bytes(), &new(kind, 0o600))?;
    }
    let listed = s.list(ROOT, 0, 100)?;
    equal("names", 8, listed.len())?;
    for listed in listed.iter().filter(|listed| !is_dots(&listed.name)) {
        let found = s.lookup(ROOT, &listed.name)?;
        equal("kind", found.attr.kind, listed.kind)?;
        equal("ino", found.attr.ino, listed.ino)?;
    }
    Ok(())
}

fn in_small_steps(s: &Subject) -> Outcome {
    let dir = filled(s)?;
    for step in [1, 2, 3, 7, 100] {
        let seen = walk(s, dir, step, |_| Ok(()))?;
        equal("names", COUNT, seen.len())?;
        listed_once(&seen, 0..COUNT)?;
    }
    Ok(())
}

fn after_the_end(s: &Subject) -> Outcome {
    let dir = filled(s)?;
    let listed = s.list(dir, 0, usize::MAX)?;
    let end = listed.last().map_or(0, |last| last.next);
    equal("names behind the last", 0, s.list(dir, end, 10)?.len())?;
    s.file(dir, b"new")?;
    let behind = s.list(dir, end, 10)?;
    holds("at most the new one", behind.iter().all(|l| l.name == b"new"))
}

fn after_every_name(s: &Subject) -> Outcome {
    let dir = filled(s)?;
    let all = s.list(dir, 0, usize::MAX)?;
    for (index, listed) in all.iter().enumerate().step_by(11) {
        let behind = s.list(dir, listed.next, usize::MAX)?;
        equal("names after this one", &all[index + 1..], &behind[..])?;
    }
    Ok(())
}

fn goes_on_where_a_name_was_removed(s: &Subject) -> Outcome {
    let dir = filled(s)?;
    let all = s.list(dir, 0, usize::MAX)?;
    for index in [5, 100, 200] {
        let listed = &all[index];
        s.unlink(dir, &listed.name)?;
        let behind = s.list(dir, listed.next, 3)?;
        equal("names after the removed one", &all[index + 1..index + 4], &behind[..])?;
    }
    Ok(())
}

fn goes_on_while_others_are_removed(s: &Subject) -> Outcome {
    let dir = filled(s)?;
    let mut odd = (1..COUNT).step_by(2);
    let seen = walk(s, dir, 4, |_| {
        for number in odd.by_ref().take(5) {
            s.unlink(dir, &numbered("file", number))?;
        }
        Ok(())
    })?;
    listed_once(&seen, (0..COUNT).step_by(2))?;
    holds("none twice", seen.values().all(|times| *times == 1))
}

fn goes_on_while_names_are_added(s: &Subject) -> Outcome {
    let dir = filled(s)?;
    let mut number = 0;
    let seen = walk(s, dir, 10, |_| {
        number += 1;
        if number < 100 {
            s.file(dir, &numbered("new", number))?;
        }
        Ok(())
    })?;
    listed_once(&seen, 0..COUNT)?;
    holds("none twice", seen.values().all(|times| *times == 1))
}

/// Names that are never removed are listed once, even while others are removed and made again.
fn goes_on_while_names_are_replaced(s: &Subject) -> Outcome {
    let dir = filled(s)?;
    let mut odd = (1..COUNT).step_by(2);
    let seen = walk(s, dir, 4, |_| {
        for number in odd.by_ref().take(3) {
            let name = numbered("file", number);
            s.unlink(dir, &name)?;
            s.file(dir, &name)?;
        }
        Ok(())
    })?;
    listed_once(&seen, (0..COUNT).step_by(2))
}

fn ends_when_all_listed_names_are_removed(s: &Subject) -> Outcome {
    let dir = filled(s)?;
    let seen = walk(s, dir, 16, |listed| {
        let mut names = listed.iter().filter(|listed| !is_dots(&listed.name));
        names.try_for_each(|listed| s.unlink(dir, &listed.name))
    })?;
    listed_once(&seen, 0..COUNT)?;
    equal("names", Vec::new(), s.names(dir)?)?;
    s.remove_dir(ROOT, b"dir")
}

fn keeps_the_place_of_a_name(s: &Subject) -> Outcome {
    let dir = filled(s)?;
    let place = |name: &[u8]| {
        let listed = s.list(dir, 0, usize::MAX)?;
        let found = listed.iter().find(|listed| listed.name == name);
        Ok(found.map(|listed| listed.next))
    };
    let name = numbered("file", 150);
    let before = place(&name)?;
    for number in (0..COUNT).filter(|number| *number != 150) {
        s.unlink(dir, &numbered("file", number))?;
    }
    equal("place after removals", before, place(&name)?)?;
    for number in 0..50 {
        s.file(dir, &numbered("new", number))?;
    }
    ok("sync_fs", s.fs.sync_fs())?;
    equal("place after additions", before, place(&name)?)
}

fn with_nodes_refers_to_them(s: &Subject) -> Outcome {
    let dir = filled(s)?;
    let listed = s.list_with_nodes(dir, usize::MAX)?;
    equal("names", COUNT + 2, listed.len())?;
    for listed in listed {
        if is_dots(&listed.name) {
            equal("node of a dot", None, listed.node)?;
            continue;
        }
        let Some(node) = listed.node else {
            return equal("has a node", true, false);
        };
        equal("ino", listed.ino, s.attr(node)?.ino)?;
        s.unlink(dir, &listed.name)?;
        equal("links", 0, s.attr(node)?.nlink)?;
        s.fs.forget(node, 1);
        refused("attr", Errno::ESTALE, s.fs.attr(node))?;
    }
    Ok(())
}

fn with_nodes_into_a_full_sink(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let listed = s.list_with_nodes(ROOT, 2)?;
    holds("dots only", listed.iter().all(|listed| is_dots(&listed.name)))?;
    s.unlink(ROOT, b"a")?;
    s.fs.forget(node, 1);
    refused("attr", Errno::ESTALE, s.fs.attr(node))
}

fn of_a_file(s: &Subject) -> Outcome {
    struct Nothing;
    impl vfs::file_system::DirSink for Nothing {
        fn add(&mut self, _: &vfs::file_system::DirEntry<'_>) -> bool {
            false
        }
        fn add_with_node(&mut self, _: &vfs::file_system::DirEntry<'_>, _: Option<&vfs::file_system::Entry>) -> bool {
            false
        }
    }
    let file = s.file(ROOT, b"a")?;
    let listed = s.fs.read_dir(file, 0, false, &mut Nothing);
    refused("read_dir", Errno::ENOTDIR, listed)
}

fn of_long_names(s: &Subject) -> Outcome {
    let name = |number| [numbered("", number), vec![b'x'; 251]].concat();
    let mut expected = Vec::new();
    for number in 0..100 {
        s.file(ROOT, &name(number))?;
        expected.push(name(number));
    }
    equal("names", expected, s.names(ROOT)?)
}
