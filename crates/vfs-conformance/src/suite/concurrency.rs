//! Tests changes by four threads at once: in whatever order they happen, the result is consistent. `suite` runs these
//! cases.

use std::collections::{HashMap, HashSet};

use vfs::file_system::{Errno, NodeId, NodeKind, RenameFlags, WriteFlags};

use super::case::cases;
use super::outcome::{Mismatch, Outcome, equal, holds, ok, same_bytes};
use super::random::Random;
use super::subject::{NO_HANDLE, ROOT, Subject, is_dots, numbered};

cases! { "concurrency":
    creation_of_different_names,
    creation_of_the_same_names,
    removal_of_the_same_names,
    linking_and_unlinking,
    renaming_within_a_directory,
    renaming_over_one_name,
    moving_directories_into_each_other,
    listing_while_names_come_and_go,
    appending_to_one_file,
    writing_to_many_files,
    writing_to_parts_of_one_file,
    using_a_file_that_is_being_removed,
    everything_in_one_directory,
}

const THREADS: usize = 4;

/// Runs a function in several threads, and returns the first failure.
fn in_threads(s: &Subject, run: impl Fn(&Subject, usize) -> Outcome + Sync) -> Outcome {
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(s, thread))).collect();
        let ends = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ends.map(|end| end.unwrap_or_else(|_| Err(Mismatch::new("a thread", "an end", "a panic")))).collect()
    });
    outcomes.into_iter().collect()
}

/// Checks that a directory lists each name once, that each name leads to the node that was listed, and that the link
/// counts match; returns the number of names.
fn is_consistent(s: &Subject, dir: NodeId) -> Outcome<usize> {
    let mut names = HashSet::new();
    let mut links: HashMap<NodeId, u32> = HashMap::new();
    let listed = s.list(dir, 0, usize::MAX)?;
    let listed = listed.iter().filter(|listed| !is_dots(&listed.name));
    for listed in listed.clone() {
        holds("listed once", names.insert(listed.name.clone()))?;
        let entry = s.lookup(dir, &listed.name)?;
        equal("ino", listed.ino, entry.attr.ino)?;
        equal("kind", listed.kind, entry.attr.kind)?;
        if listed.kind != NodeKind::Directory {
            *links.entry(entry.node).or_default() += 1;
        }
    }
    for (node, count) in links {
        equal("links", count, s.attr(node)?.nlink)?;
    }
    Ok(names.len())
}

fn creation_of_different_names(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    in_threads(s, |s, thread| {
        (0..100).try_for_each(|number| {
            let name = numbered(&format!("{thread}-"), number);
            s.file_with(dir, &name, &name).map(drop)
        })
    })?;
    equal("names", 400, is_consistent(s, dir)?)?;
    for name in s.names(dir)? {
        let node = s.lookup(dir, &name)?.node;
        equal("contents", name, s.read(node, 0, 100)?)?;
    }
    Ok(())
}

fn count_ok<T>(what: &str, other: Errno, result: vfs::file_system::Result<T>) -> Outcome<usize> {
    match result {
        Err(errno) if errno == other => Ok(0),
        result => ok(what, result).map(|_| 1),
    }
}

fn sum(s: &Subject, run: impl Fn(&Subject, usize) -> Outcome<usize> + Sync) -> Outcome<usize> {
    let total = std::sync::atomic::AtomicUsize::new(0);
    in_threads(s, |s, thread| {
        let count = run(s, thread)?;
        total.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    })?;
    Ok(total.into_inner())
}

fn creation_of_the_same_names(s: &Subject) -> Outcome {
    let made = sum(s, |s, _| {
        let make = |number| {
            let made = s.try_make(ROOT, &numbered("a", number), NodeKind::File);
            count_ok("create", Errno::EEXIST, made)
        };
        (0..100).map(make).sum()
    })?;
    equal("successes", 100, made)?;
    equal("names", 100, is_consistent(s, ROOT)?)
}

fn removal_of_the_same_names(s: &Subject) -> Outcome {
    for number in 0..100 {
        s.file(ROOT, &numbered("a", number))?;
    }
    let removed = sum(s, |s, _| {
        let unlink = |number| {
            let unlinked = s.fs.unlink(ROOT, &numbered("a", number));
            count_ok("unlink", Errno::ENOENT, unlinked)
        };
        (0..100).map(unlink).sum()
    })?;
    equal("successes", 100, removed)?;
    equal("names", 0, is_consistent(s, ROOT)?)
}

