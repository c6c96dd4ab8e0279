//! Tests the setting of attributes, and the numbers of `statfs`. `suite` runs these cases.

use vfs::file_system::{Errno, NodeId, SetAttr, SetTime, Time};

use super::case::cases;
use super::outcome::{Outcome, equal, holds, ok, refused};
use super::subject::{CALLER, LONG_AGO, ROOT, Subject, size_change};

cases! { "attributes":
    permissions,
    permissions_of_a_directory,
    owner_and_group,
    only_owner_or_group,
    all_at_once,
    times_to_the_nanosecond,
    times_before_1970_and_after_2038,
    times_that_are_none,
    one_time_alone,
    time_of_the_call,
    birth,
    of_a_symlink,
    nothing_to_set,
    of_a_node_that_is_gone,
    are_those_of_the_entry,
    are_seen_by_all_names,
    survive_syncing,
    blocks_count_what_is_allocated,
    of_the_volume,
}

fn permissions(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for permissions in [0, 0o777, 0o4755, 0o2711, 0o1600, 0o7777, 0o644] {
        let attr = s.chmod(node, permissions)?;
        equal("permissions", permissions, attr.permissions)?;
        equal("permissions", permissions, s.attr(node)?.permissions)?;
    }
    Ok(())
}

fn permissions_of_a_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    for permissions in [0, 0o1777, 0o2755, 0o700] {
        s.chmod(dir, permissions)?;
        equal("permissions", permissions, s.lookup(ROOT, b"dir")?.attr.permissions)?;
    }
    s.chmod(ROOT, 0o711)?;
    equal("permissions of root", 0o711, s.attr(ROOT)?.permissions)
}

fn set_owner(s: &Subject, node: NodeId, uid: Option<u32>, gid: Option<u32>) -> Outcome<(u32, u32)> {
    let changes = SetAttr { uid, gid, ..SetAttr::default() };
    let attr = s.set(node, &changes)?;
    Ok((attr.uid, attr.gid))
}

fn owner_and_group(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for (uid, gid) in [(1, 2), (u32::MAX - 1, 70_000), (0, 0)] {
        equal("owner and group", (uid, gid), set_owner(s, node, Some(uid), Some(gid))?)?;
    }
    equal("permissions", 0o644, s.attr(node)?.permissions)
}

fn only_owner_or_group(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    equal("owner", (5, 0), set_owner(s, dir, Some(5), None)?)?;
    equal("group", (5, 6), set_owner(s, dir, None, Some(6))?)
}

fn all_at_once(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"contents")?;
    let changes = SetAttr {
        permissions: Some(0o600),
        uid: Some(1),
        gid: Some(2),
        size: Some(4),
        atime: Some(SetTime::To(Time { sec: 1, nsec: 2 })),
        mtime: Some(SetTime::To(Time { sec: 3, nsec: 4 })),
        ..SetAttr::default()
    };
    let attr = s.set(node, &changes)?;
    equal("attr", attr, s.attr(node)?)?;
    let numbers = (attr.permissions, attr.uid, attr.gid, attr.size);
    equal("what was set", (0o600, 1, 2, 4), numbers)?;
    let times = (attr.atime, attr.mtime);
    equal("times", (Time { sec: 1, nsec: 2 }, Time { sec: 3, nsec: 4 }), times)
}

fn set_times(s: &Subject, node: NodeId, time: Time) -> vfs::file_system::Result<()> {
    let changes = SetAttr { atime: Some(SetTime::To(time)), mtime: Some(SetTime::To(time)), ..SetAttr::default() };
    s.fs.set_attr(&CALLER, node, &changes).map(drop)
}

fn reads_back(s: &Subject, node: NodeId, time: Time) -> Outcome {
    ok("set_attr", set_times(s, node, time))?;
    let attr = s.attr(node)?;
    equal("times", (time, time), (attr.atime, attr.mtime))
}

fn times_to_the_nanosecond(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    for node in [s.file(ROOT, b"a")?, dir] {
        for nsec in [0, 1, 999_999_999] {
            reads_back(s, node, Time { sec: 1_234_567_890, nsec })?;
        }
    }
    Ok(())
}

fn times_before_1970_and_after_2038(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    for sec in [-1, -2_147_483_648, 0, 4_294_967_296, 32_503_680_000] {
        reads_back(s, node, Time { sec, nsec: 500 })?;
    }
    Ok(())
}

fn times_that_are_none(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.age(node)?;
    let time = Time { sec: 1, nsec: 1_000_000_000 };
    refused("set_attr", Errno::EINVAL, set_times(s, node, time))?;
    s.has_changed("a refused change", node, "")
}

fn one_time_alone(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let time = Some(SetTime::To(Time { sec: 5, nsec: 5 }));
    s.age(node)?;
    let changes = SetAttr { atime: time, ..SetAttr::default() };
    s.set(node, &changes)?;
    s.has_changed("setting atime", node, "ac")?;
    s.age(node)?;
    let changes = SetAttr { mtime: time, ..SetAttr::default() };
    s.set(node, &changes)?;
    s.has_changed("setting mtime", node, "mc")
}

