//! Tests holes, and space that is allocated without being written. `suite` runs these cases.
//!
//! Offsets are multiples of 64 KiB, so that no format's block is in the way.

use vfs::file_system::{AllocateFlags, Errno, NodeId, Seek, SyncWhat};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused, refused_as, same_bytes};
use super::random::Random;
use super::subject::{NO_HANDLE, ROOT, Subject};

cases! { "sparse":
    empty_file_has_no_data,
    full_file_has_no_hole,
    data_between_holes,
    holes_between_data,
    seeking_behind_the_end,
    hole_at_the_end,
    allocating_extends,
    allocating_keeps_the_size,
    allocating_keeps_what_is_there,
    punching_makes_a_hole,
    punching_keeps_the_edges,
    punching_behind_the_end,
    punching_needs_keep_size,
    punching_frees_space,
    zeroing,
    zeroing_beyond_the_end,
    zeroing_keeps_the_edges,
    contradictory_flags,
    empty_range,
    range_too_far_away,
    ranges_of_directories,
    as_a_model_has_it,
}

const UNIT: u64 = 65_536;
const PLAIN: AllocateFlags = AllocateFlags::empty();
const KEEP: AllocateFlags = AllocateFlags::KEEP_SIZE;
const PUNCH: AllocateFlags = AllocateFlags::PUNCH_HOLE.union(KEEP);
const ZERO: AllocateFlags = AllocateFlags::ZERO_RANGE;

fn data(s: &Subject, node: NodeId, from: u64, expected: u64) -> Outcome {
    let found = ok("seek for data", s.fs.seek(node, Seek::Data, from))?;
    equal(&format!("data from {from}"), expected, found)
}

fn hole(s: &Subject, node: NodeId, from: u64, expected: u64) -> Outcome {
    let found = ok("seek for a hole", s.fs.seek(node, Seek::Hole, from))?;
    equal(&format!("hole from {from}"), expected, found)
}

fn nothing(s: &Subject, node: NodeId, what: Seek, from: u64) -> Outcome {
    let found = s.fs.seek(node, what, from);
    refused(&format!("{what:?} from {from}"), Errno::ENXIO, found)
}

/// A file with data in some of its units.
fn file(s: &Subject, units: u64, written: &[u64]) -> Outcome<NodeId> {
    let node = s.file(ROOT, b"sparse")?;
    s.set_size(node, units * UNIT)?;
    for unit in written {
        s.write(node, unit * UNIT, &[0xdd; 65_536])?;
    }
    ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
    Ok(node)
}

fn empty_file_has_no_data(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for from in [0, 1, UNIT] {
        nothing(s, node, Seek::Data, from)?;
        nothing(s, node, Seek::Hole, from)?;
    }
    Ok(())
}

fn full_file_has_no_hole(s: &Subject) -> Outcome {
    for name in [&b"synced"[..], b"dirty"] {
        let node = s.file_with(ROOT, name, &[1; 131_072])?;
        if name == b"synced" {
            ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
        }
        for from in [0, 1, UNIT, 2 * UNIT - 1] {
            data(s, node, from, from)?;
            hole(s, node, from, 2 * UNIT)?;
        }
    }
    Ok(())
}

fn data_between_holes(s: &Subject) -> Outcome {
    let node = file(s, 3, &[1])?;
    data(s, node, 0, UNIT)?;
    data(s, node, UNIT - 1, UNIT)?;
    data(s, node, UNIT + 5, UNIT + 5)?;
    hole(s, node, 0, 0)?;
    hole(s, node, 77, 77)?;
    hole(s, node, UNIT, 2 * UNIT)?;
    nothing(s, node, Seek::Data, 2 * UNIT)?;
    hole(s, node, 2 * UNIT + 9, 2 * UNIT + 9)
}

fn holes_between_data(s: &Subject) -> Outcome {
    let node = file(s, 5, &[0, 2, 4])?;
    let mut at = 0;
    for unit in [0, 2, 4] {
        data(s, node, at, unit * UNIT)?;
        hole(s, node, unit * UNIT, (unit + 1) * UNIT)?;
        at = (unit + 1) * UNIT;
    }
    equal("in a hole", vec![0; 100], s.read(node, UNIT, 100)?)?;
    // Dirty data counts alike.
    s.write(node, UNIT, &[1; 65_536])?;
    hole(s, node, 0, 3 * UNIT)
}

fn seeking_behind_the_end(s: &Subject) -> Outcome {
    let node = file(s, 2, &[0, 1])?;
    for from in [2 * UNIT, 2 * UNIT + 1, 1 << 40] {
        nothing(s, node, Seek::Data, from)?;
        nothing(s, node, Seek::Hole, from)?;
    }
    Ok(())
}

fn hole_at_the_end(s: &Subject) -> Outcome {
    let node = file(s, 2, &[0])?;
    nothing(s, node, Seek::Data, UNIT)?;
    hole(s, node, 0, UNIT)?;
    s.set_size(node, UNIT)?;
    hole(s, node, 0, UNIT)
}

