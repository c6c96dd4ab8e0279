//! Tests the copying of ranges of files. `suite` runs these cases.

use vfs::file_system::{CopyRange, Errno, NodeId, SyncWhat};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused, refused_as, same_bytes};
use super::random::Random;
use super::subject::{NO_HANDLE, ROOT, Subject};

cases! { "copying":
    a_whole_file,
    ranges_of_any_alignment,
    into_the_middle,
    what_was_just_written,
    leaves_the_source_alone,
    across_the_end,
    after_the_end,
    nothing,
    within_a_file,
    overlapping_ranges,
    holes,
    changes_times_of_the_target,
    of_directories,
    to_an_immutable_file,
}

fn range(source: (NodeId, u64), target: (NodeId, u64), len: u64) -> CopyRange {
    CopyRange { source: source.0, source_offset: source.1, target: target.0, target_offset: target.1, len }
}

/// Copies on until all is copied or no more comes, as `cp` does.
fn copy(s: &Subject, from: (NodeId, u64), to: (NodeId, u64), len: u64) -> Outcome<u64> {
    let mut copied = 0;
    while copied < len {
        let rest = range((from.0, from.1 + copied), (to.0, to.1 + copied), len - copied);
        let count = ok("copy_range", s.fs.copy_range(&rest))?;
        holds("no more than asked for", count <= len - copied)?;
        if count == 0 {
            break;
        }
        copied += count;
    }
    Ok(copied)
}

fn bytes() -> Vec<u8> {
    Random::new(1).bytes(200_000)
}

fn a_whole_file(s: &Subject) -> Outcome {
    let source = s.file_with(ROOT, b"a", &bytes())?;
    ok("sync_file", s.fs.sync_file(source, NO_HANDLE, SyncWhat::All))?;
    let target = s.file(ROOT, b"b")?;
    equal("copied", 200_000, copy(s, (source, 0), (target, 0), 200_000)?)?;
    same_bytes("contents", &bytes(), &s.read(target, 0, 300_000)?)?;
    ok("sync_fs", s.fs.sync_fs())?;
    same_bytes("contents", &bytes(), &s.read(target, 0, 300_000)?)
}

fn ranges_of_any_alignment(s: &Subject) -> Outcome {
    let source = s.file_with(ROOT, b"a", &bytes())?;
    let target = s.file_with(ROOT, b"b", &[7; 200_000])?;
    let mut model = vec![7; 200_000];
    for (from, to, len) in [(0, 1, 1), (5, 4096, 5000), (4096, 77, 8192), (65_536, 131_072, 65_536)] {
        let count = u64::try_from(len).unwrap_or(0);
        let (at, to_at) = (u64::try_from(from).unwrap_or(0), u64::try_from(to).unwrap_or(0));
        equal("copied", count, copy(s, (source, at), (target, to_at), count)?)?;
        model[to..to + len].copy_from_slice(&bytes()[from..from + len]);
        same_bytes("contents", &model, &s.read(target, 0, 300_000)?)?;
    }
    Ok(())
}

fn into_the_middle(s: &Subject) -> Outcome {
    let source = s.file_with(ROOT, b"a", &bytes())?;
    let target = s.file(ROOT, b"b")?;
    copy(s, (source, 0), (target, 131_072), 65_536)?;
    equal("size", 196_608, s.attr(target)?.size)?;
    same_bytes("before it", &[0; 131_072], &s.read(target, 0, 131_072)?)?;
    let copied = s.read(target, 131_072, 100_000)?;
    same_bytes("contents", &bytes()[..65_536], &copied)
}

fn what_was_just_written(s: &Subject) -> Outcome {
    let source = s.file_with(ROOT, b"a", &bytes())?;
    ok("sync_file", s.fs.sync_file(source, NO_HANDLE, SyncWhat::All))?;
    s.write(source, 4096, &[9; 4096])?;
    let target = s.file_with(ROOT, b"b", &[7; 131_072])?;
    copy(s, (source, 0), (target, 0), 65_536)?;
    let mut expected = bytes()[..65_536].to_vec();
    expected[4096..8192].fill(9);
    expected.resize(131_072, 7);
    same_bytes("contents", &expected, &s.read(target, 0, 200_000)?)
}