fn time_of_the_call(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.age(node)?;
    let changes = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
    let attr = s.set(node, &changes)?;
    s.has_changed("setting to now", node, "amc")?;
    equal("one time", (attr.ctime, attr.ctime), (attr.atime, attr.mtime))?;
    holds("not before its birth", attr.mtime >= attr.btime)
}

fn birth(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"x")?;
    let before = s.attr(node)?.btime;
    // A volume may have no place for it.
    if before == Time::default() {
        return Ok(());
    }
    s.chmod(node, 0o600)?;
    s.write(node, 0, b"y")?;
    s.rename((ROOT, b"a"), (ROOT, b"b"))?;
    equal("birth", before, s.attr(node)?.btime)?;
    let changes = SetAttr { btime: Some(LONG_AGO), ..SetAttr::default() };
    equal("birth as set", LONG_AGO, s.set(node, &changes)?.btime)
}

fn of_a_symlink(s: &Subject) -> Outcome {
    let node = s.symlink(ROOT, b"link", b"target")?;
    equal("owner", (3, 4), set_owner(s, node, Some(3), Some(4))?)?;
    reads_back(s, node, Time { sec: 77, nsec: 7 })?;
    equal("size", 6, s.attr(node)?.size)
}

fn nothing_to_set(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", b"x")?;
    let before = s.attr(node)?;
    let after = s.set(node, &SetAttr::default())?;
    let kept = |attr: &vfs::file_system::Attr| (attr.permissions, attr.size, attr.mtime);
    equal("attr", kept(&before), kept(&after))
}

fn of_a_node_that_is_gone(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    s.unlink(ROOT, b"a")?;
    s.fs.forget(node, 1);
    let set = s.fs.set_attr(&CALLER, node, &size_change(0));
    refused("set_attr", Errno::ESTALE, set)?;
    refused("write", Errno::ESTALE, s.try_write(node, 0, b"x"))?;
    let value = s.fs.get_xattr(node, b"user.a");
    refused("get_xattr", Errno::ESTALE, value)
}

fn are_those_of_the_entry(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &[1; 10_000])?;
    s.chmod(node, 0o4711)?;
    equal("lookup", s.attr(node)?, s.lookup(ROOT, b"a")?.attr)?;
    let linked = s.link(node, ROOT, b"b")?;
    equal("link", s.attr(node)?, linked.attr)
}

fn are_seen_by_all_names(s: &Subject) -> Outcome {
    let node = s.file(ROOT, b"a")?;
    let dir = s.dir(ROOT, b"dir")?;
    s.link(node, dir, b"b")?;
    s.chmod(node, 0o4711)?;
    s.write(node, 0, b"12345")?;
    for attr in [s.lookup(dir, b"b")?.attr, s.lookup(ROOT, b"a")?.attr] {
        equal("attr", (0o4711, 5, 2), (attr.permissions, attr.size, attr.nlink))?;
    }
    Ok(())
}

fn survive_syncing(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &[1; 100_000])?;
    set_owner(s, node, Some(9), Some(8))?;
    reads_back(s, node, Time { sec: 55, nsec: 66 })?;
    let before = s.attr(node)?;
    ok("sync_fs", s.fs.sync_fs())?;
    let after = s.attr(node)?;
    equal("attr", before, vfs::file_system::Attr { blocks: before.blocks, ..after })
}

fn blocks_count_what_is_allocated(s: &Subject) -> Outcome {
    let node = s.file_with(ROOT, b"a", &[1; 65_536])?;
    equal("before syncing", 128, s.attr(node)?.blocks)?;
    ok("sync_fs", s.fs.sync_fs())?;
    equal("blocks", 128, s.attr(node)?.blocks)?;
    s.set_size(node, 1 << 30)?;
    ok("sync_fs", s.fs.sync_fs())?;
    equal("blocks with a hole", 128, s.attr(node)?.blocks)
}

fn of_the_volume(s: &Subject) -> Outcome {
    let status = ok("status", s.fs.status())?;
    equal("longest name", 255, status.name_bytes_max)?;
    holds("block size", status.block_bytes.is_power_of_two() && status.block_bytes >= 512)?;
    holds("free", status.blocks_free <= status.blocks)?;
    holds("available", status.blocks_available <= status.blocks_free)?;
    let bytes = status.blocks_available.saturating_mul(status.block_bytes.into());
    holds("room for 64 MiB", bytes >= 64 << 20)?;
    holds("not read-only", !s.fs.is_read_only())?;
    s.file_with(ROOT, b"a", &vec![1; 16 << 20])?;
    ok("sync_fs", s.fs.sync_fs())?;
    let after = ok("status", s.fs.status())?;
    equal("blocks", status.blocks, after.blocks)?;
    let taken = status.blocks_free.saturating_sub(after.blocks_free);
    let taken_bytes = taken.saturating_mul(status.block_bytes.into());
    holds("space taken", taken_bytes >= 16 << 20)
}
