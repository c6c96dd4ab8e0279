//! Tests of the model's own properties; the rest is tested by the conformance suite.

use super::*;
use vfs::file_system::NodeKind;

const ROOT: NodeId = NodeId::ROOT;

fn make(fs: &MemoryFs, name: &[u8], kind: NodeKind) -> Entry {
    let new = NewNode { kind, permissions: 0o644, ..NewNode::default() };
    fs.create(&Caller::default(), ROOT, name, &new).unwrap()
}

fn write(fs: &MemoryFs, node: NodeId, offset: u64, data: &[u8]) -> Result<()> {
    fs.write(node, Handle(0), offset, data, WriteFlags::empty())?;
    Ok(())
}

#[test]
fn directories_have_one_link_and_twice_their_names() {
    let fs = MemoryFs::default();
    make(&fs, b"abc", NodeKind::Directory);
    make(&fs, b"12345", NodeKind::File);
    let attr = fs.attr(ROOT).unwrap();
    assert_eq!((attr.nlink, attr.size), (1, 16));
    fs.unlink(ROOT, b"12345").unwrap();
    assert_eq!(fs.attr(ROOT).unwrap().size, 6);
}

#[test]
fn a_full_file_system_refuses_and_can_still_delete() {
    let options = MemoryOptions { capacity_bytes: 8192, ..MemoryOptions::default() };
    let fs = MemoryFs::new(&options);
    let file = make(&fs, b"a", NodeKind::File).node;
    write(&fs, file, 0, &[1; 8192]).unwrap();
    let other = make(&fs, b"b", NodeKind::File).node;
    assert_eq!(write(&fs, other, 0, b"x"), Err(Errno::ENOSPC));
    assert_eq!(fs.attr(other).unwrap().size, 0);
    let plain = AllocateFlags::empty();
    assert_eq!(fs.allocate(other, plain, 0, 1).map_err(Errno::from), Err(Errno::ENOSPC));
    write(&fs, file, 4000, &[2; 200]).unwrap();
    assert_eq!(fs.status().unwrap().blocks_free, 0);
    fs.unlink(ROOT, b"a").unwrap();
    assert_eq!(fs.status().unwrap().blocks_free, 0);
    fs.forget(file, 1);
    assert_eq!(fs.status().unwrap().blocks_free, 2);
    write(&fs, other, 0, b"x").unwrap();
}

#[test]
fn nodes_go_with_their_last_use() {
    let fs = MemoryFs::default();
    let file = make(&fs, b"a", NodeKind::File).node;
    let read = OpenFlags::READ;
    let handle = fs.open(&Caller::default(), file, read).unwrap();
    fs.forget(file, 5);
    fs.unlink(ROOT, b"a").unwrap();
    assert_eq!(fs.node_count(), 2);
    fs.release(file, handle);
    assert_eq!(fs.node_count(), 1);
    assert_eq!(fs.attr(file).map_err(Errno::from), Err(Errno::ESTALE));
    assert_eq!(fs.open(&Caller::default(), file, read).map_err(Errno::from), Err(Errno::ESTALE));
}

#[test]
fn pages_are_counted_through_every_change() {
    let fs = MemoryFs::default();
    let free = || fs.status().unwrap().blocks_free;
    let before = free();
    let file = make(&fs, b"a", NodeKind::File).node;
    let flags = AllocateFlags::KEEP_SIZE;
    write(&fs, file, 100, &[1; 10_000]).unwrap();
    assert_eq!(before - free(), 3);
    fs.allocate(file, flags, 8192, 8192).unwrap();
    assert_eq!(before - free(), 4);
    fs.allocate(file, flags | AllocateFlags::PUNCH_HOLE, 4095, 4098).unwrap();
    assert_eq!(before - free(), 3);
    fs.allocate(file, flags | AllocateFlags::ZERO_RANGE, 0, 5000).unwrap();
    assert_eq!(before - free(), 4);
    let mut byte = [9];
    assert_eq!(fs.read(file, Handle(0), 4095, &mut byte).map_err(Errno::from), Ok(1));
    assert_eq!(byte, [0]);
    let changes = SetAttr { size: Some(8193), ..SetAttr::default() };
    fs.set_attr(&Caller::default(), file, &changes).unwrap();
    assert_eq!(before - free(), 3);
}
