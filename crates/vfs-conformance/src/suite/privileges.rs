//! Tests set-user and set-group bits, and capabilities of programs: which changes clear them. `suite` runs these cases.

use vfs::file_system::{AllocateFlags, Caller, CopyRange, NodeId, OpenFlags, SetAttr, WriteFlags};
use vfs::privileges::CAPABILITY_NAME;

use super::case::cases;
use super::outcome::{Outcome, equal, ok};
use super::subject::{NO_HANDLE, ROOT, Subject};

cases! { "privileges":
    stay_when_one_writes_who_may_keep_them,
    go_when_told_so,
    without_group_execution,
    without_group_execution_by_a_stranger,
    writes_tell_of_what_they_took,
    go_with_the_size,
    go_with_the_owner,
    stay_with_the_owner_of_a_directory,
    go_with_what_opening_cuts_off,
    stay_otherwise,
    capability_goes_with_contents,
    capability_goes_with_the_owner,
    capability_stays_when_old_pages_are_written,
}

const CAPABILITY: &[u8] = &[1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// A program with privileges of every kind.
fn program(s: &Subject, permissions: u32) -> Outcome<NodeId> {
    let name = format!("program {permissions:o}");
    let node = if s.is_there(ROOT, name.as_bytes())? {
        s.lookup(ROOT, name.as_bytes())?.node
    } else {
        s.file_with(ROOT, name.as_bytes(), &[1; 10_000])?
    };
    s.chmod(node, permissions)?;
    s.set_xattr(node, CAPABILITY_NAME, CAPABILITY)?;
    Ok(node)
}

fn write(s: &Subject, node: NodeId, flags: WriteFlags) -> Outcome {
    ok("write", s.fs.write(node, NO_HANDLE, 0, b"x", flags)).map(drop)
}

fn has(s: &Subject, node: NodeId, permissions: u32, has_capability: bool) -> Outcome {
    equal("permissions", permissions, s.attr(node)?.permissions)?;
    let value = s.xattr(node, CAPABILITY_NAME)?;
    equal("has its capability", has_capability, value.is_some())
}

fn stay_when_one_writes_who_may_keep_them(s: &Subject) -> Outcome {
    let node = program(s, 0o6777)?;
    write(s, node, WriteFlags::empty())?;
    equal("permissions", 0o6777, s.attr(node)?.permissions)
}

fn go_when_told_so(s: &Subject) -> Outcome {
    for (before, after) in [(0o6777, 0o777), (0o4755, 0o755), (0o2711, 0o711), (0o1777, 0o1777)] {
        let node = program(s, before)?;
        write(s, node, WriteFlags::CLEAR_PRIVILEGES)?;
        has(s, node, after, false)?;
    }
    Ok(())
}

fn without_group_execution(s: &Subject) -> Outcome {
    // A member of the file's group keeps the bit; for a write the request says so.
    let changes = super::subject::size_change(100);
    let node = program(s, 0o6767)?;
    changed(s, node, changes, true)?;
    has(s, node, 0o2767, false)?;
    let node = program(s, 0o6767)?;
    write(s, node, WriteFlags::CLEAR_PRIVILEGES)?;
    has(s, node, 0o767, false)?;
    let by_member = WriteFlags::CLEAR_PRIVILEGES | WriteFlags::BY_MEMBER;
    for (before, after) in [(0o6767, 0o2767), (0o6777, 0o777)] {
        let node = program(s, before)?;
        write(s, node, by_member)?;
        has(s, node, after, false)?;
    }
    Ok(())
}

fn without_group_execution_by_a_stranger(s: &Subject) -> Outcome {
    let node = program(s, 0o2666)?;
    let stranger = Caller { uid: 1000, gid: 1000, pid: 1 };
    let changes = SetAttr { clear_privileges: true, ..super::subject::size_change(100) };
    ok("truncate", s.fs.set_attr(&stranger, node, &changes))?;
    has(s, node, 0o666, false)
}

/// A client that remembers the attributes of a node has to hear that they changed.
fn writes_tell_of_what_they_took(s: &Subject) -> Outcome {
    let clear = WriteFlags::CLEAR_PRIVILEGES;
    for (permissions, flags) in [(0o4755, clear), (0o2666, clear), (0o755, WriteFlags::empty())] {
        let node = program(s, permissions)?;
        for took in [true, false] {
            let written = ok("write", s.fs.write(node, NO_HANDLE, 0, b"x", flags))?;
            equal("took privileges", took, written.cleared_privileges)?;
        }
    }
    Ok(())
}

fn changed(s: &Subject, node: NodeId, changes: SetAttr, clear: bool) -> Outcome {
    let changes = SetAttr { clear_privileges: clear, ..changes };
    s.set(node, &changes).map(drop)
}

fn go_with_the_size(s: &Subject) -> Outcome {
    let changes = super::subject::size_change(100);
    let node = program(s, 0o6777)?;
    changed(s, node, changes, false)?;
    has(s, node, 0o6777, false)?;
    let node = program(s, 0o6755)?;
    changed(s, node, changes, true)?;
    has(s, node, 0o755, false)
}

fn owner() -> SetAttr {
    SetAttr { uid: Some(1000), ..SetAttr::default() }
}

fn go_with_the_owner(s: &Subject) -> Outcome {
    let node = program(s, 0o6777)?;
    changed(s, node, owner(), true)?;
    has(s, node, 0o777, false)?;
    let node = program(s, 0o6767)?;
    changed(s, node, owner(), true)?;
    has(s, node, 0o2767, false)
}

fn stay_with_the_owner_of_a_directory(s: &Subject) -> Outcome {
    let dir = s.dir(ROOT, b"dir")?;
    s.chmod(dir, 0o6777)?;
    changed(s, dir, owner(), false)?;
    equal("permissions", 0o6777, s.attr(dir)?.permissions)
}

fn go_with_what_opening_cuts_off(s: &Subject) -> Outcome {
    let flags = OpenFlags::WRITE | OpenFlags::TRUNCATE;
    let node = program(s, 0o6777)?;
    let handle = s.open(node, flags)?;
    s.fs.release(node, handle);
    has(s, node, 0o6777, false)?;
    let node = program(s, 0o6755)?;
    let handle = s.open(node, flags | OpenFlags::CLEAR_PRIVILEGES)?;
    s.fs.release(node, handle);
    has(s, node, 0o755, false)
}

fn stay_otherwise(s: &Subject) -> Outcome {
    let node = program(s, 0o6777)?;
    let handle = s.open(node, OpenFlags::READ | OpenFlags::WRITE)?;
    s.fs.release(node, handle);
    s.read(node, 0, 100)?;
    write_nothing(s, node)?;
    s.link(node, ROOT, b"link")?;
    s.set_xattr(node, b"user.a", b"1")?;
    s.rename((ROOT, b"link"), (ROOT, b"other"))?;
    has(s, node, 0o6777, true)?;
    s.chmod(node, 0o6755)?;
    has(s, node, 0o6755, true)
}

fn write_nothing(s: &Subject, node: NodeId) -> Outcome {
    let flags = WriteFlags::CLEAR_PRIVILEGES;
    ok("write", s.fs.write(node, NO_HANDLE, 0, b"", flags)).map(drop)
}

fn capability_goes_with_contents(s: &Subject) -> Outcome {
    let node = program(s, 0o6777)?;
    write(s, node, WriteFlags::empty())?;
    has(s, node, 0o6777, false)?;
    let punch = AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE;
    for flags in [AllocateFlags::empty(), punch, AllocateFlags::ZERO_RANGE] {
        let node = program(s, 0o6777)?;
        s.allocate(node, flags, 0, 4096)?;
        has(s, node, 0o6777, false)?;
    }
    let source = s.file_with(ROOT, b"source", &[2; 65_536])?;
    let node = program(s, 0o6777)?;
    let range = CopyRange { source, source_offset: 0, target: node, target_offset: 0, len: 65_536 };
    ok("copy_range", s.fs.copy_range(&range))?;
    has(s, node, 0o6777, false)
}

fn capability_goes_with_the_owner(s: &Subject) -> Outcome {
    let node = program(s, 0o755)?;
    changed(s, node, owner(), false)?;
    has(s, node, 0o755, false)
}

/// The pages of a new program are written after its capability was set.
fn capability_stays_when_old_pages_are_written(s: &Subject) -> Outcome {
    let node = program(s, 0o755)?;
    write(s, node, WriteFlags::FROM_CACHE)?;
    has(s, node, 0o755, true)
}
