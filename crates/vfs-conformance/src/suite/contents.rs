//! Tests reading and writing of contents. `suite` runs these cases.

use vfs::file_system::{Errno, OpenFlags, SyncWhat, WriteFlags};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused, refused_as, same_bytes};
use super::random::Random;
use super::subject::{CALLER, NO_HANDLE, ROOT, Subject, size_change};

cases! { "contents":
    are_read_back,
    end_where_the_file_ends,
    are_overwritten,
    cross_blocks,
    grow_from_small_to_large,
    are_appended,
    stay_when_nothing_is_written,
    of_a_megabyte_at_once,
    far_away,
    too_far_away,
    of_a_directory,
    written_from_the_cache,
    written_directly,
    written_durably,
    survive_syncing,
    are_cut_off_by_opening,
    opened_for_writing_in_a_directory,
    are_cut_off,
    are_extended_by_zeros,
    do_not_come_back,
    cut_off_at_every_size,
    too_large,
    of_no_file_have_no_size_to_set,
    as_a_model_has_them,
}

fn are_read_back(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"contents")?;
    equal("all", b"contents".to_vec(), s.read(node, 0, 8)?)?;
    equal("a part", b"nte".to_vec(), s.read(node, 2, 3)?)?;
    equal("size", 8, s.attr(node)?.size)
}

fn end_where_the_file_ends(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"contents")?;
    equal("across the end", b"ts".to_vec(), s.read(node, 6, 100)?)?;
    equal("at the end", Vec::new(), s.read(node, 8, 100)?)?;
    equal("behind it", Vec::new(), s.read(node, 1 << 40, 100)?)?;
    equal("nothing", Vec::new(), s.read(node, 0, 0)?)
}

fn are_overwritten(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"contents")?;
    s.write(node, 2, b"XY")?;
    equal("contents", b"coXYents".to_vec(), s.read(node, 0, 100)?)?;
    s.write(node, 6, b"1234")?;
    equal("contents", b"coXYen1234".to_vec(), s.read(node, 0, 100)?)
}

fn cross_blocks(s: &Subject) -> Outcome {
    let mut model = Random::new(1).bytes(50_000);
    let node = s.file_with(ROOT, b"a", &model)?;
    for (offset, len) in [(4095, 2), (8190, 4100), (1, 12_288), (16_384, 4096)] {
        let data = Random::new(u64::try_from(offset).unwrap_or(0)).bytes(len);
        s.write(node, u64::try_from(offset).unwrap_or(0), &data)?;
        model[offset..offset + len].copy_from_slice(&data);
    }
    same_bytes("contents", &model, &s.read(node, 0, 60_000)?)
}

fn grow_from_small_to_large(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let mut model = Vec::new();
    let mut random = Random::new(3);
    for len in [1, 10, 100, 1000, 900, 100, 3000, 10_000, 100_000] {
        let data = random.bytes(len);
        s.write(node, u64::try_from(model.len()).unwrap_or(0), &data)?;
        model.extend(data);
        ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::Data))?;
        same_bytes("contents", &model, &s.read(node, 0, 200_000)?)?;
    }
    Ok(())
}

fn are_appended(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"one")?;
    for offset in [0, 1, 1 << 30] {
        let written = s.fs.write(node, NO_HANDLE, offset, b"+", WriteFlags::APPEND);
        ok("write", written)?;
    }
    equal("contents", b"one+++".to_vec(), s.read(node, 0, 100)?)
}

fn stay_when_nothing_is_written(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"one")?;
    s.age(node)?;
    s.write(node, 100, b"")?;
    equal("size", 3, s.attr(node)?.size)?;
    s.has_changed("a write of nothing", node, "")
}

fn of_a_megabyte_at_once(s: &Subject) -> Outcome {
    let data = Random::new(4).bytes(1 << 20);
    let node = s.file(ROOT, b"a")?;
    for part in 0..8 {
        s.write(node, part << 20, &data)?;
    }
    equal("size", 8 << 20, s.attr(node)?.size)?;
    for part in (0..8).rev() {
        same_bytes("contents", &data, &s.read(node, part << 20, 1 << 20)?)?;
    }
    Ok(())
}