fn allocating_extends(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"one")?;
    s.allocate(node, PLAIN, 0, UNIT)?;
    equal("size", UNIT, s.attr(node)?.size)?;
    equal("contents", b"one\0\0".to_vec(), s.read(node, 0, 5)?)?;
    s.allocate(node, PLAIN, 3 * UNIT, UNIT)?;
    equal("size", 4 * UNIT, s.attr(node)?.size)?;
    let zeros = vec![0; 262_144 - 3];
    same_bytes("the rest", &zeros, &s.read(node, 3, 300_000)?)?;
    s.allocate(node, PLAIN, 0, UNIT)?;
    equal("size", 4 * UNIT, s.attr(node)?.size)
}

fn allocating_keeps_the_size(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"one")?;
    s.allocate(node, KEEP, 0, 4 * UNIT)?;
    let attr = s.attr(node)?;
    equal("size", 3, attr.size)?;
    holds("blocks", attr.blocks >= 3 * UNIT / 512)?;
    equal("contents", b"one".to_vec(), s.read(node, 0, 100)?)?;
    s.write(node, 2 * UNIT, b"x")?;
    let before = s.read(node, 2 * UNIT - 4, 5)?;
    equal("before the end", b"\0\0\0\0x".to_vec(), before)
}

fn allocating_keeps_what_is_there(s: &Subject) -> Outcome {
    let bytes = Random::new(1).bytes(65_536);
    let node = s.file_with(ROOT, b"a", &bytes)?;
    s.allocate(node, PLAIN, 0, UNIT)?;
    s.allocate(node, PLAIN, UNIT / 2, UNIT)?;
    ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
    same_bytes("contents", &bytes, &s.read(node, 0, 65_536)?)?;
    s.write(node, UNIT, &bytes[..1000])?;
    ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
    same_bytes("written", &bytes[..1000], &s.read(node, UNIT, 1000)?)?;
    equal("behind it", vec![0; 100], s.read(node, UNIT + 1000, 100)?)
}

fn punching_makes_a_hole(s: &Subject) -> Outcome {
    let node = file(s, 4, &[0, 1, 2, 3])?;
    s.allocate(node, PUNCH, UNIT, 2 * UNIT)?;
    hole(s, node, 0, UNIT)?;
    data(s, node, UNIT, 3 * UNIT)?;
    equal("size", 4 * UNIT, s.attr(node)?.size)?;
    equal("before", vec![0xdd; 10], s.read(node, UNIT - 10, 10)?)?;
    same_bytes("in it", &[0; 131_072], &s.read(node, UNIT, 131_072)?)?;
    equal("behind", vec![0xdd; 10], s.read(node, 3 * UNIT, 10)?)
}

/// Bytes of a file of 200,000 in which a range is zero.
fn with_zeros(start: usize, end: usize) -> Vec<u8> {
    let mut bytes = Random::new(2).bytes(200_000);
    bytes[start..end].fill(0);
    bytes
}

fn punching_keeps_the_edges(s: &Subject) -> Outcome {
    for (start, len) in [(5, 10), (100, 70_000), (4096, 4096), (65_535, 2), (190_000, 20_000)] {
        let node = s.file_with(ROOT, b"a", &with_zeros(0, 0))?;
        let (from, count) = (u64::try_from(start).unwrap_or(0), u64::try_from(len).unwrap_or(0));
        s.allocate(node, PUNCH, from, count)?;
        let expected = with_zeros(start, (start + len).min(200_000));
        let what = format!("hole {start}+{len}");
        same_bytes(&what, &expected, &s.read(node, 0, 300_000)?)?;
        ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
        same_bytes(&what, &expected, &s.read(node, 0, 300_000)?)?;
        s.unlink(ROOT, b"a")?;
    }
    Ok(())
}

fn punching_behind_the_end(s: &Subject) -> Outcome {
    let node = file(s, 1, &[0])?;
    s.allocate(node, PUNCH, 2 * UNIT, UNIT)?;
    equal("size", UNIT, s.attr(node)?.size)?;
    s.allocate(node, PUNCH, 0, 1 << 40)?;
    equal("size", UNIT, s.attr(node)?.size)?;
    nothing(s, node, Seek::Data, 0)
}

fn punching_needs_keep_size(s: &Subject) -> Outcome {
    let node = file(s, 1, &[0])?;
    let punched = s.try_allocate(node, AllocateFlags::PUNCH_HOLE, 0, UNIT);
    refused("allocate", Errno::EOPNOTSUPP, punched)?;
    data(s, node, 0, 0)
}

fn punching_frees_space(s: &Subject) -> Outcome {
    let node = file(s, 16, &[0, 1, 2, 3, 4, 5, 6, 7])?;
    let before = s.attr(node)?.blocks;
    equal("blocks", 8 * UNIT / 512, before)?;
    s.allocate(node, PUNCH, 0, 4 * UNIT)?;
    ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
    equal("blocks", 4 * UNIT / 512, s.attr(node)?.blocks)
}