fn linking_and_unlinking(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    in_threads(s, |s, thread| {
        (0..200).try_for_each(|number| {
            let name = numbered(&format!("{thread}-"), number);
            s.link(node, ROOT, &name)?;
            if number % 2 == 0 {
                s.unlink(ROOT, &name)?;
            }
            Ok(())
        })
    })?;
    equal("links", 401, s.attr(node)?.nlink)?;
    equal("names", 401, is_consistent(s, ROOT)?)
}

fn renaming_within_a_directory(s: &Subject) -> Outcome {
    for number in 0..20 {
        s.file(ROOT, &numbered("a", number))?;
    }
    in_threads(s, |s, thread| {
        let mut random = Random::new(u64::try_from(thread).unwrap_or(0));
        let mut name = || numbered("a", usize::try_from(random.below(40)).unwrap_or(0));
        (0..300).try_for_each(|round| {
            let (from, to) = (name(), name());
            let flags = match round % 3 {
                0 => RenameFlags::EXCHANGE,
                1 => RenameFlags::NO_REPLACE,
                _ => RenameFlags::empty(),
            };
            match s.try_rename((ROOT, &from), (ROOT, &to), flags) {
                Err(Errno::ENOENT | Errno::EEXIST) => Ok(()),
                result => ok("rename", result),
            }
        })
    })?;
    let count = is_consistent(s, ROOT)?;
    holds("some are left", (1..=20).contains(&count))
}

/// A reader always finds the name: with the old node or the new one.
fn renaming_over_one_name(s: &Subject) -> Outcome {
    s.file(ROOT, b"target")?;
    in_threads(s, |s, thread| {
        let name = numbered("new", thread);
        (0..200).try_for_each(|_| {
            if thread == 0 {
                return s.lookup(ROOT, b"target").map(drop);
            }
            let node = s.file(ROOT, &name)?;
            s.fs.forget(node, 1);
            s.rename((ROOT, &name), (ROOT, b"target"))
        })
    })?;
    equal("names", 1, is_consistent(s, ROOT)?)
}

fn moving_directories_into_each_other(s: &Subject) -> Outcome {
    let dirs = [s.dir(ROOT, b"d0")?, s.dir(ROOT, b"d1")?];
    let names: [&[u8]; 2] = [b"d0", b"d1"];
    in_threads(s, |s, thread| {
        let (mine, other) = (thread % 2, (thread + 1) % 2);
        (0..200).try_for_each(|round| {
            let (outside, inside) = ((ROOT, names[mine]), (dirs[other], names[mine]));
            let (from, to) = if round % 2 == 0 { (outside, inside) } else { (inside, outside) };
            match s.try_rename(from, to, RenameFlags::empty()) {
                Err(Errno::ENOENT | Errno::EINVAL | Errno::ENOTEMPTY) => Ok(()),
                result => ok("rename", result),
            }
        })
    })?;
    for dir in dirs {
        let mut above = dir;
        for _ in 0..3 {
            above = s.lookup(above, b"..")?.node;
        }
        equal("what is above it", ROOT, above)?;
    }
    let inside = is_consistent(s, dirs[0])? + is_consistent(s, dirs[1])?;
    equal("directories", 2, inside + is_consistent(s, ROOT)?)
}

fn listing_while_names_come_and_go(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    for number in 0..100 {
        s.file(dir, &numbered("stays", number))?;
    }
    in_threads(s, |s, thread| {
        for round in 0..50 {
            if thread % 2 == 0 {
                let names = s.names(dir)?;
                let stays = names.iter().filter(|name| name.starts_with(b"stays"));
                equal("names that stay", 100, stays.count())?;
            } else {
                let name = numbered(&format!("{thread}-"), round);
                s.file(dir, &name)?;
                s.unlink(dir, &name)?;
            }
        }
        Ok(())
    })?;
    equal("names", 100, is_consistent(s, dir)?)
}

fn appending_to_one_file(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    in_threads(s, |s, thread| {
        let record = [u8::try_from(thread).unwrap_or(0); 97];
        (0..100).try_for_each(|_| {
            let flags = WriteFlags::APPEND;
            ok("append", s.fs.write(node, NO_HANDLE, 0, &record, flags)).map(drop)
        })
    })?;
    let bytes = s.read(node, 0, 100_000)?;
    equal("size", 400 * 97, bytes.len())?;
    for record in bytes.chunks(97) {
        holds("whole records", record.iter().all(|byte| *byte == record[0]))?;
    }
    Ok(())
}