fn far_away(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for offset in [1 << 33, 1 << 41, 1 << 20] {
        s.write(node, offset, b"here")?;
        equal("contents", b"here".to_vec(), s.read(node, offset, 4)?)?;
        let before = s.read(node, offset - 4, 8)?;
        equal("before it", b"\0\0\0\0here".to_vec(), before)?;
    }
    equal("size", (1 << 41) + 4, s.attr(node)?.size)
}

const TOO_LARGE: &[Errno] = &[Errno::EFBIG, Errno::EINVAL];

fn too_far_away(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"one")?;
    for offset in [i64::MAX.unsigned_abs(), 1 << 63, u64::MAX - 1, u64::MAX] {
        let written = s.try_write(node, offset, b"xx");
        refused_as("write", TOO_LARGE, written)?;
        equal("read", Vec::new(), s.read(node, offset, 10)?)?;
    }
    equal("size", 3, s.attr(node)?.size)
}

fn of_a_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let read = s.fs.read(dir, NO_HANDLE, 0, &mut [0; 10]);
    refused("read", Errno::EISDIR, read)?;
    refused("write", Errno::EISDIR, s.try_write(dir, 0, b"x"))
}

fn written_from_the_cache(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let data = Random::new(5).bytes(65_536);
    let flags = WriteFlags::FROM_CACHE;
    ok("write", s.fs.write(node, NO_HANDLE, 0, &data, flags))?;
    same_bytes("contents", &data, &s.read(node, 0, 100_000)?)
}

fn written_directly(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &[7; 16_384])?;
    let flags = WriteFlags::DIRECT;
    ok("write", s.fs.write(node, NO_HANDLE, 4096, &[8; 4096], flags))?;
    equal("old", vec![7; 4096], s.read(node, 0, 4096)?)?;
    equal("new", vec![8; 4096], s.read(node, 4096, 4096)?)?;
    s.write(node, 4100, &[9; 10])?;
    equal("buffered", vec![9; 10], s.read(node, 4100, 10)?)
}

fn written_durably(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let flags = WriteFlags::DATA_SYNC | WriteFlags::APPEND;
    for _ in 0..3 {
        ok("write", s.fs.write(node, NO_HANDLE, 0, b"abc", flags))?;
    }
    equal("contents", b"abcabcabc".to_vec(), s.read(node, 0, 100)?)
}

fn survive_syncing(s: &Subject) -> Outcome {
    let data = Random::new(6).bytes(300_000);
    let node = s.file_with(ROOT, b"a", &data)?;
    for what in [SyncWhat::Data, SyncWhat::All] {
        ok("sync_file", s.fs.sync_file(node, NO_HANDLE, what))?;
        ok("sync_file of a directory", s.fs.sync_file(ROOT, NO_HANDLE, what))?;
        same_bytes("contents", &data, &s.read(node, 0, 400_000)?)?;
    }
    ok("sync_fs", s.fs.sync_fs())?;
    same_bytes("contents", &data, &s.read(node, 0, 400_000)?)?;
    let link = s.symlink(ROOT, b"link", b"x")?;
    ok("sync_file of a symlink", s.fs.sync_file(link, NO_HANDLE, SyncWhat::All))
}

fn are_cut_off_by_opening(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &[1; 100_000])?;
    s.age(node)?;
    let handle = s.open(node, OpenFlags::WRITE | OpenFlags::TRUNCATE)?;
    equal("size", 0, s.attr(node)?.size)?;
    s.has_changed("truncation", node, "mc")?;
    s.write(node, 10, b"x")?;
    s.fs.release(node, handle);
    equal("contents", b"\0\0\0\0\0\0\0\0\0\0x".to_vec(), s.read(node, 0, 100)?)
}

fn opened_for_writing_in_a_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    for flags in [OpenFlags::WRITE, OpenFlags::READ | OpenFlags::WRITE] {
        let opened = s.fs.open(&CALLER, dir, flags);
        refused("open", Errno::EISDIR, opened)?;
    }
    let handle = s.open(dir, OpenFlags::READ)?;
    s.fs.release(dir, handle);
    Ok(())
}