fn zeroing(s: &Subject) -> Outcome {
    let node = file(s, 3, &[0, 1, 2])?;
    s.allocate(node, ZERO, UNIT, UNIT)?;
    equal("size", 3 * UNIT, s.attr(node)?.size)?;
    same_bytes("zeros", &[0; 65_536], &s.read(node, UNIT, 65_536)?)?;
    equal("behind", vec![0xdd; 10], s.read(node, 2 * UNIT, 10)?)?;
    ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
    equal("blocks", 3 * UNIT / 512, s.attr(node)?.blocks)?;
    s.write(node, UNIT, b"x")?;
    equal("written", b"x\0".to_vec(), s.read(node, UNIT, 2)?)
}

fn zeroing_beyond_the_end(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"one")?;
    s.allocate(node, ZERO | KEEP, UNIT, UNIT)?;
    equal("size kept", 3, s.attr(node)?.size)?;
    s.allocate(node, ZERO, 1, 2 * UNIT)?;
    equal("size", 2 * UNIT + 1, s.attr(node)?.size)?;
    equal("contents", b"o\0\0\0".to_vec(), s.read(node, 0, 4)?)
}

fn zeroing_keeps_the_edges(s: &Subject) -> Outcome {
    for (start, len) in [(5, 10), (100, 70_000), (4096, 4096), (4000, 5000), (65_535, 2)] {
        let node = s.file_with(ROOT, b"a", &with_zeros(0, 0))?;
        let (from, count) = (u64::try_from(start).unwrap_or(0), u64::try_from(len).unwrap_or(0));
        s.allocate(node, ZERO, from, count)?;
        ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
        let what = format!("zeros {start}+{len}");
        let expected = with_zeros(start, start + len);
        same_bytes(&what, &expected, &s.read(node, 0, 300_000)?)?;
        s.unlink(ROOT, b"a")?;
    }
    Ok(())
}

fn contradictory_flags(s: &Subject) -> Outcome {
    let node = file(s, 1, &[0])?;
    for flags in [PUNCH | ZERO, AllocateFlags::PUNCH_HOLE | ZERO] {
        let allocated = s.try_allocate(node, flags, 0, UNIT);
        refused("allocate", Errno::EOPNOTSUPP, allocated)?;
    }
    equal("contents", vec![0xdd; 10], s.read(node, 0, 10)?)
}

fn empty_range(s: &Subject) -> Outcome {
    let node = file(s, 1, &[0])?;
    for flags in [PLAIN, KEEP, PUNCH, ZERO] {
        let allocated = s.try_allocate(node, flags, 0, 0);
        refused("allocate", Errno::EINVAL, allocated)?;
    }
    Ok(())
}

fn range_too_far_away(s: &Subject) -> Outcome {
    let node = file(s, 1, &[0])?;
    let end = i64::MAX.unsigned_abs();
    for (offset, len) in [(end, 1), (end - 10, 100), (1, end), (u64::MAX, 2)] {
        let allocated = s.try_allocate(node, PLAIN, offset, len);
        refused_as("allocate", &[Errno::EFBIG, Errno::EINVAL], allocated)?;
    }
    equal("size", UNIT, s.attr(node)?.size)
}

fn ranges_of_directories(s: &Subject) -> Outcome {
    let errnos = [Errno::EISDIR, Errno::ENODEV, Errno::EINVAL];
    let allocated = s.try_allocate(ROOT, PLAIN, 0, UNIT);
    refused_as("allocate", &errnos, allocated)
}

fn as_a_model_has_it(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let mut model: Vec<u8> = Vec::new();
    let mut random = Random::new(3);
    for round in 0..300 {
        let (offset, len) = (random.below(150_000), 1 + random.below(40_000));
        change(s, node, &mut model, &mut random, offset, len)?;
        if round % 50 == 0 {
            ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
            let what = format!("contents after {round} changes");
            same_bytes(&what, &model, &s.read(node, 0, 400_000)?)?;
        }
    }
    same_bytes("contents", &model, &s.read(node, 0, 400_000)?)
}

fn change(s: &Subject, node: NodeId, model: &mut Vec<u8>, random: &mut Random, offset: u64, len: u64) -> Outcome {
    let start = usize::try_from(offset).unwrap_or(0);
    let end = start + usize::try_from(len).unwrap_or(0);
    let inside = |model: &Vec<u8>| start.min(model.len())..end.min(model.len());
    match random.below(6) {
        0 | 1 => {
            let data = random.bytes(end - start);
            s.write(node, offset, &data)?;
            model.resize(model.len().max(end), 0);
            model[start..end].copy_from_slice(&data);
        }
        2 => {
            s.set_size(node, offset)?;
            model.resize(start, 0);
        }
        3 => {
            s.allocate(node, PUNCH, offset, len)?;
            let inside = inside(model);
            model[inside].fill(0);
        }
        4 => {
            s.allocate(node, ZERO, offset, len)?;
            model.resize(model.len().max(end), 0);
            model[start..end].fill(0);
        }
        _ => {
            s.allocate(node, PLAIN, offset, len)?;
            model.resize(model.len().max(end), 0);
        }
    }
    equal("size", model.len(), usize::try_from(s.attr(node)?.size).unwrap_or(0))
}