fn leaves_the_source_alone(s: &Subject) -> Outcome {
    let source = s.file_with(ROOT, b"a", &bytes())?;
    let target = s.file(ROOT, b"b")?;
    copy(s, (source, 0), (target, 0), 200_000)?;
    s.write(target, 0, &[1; 100_000])?;
    ok("sync_fs", s.fs.sync_fs())?;
    same_bytes("source", &bytes(), &s.read(source, 0, 300_000)?)?;
    s.write(source, 150_000, &[2; 1000])?;
    s.unlink(ROOT, b"a")?;
    s.fs.forget(source, 1);
    ok("sync_fs", s.fs.sync_fs())?;
    let rest = s.read(target, 100_000, 200_000)?;
    same_bytes("target", &bytes()[100_000..], &rest)
}

fn across_the_end(s: &Subject) -> Outcome {
    let source = s.file_with(ROOT, b"a", &bytes())?;
    let target = s.file(ROOT, b"b")?;
    equal("copied", 100, copy(s, (source, 199_900), (target, 5), 1 << 40)?)?;
    equal("size", 105, s.attr(target)?.size)
}

fn after_the_end(s: &Subject) -> Outcome {
    let source = s.file_with(ROOT, b"a", b"one")?;
    let target = s.file_with(ROOT, b"b", b"two")?;
    equal("copied", 0, copy(s, (source, 3), (target, 0), 100)?)?;
    equal("copied", 0, copy(s, (source, 1 << 40), (target, 0), 100)?)?;
    equal("contents", b"two".to_vec(), s.read(target, 0, 100)?)
}

fn nothing(s: &Subject) -> Outcome {
    let source = s.file_with(ROOT, b"a", b"one")?;
    let target = s.file(ROOT, b"b")?;
    let copied = s.fs.copy_range(&range((source, 0), (target, 1000), 0));
    equal("copied", 0, ok("copy_range", copied)?)?;
    equal("size", 0, s.attr(target)?.size)
}

fn within_a_file(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &bytes())?;
    copy(s, (node, 0), (node, 262_144), 131_072)?;
    let copied = s.read(node, 262_144, 200_000)?;
    same_bytes("contents", &bytes()[..131_072], &copied)?;
    copy(s, (node, 100), (node, 50), 50)?;
    equal("neighbours", bytes()[100..150].to_vec(), s.read(node, 50, 50)?)
}

fn overlapping_ranges(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &bytes())?;
    for (from, to) in [(0, 0), (0, 4096), (4096, 0), (0, 65_535)] {
        let copied = s.fs.copy_range(&range((node, from), (node, to), 65_536));
        refused("copy_range", Errno::EINVAL, copied)?;
    }
    same_bytes("contents", &bytes(), &s.read(node, 0, 300_000)?)
}

fn holes(s: &Subject) -> Outcome {
    let source = s.file(ROOT, b"a")?;
    s.write(source, 131_072, &[5; 65_536])?;
    s.set_size(source, 262_144)?;
    let target = s.file_with(ROOT, b"b", &[7; 300_000])?;
    copy(s, (source, 0), (target, 0), 262_144)?;
    let mut expected = vec![0; 300_000];
    expected[131_072..196_608].fill(5);
    expected[262_144..].fill(7);
    same_bytes("contents", &expected, &s.read(target, 0, 400_000)?)
}

fn changes_times_of_the_target(s: &Subject) -> Outcome {
    let source = s.file_with(ROOT, b"a", &bytes())?;
    let target = s.file(ROOT, b"b")?;
    s.age(source)?;
    s.age(target)?;
    copy(s, (source, 0), (target, 0), 65_536)?;
    s.has_changed("copying to it", target, "mc")?;
    let attr = s.attr(source)?;
    let (mtime, ctime) = (attr.mtime, attr.ctime);
    let old = super::subject::LONG_AGO;
    equal("times of the source", (old, old), (mtime, ctime))
}

fn of_directories(s: &Subject) -> Outcome {
    let file = s.file_with(ROOT, b"a", b"one")?;
    for (source, target) in [(ROOT, file), (file, ROOT)] {
        let copied = s.fs.copy_range(&range((source, 0), (target, 0), 3));
        refused_as("copy_range", &[Errno::EISDIR, Errno::EINVAL], copied)?;
    }
    Ok(())
}

fn to_an_immutable_file(s: &Subject) -> Outcome {
    let source = s.file_with(ROOT, b"a", b"one")?;
    let target = s.file_with(ROOT, b"b", b"two")?;
    s.set_flags(target, vfs::file_system::NodeFlags::IMMUTABLE)?;
    let copied = s.fs.copy_range(&range((source, 0), (target, 0), 3));
    refused("copy_range", Errno::EPERM, copied)?;
    equal("contents", b"two".to_vec(), s.read(target, 0, 100)?)
}