fn are_cut_off(s: &Subject) -> Outcome {
    let data = Random::new(7).bytes(100_000);
    let node = s.file_with(ROOT, b"a", &data)?;
    for size in [99_999, 65_536, 40_000, 4096, 4095, 1, 0] {
        let attr = s.set_size(node, u64::try_from(size).unwrap_or(0))?;
        equal("size", size, usize::try_from(attr.size).unwrap_or(0))?;
        same_bytes("contents", &data[..size], &s.read(node, 0, 200_000)?)?;
    }
    ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
    equal("blocks", 0, s.attr(node)?.blocks)
}

fn are_extended_by_zeros(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"one")?;
    equal("size", 10_000, s.set_size(node, 10_000)?.size)?;
    let mut expected = b"one".to_vec();
    expected.resize(10_000, 0);
    same_bytes("contents", &expected, &s.read(node, 0, 20_000)?)?;
    s.set_size(node, 1 << 40)?;
    equal("far", vec![0; 100], s.read(node, (1 << 40) - 100, 1000)?)?;
    let data = s.fs.seek(node, vfs::file_system::Seek::Data, 1 << 20);
    refused("data behind a megabyte", Errno::ENXIO, data)
}

fn do_not_come_back(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &[7; 20_000])?;
    let small = s.file_with(ROOT, b"b", &[7; 100])?;
    s.set_size(node, 5000)?;
    s.set_size(small, 50)?;
    s.set_size(node, 20_000)?;
    s.set_size(small, 100)?;
    equal("large", vec![0; 15_000], s.read(node, 5000, 20_000)?)?;
    equal("small", vec![0; 50], s.read(small, 50, 100)?)?;
    s.set_size(node, 5001)?;
    s.write(node, 9000, b"x")?;
    let between = s.read(node, 5001, 3999)?;
    equal("between", vec![0; 3999], between)
}

fn cut_off_at_every_size(s: &Subject) -> Outcome {
    for size in [1, 511, 2047, 2048, 2049, 4095, 4096, 4097, 8191] {
        let name = format!("{size}");
        let node = s.file_with(ROOT, name.as_bytes(), &[7; 9000])?;
        ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
        s.set_size(node, u64::try_from(size).unwrap_or(0))?;
        ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::All))?;
        s.set_size(node, 9000)?;
        let mut expected = vec![7; size];
        expected.resize(9000, 0);
        same_bytes(&name, &expected, &s.read(node, 0, 10_000)?)?;
    }
    Ok(())
}

fn too_large(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"one")?;
    for size in [1 << 63, u64::MAX] {
        let set = s.fs.set_attr(&CALLER, node, &size_change(size));
        refused_as("set_attr", TOO_LARGE, set)?;
    }
    equal("contents", b"one".to_vec(), s.read(node, 0, 100)?)
}

fn of_no_file_have_no_size_to_set(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    let set = s.fs.set_attr(&CALLER, dir, &size_change(0));
    refused("of a directory", Errno::EISDIR, set)?;
    let link = s.symlink(ROOT, b"link", b"target")?;
    let set = s.fs.set_attr(&CALLER, link, &size_change(0));
    holds("of a symlink", set.is_err())
}

fn as_a_model_has_them(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let mut model: Vec<u8> = Vec::new();
    let mut random = Random::new(8);
    for round in 0..400 {
        let offset = random.below(200_000);
        let at = usize::try_from(offset).unwrap_or(0);
        let len = usize::try_from(random.below(9000)).unwrap_or(0);
        if random.below(8) == 0 {
            s.set_size(node, offset)?;
            model.resize(at, 0);
        } else if len > 0 {
            let data = random.bytes(len);
            s.write(node, offset, &data)?;
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].copy_from_slice(&data);
        }
        if round % 40 == 0 {
            ok("sync_file", s.fs.sync_file(node, NO_HANDLE, SyncWhat::Data))?;
        }
    }
    same_bytes("contents", &model, &s.read(node, 0, 400_000)?)
}