fn writing_to_many_files(s: &Subject) -> Outcome {
    in_threads(s, |s, thread| {
        let mut random = Random::new(u64::try_from(thread).unwrap_or(0) + 10);
        let node = s.file(ROOT, &numbered("a", thread))?;
        let mut model = vec![0; 100_000];
        s.set_size(node, 100_000)?;
        for round in 0..100 {
            let at = random.below(90_000);
            let data = random.bytes(5000);
            s.write(node, at, &data)?;
            let at = usize::try_from(at).unwrap_or(0);
            model[at..at + 5000].copy_from_slice(&data);
            if round % 25 == 24 {
                let what = vfs::file_system::SyncWhat::Data;
                ok("sync_file", s.fs.sync_file(node, NO_HANDLE, what))?;
            }
        }
        same_bytes("contents", &model, &s.read(node, 0, 200_000)?)
    })
}

fn writing_to_parts_of_one_file(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    in_threads(s, |s, thread| {
        let byte = u8::try_from(thread + 1).unwrap_or(0);
        (0..100_u64).try_for_each(|part| {
            let offset = (part * 4 + u64::from(byte) - 1) * 1000;
            s.write(node, offset, &[byte; 1000])
        })
    })?;
    let bytes = s.read(node, 0, 500_000)?;
    equal("size", 400_000, bytes.len())?;
    for (index, part) in bytes.chunks(1000).enumerate() {
        let expected = u8::try_from(index % 4 + 1).unwrap_or(0);
        holds("whole parts", part.iter().all(|byte| *byte == expected))?;
    }
    Ok(())
}

fn using_a_file_that_is_being_removed(s: &Subject) -> Outcome {
    in_threads(s, |s, thread| {
        for round in 0..200_u8 {
            if thread == 0 {
                let node = s.file_with(ROOT, b"a", &[round; 100])?;
                s.unlink(ROOT, b"a")?;
                s.fs.forget(node, 1);
                continue;
            }
            let entry = match s.fs.lookup(ROOT, b"a") {
                Err(Errno::ENOENT) => continue,
                result => ok("lookup", result)?,
            };
            let bytes = s.read(entry.node, 0, 1000)?;
            holds("one contents", bytes.iter().all(|byte| *byte == bytes[0]))?;
            s.write(entry.node, 100, b"")?;
            holds("links", s.attr(entry.node)?.nlink <= 1)?;
            s.fs.forget(entry.node, 1);
        }
        Ok(())
    })?;
    equal("names", 0, is_consistent(s, ROOT)?)
}

fn everything_in_one_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    in_threads(s, |s, thread| {
        let mut random = Random::new(u64::try_from(thread).unwrap_or(0) + 50);
        (0..400).try_for_each(|_| any_change(s, dir, &mut random))
    })?;
    is_consistent(s, dir)?;
    ok("sync_fs", s.fs.sync_fs())?;
    is_consistent(s, dir)?;
    for name in s.names(dir)? {
        match s.lookup(dir, &name)?.attr.kind {
            NodeKind::Directory => s.remove_dir(dir, &name)?,
            _ => s.unlink(dir, &name)?,
        }
    }
    s.remove_dir(ROOT, b"dir")
}

fn any_change(s: &Subject, dir: NodeId, random: &mut Random) -> Outcome {
    let mut name = || numbered("a", usize::try_from(random.below(12)).unwrap_or(0));
    let (one, two) = (name(), name());
    let result = match random.below(8) {
        0 | 1 => s.try_make(dir, &one, NodeKind::File).map(drop),
        2 => s.try_make(dir, &one, NodeKind::Directory).map(drop),
        3 => s.fs.unlink(dir, &one),
        4 => s.fs.remove_dir(dir, &one),
        5 => s.try_rename((dir, &one), (dir, &two), RenameFlags::empty()),
        6 => s.try_rename((dir, &one), (dir, &two), RenameFlags::EXCHANGE),
        _ => s.fs.lookup(dir, &one).and_then(|entry| {
            let linked = s.fs.link(entry.node, dir, &two);
            s.fs.forget(entry.node, 1);
            linked.map(drop)
        }),
    };
    match result {
        Err(Errno::ENOENT | Errno::EEXIST | Errno::EISDIR | Errno::ENOTDIR | Errno::EPERM) => Ok(()),
        result => ok("a change", result),
    }
}
