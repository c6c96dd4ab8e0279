//! Tests a [`vfs::Volume`] over any format: one scenario that calls all of its methods. Called by an engine's
//! `tests/paths.rs`, and by a test here.

use std::ffi::OsStr;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use vfs::acl::DEFAULT_NAME;
use vfs::file_system::{AllocateFlags, NodeKind, RenameFlags, SetAttr, Time, WholeNode, XattrMode};
use vfs::{Errno, File, FileOptions, Result, Times, Volume};

/// A part of the scenario; returns true if all results are right.
type Step = fn(&Volume) -> Result<bool>;

/// Runs the scenario on `volume`, which has to be empty and writable.
///
/// # Errors
/// The name of the first part with a wrong result, and the error if a call failed.
pub fn check(volume: &Volume) -> std::result::Result<(), String> {
    let steps: [(&str, Step); 9] = [
        ("directories", directories),
        ("symbolic links", links),
        ("contents", contents),
        ("options", options),
        ("renames", renames),
        ("attributes", attributes),
        ("whole nodes", whole_nodes),
        ("whole nodes below a default list", whole_nodes_inherit_nothing),
        ("listings and removal", listings),
    ];
    for (name, step) in steps {
        match step(volume) {
            Ok(true) => {}
            Ok(false) => return Err(format!("{name}: a result is wrong")),
            Err(error) => return Err(format!("{name}: expected success, found: {error}")),
        }
    }
    Ok(())
}

/// True when a call failed with this errno, and its error names this path.
fn refused<T>(result: Result<T>, errno: Errno, path: &str) -> bool {
    result.err().is_some_and(|error| error.errno() == errno && error.path() == Some(Path::new(path)))
}

fn directories(volume: &Volume) -> Result<bool> {
    volume.create_dir("a")?;
    volume.create_dir_all("/a/b/c/")?;
    volume.create_dir_all("a/b/c")?;
    let is_dir = volume.metadata("a/b/c")?.is_dir() && volume.metadata("/")?.is_dir();
    Ok(is_dir
        && refused(volume.create_dir("a"), Errno::EEXIST, "a")
        && refused(volume.create_dir("x/y"), Errno::ENOENT, "x/y")
        && refused(volume.create_dir("/"), Errno::EINVAL, "/")
        && refused(volume.metadata(""), Errno::ENOENT, "")
        && volume.metadata("a/b/../b/./c/..")?.ino == volume.metadata("a/b")?.ino
        && volume.metadata("/../..")?.ino == volume.metadata("/")?.ino)
}

fn links(volume: &Volume) -> Result<bool> {
    volume.write("a/file", "contents")?;
    volume.symlink("b/../file", "a/link")?;
    volume.symlink("/a/b", "absolute")?;
    volume.symlink("loop", "loop")?;
    let follows = volume.read("a/link")? == b"contents" && volume.metadata("absolute/c")?.is_dir();
    let stops = volume.symlink_metadata("a/link")?.is_symlink() && volume.symlink_metadata("absolute/")?.is_dir();
    Ok(follows
        && stops
        && volume.read_link("a/link")? == Path::new("b/../file")
        && refused(volume.read_link("a/file"), Errno::EINVAL, "a/file")
        && refused(volume.metadata("loop"), Errno::ELOOP, "loop")
        && refused(volume.metadata("a/file/"), Errno::ENOTDIR, "a/file/")
        && refused(volume.metadata("a/file/x"), Errno::ENOTDIR, "a/file/x")
        && volume.exists("a/link")?
        && !volume.exists("nothing")?)
}

fn contents(volume: &Volume) -> Result<bool> {
    let mut file = FileOptions::new().read(true).write(true).create_new(true).open(volume, "data")?;
    let io = |error: std::io::Error| vfs::Error::new(Errno::EIO, vfs::Blame::Program, error);
    file.write_all(b"0123456789").map_err(io)?;
    file.seek(SeekFrom::Start(4)).map_err(io)?;
    let mut rest = String::new();
    file.read_to_string(&mut rest).map_err(io)?;
    file.set_len(1 << 20)?;
    file.allocate(AllocateFlags::KEEP_SIZE | AllocateFlags::PUNCH_HOLE, 0, 4096)?;
    let is_hole = file.seek_hole(0)? == 0;
    file.set_len(6)?;
    let target = FileOptions::new().write(true).create(true).open(volume, "copy")?;
    let copied = target.copy_range(&file, 0, 0, 100)?;
    file.sync_data()?;
    file.sync_all()?;
    let named = File::unnamed(volume, "a")?;
    named.write_at(b"late", 0)?;
    named.link("a/named")?;
    Ok(rest == "456789"
        && is_hole
        && (copied, volume.read("copy")?) == (6, vec![0; 6])
        && file.metadata()?.size == 6
        && volume.read("a/named")? == b"late")
}

fn options(volume: &Volume) -> Result<bool> {
    let appending = FileOptions::new().append(true).open(volume, "copy")?;
    appending.write_at(b"end", 0)?;
    let reading = File::open(volume, "copy")?;
    let directory = File::open(volume, "a")?;
    let created = FileOptions::new().write(true).create(true).mode(0o600).open(volume, "private")?;
    let emptied = File::create(volume, "data")?;
    Ok(volume.read("copy")?.ends_with(b"\0end")
        && reading.write_at(b"x", 0).is_err_and(|error| error.errno() == Errno::EBADF)
        && directory.read_at(&mut [0], 0).is_err_and(|error| error.errno() == Errno::EISDIR)
        && created.metadata()?.permissions == 0o600
        && emptied.metadata()?.size == 0
        && refused(FileOptions::new().open(volume, "data"), Errno::EINVAL, "data")
        && refused(FileOptions::new().write(true).create_new(true).open(volume, "data"), Errno::EEXIST, "data")
        && refused(FileOptions::new().write(true).open(volume, "a"), Errno::EISDIR, "a")
        && refused(File::open(volume, "none"), Errno::ENOENT, "none"))
}

fn renames(volume: &Volume) -> Result<bool> {
    volume.hard_link("a/file", "second")?;
    let links = volume.metadata("second")?.nlink;
    volume.rename("second", "third")?;
    let kept = volume.rename_with("third", "data", RenameFlags::NO_REPLACE);
    volume.rename_with("third", "data", RenameFlags::EXCHANGE)?;
    Ok(links == 2
        && refused(kept, Errno::EEXIST, "third")
        && volume.read("data")? == b"contents"
        && volume.read("third")?.is_empty()
        && refused(volume.rename("a", "a/b/c/d"), Errno::EINVAL, "a")
        && refused(volume.hard_link("a", "e"), Errno::EPERM, "e"))
}

fn attributes(volume: &Volume) -> Result<bool> {
    let time = Time { sec: 1_000_000, nsec: 7 };
    volume.set_permissions("a/link", 0o640)?;
    volume.set_owner("a/file", Some(5), Some(6))?;
    volume.set_times("a/file", &Times { mtime: Some(time), ..Times::default() })?;
    volume.set_attributes("data", &SetAttr { permissions: Some(0o600), ..SetAttr::default() })?;
    volume.set_xattr("data", "user.one", "1", XattrMode::Create)?;
    let found = volume.metadata("a/file")?;
    let again = volume.set_xattr("data", "user.one", "2", XattrMode::Create);
    let names = volume.list_xattrs("data")?;
    let value = volume.get_xattr("data", "user.one")?;
    volume.remove_xattr("data", "user.one")?;
    // `data` is another name of `a/file`.
    Ok((found.permissions, found.uid, found.gid, found.mtime) == (0o600, 5, 6, time)
        && refused(again, Errno::EEXIST, "data")
        && names == [OsStr::new("user.one")]
        && value.as_deref() == Some(b"1")
        && volume.get_xattr("data", "user.one")?.is_none()
        && refused(volume.remove_xattr("data", "user.one"), Errno::ENODATA, "data"))
}

fn whole_nodes(volume: &Volume) -> Result<bool> {
    let time = |sec| Some(Time { sec, nsec: 1 });
    let (uid, gid, atime, mtime) = (3, 4, time(10), time(20));
    let xattrs: &[(&[u8], &[u8])] = &[(b"user.two", b"2")];
    let file =
        WholeNode { permissions: 0o4711, uid, gid, atime, mtime, xattrs, data: b"whole", ..WholeNode::default() };
    let made = volume.create_node("whole", &file)?;
    let found = volume.metadata("whole")?;
    let pipe = WholeNode { kind: NodeKind::Fifo, permissions: 0o622, ..WholeNode::default() };
    volume.create_node("pipe", &pipe)?;
    let link = WholeNode { kind: NodeKind::Symlink, target: b"whole", mtime, ..WholeNode::default() };
    volume.create_node("soft", &link)?;
    volume.mknod("node", NodeKind::CharDevice, 0o660, 0x0103)?;
    Ok(made == found
        && (found.permissions, found.uid, found.gid) == (0o4711, 3, 4)
        && (Some(found.atime), Some(found.mtime)) == (atime, mtime)
        && volume.get_xattr("whole", "user.two")?.as_deref() == Some(b"2")
        && volume.read("soft")? == b"whole"
        && volume.symlink_metadata("soft")?.mtime.sec == 20
        && volume.metadata("pipe")?.kind == NodeKind::Fifo
        && (volume.metadata("node")?.rdev, volume.metadata("node")?.mode()) == (0x0103, 0o020_660)
        && refused(volume.create_node("whole", &file), Errno::EEXIST, "whole"))
}

/// A whole node has the access lists that it names, whatever its directory hands down.
fn whole_nodes_inherit_nothing(volume: &Volume) -> Result<bool> {
    volume.create_dir("listed")?;
    // Version 2; tag, permissions and id of the owner, user 5, the group, the mask and others.
    let entries = [(1, 6, u32::MAX), (2, 7, 5), (4, 4, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)];
    let entry = |(tag, permissions, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let list = [2_u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat();
    volume.set_xattr("listed", DEFAULT_NAME, &list, XattrMode::Either)?;
    let node = |kind| WholeNode { kind, permissions: 0o640, ..WholeNode::default() };
    let file = volume.create_node("listed/file", &node(NodeKind::File))?;
    let dir = volume.create_node("listed/dir", &node(NodeKind::Directory))?;
    let is_bare = volume.list_xattrs("listed/file")?.is_empty() && volume.list_xattrs("listed/dir")?.is_empty();
    volume.remove_dir_all("listed")?;
    Ok((file.permissions, dir.permissions) == (0o640, 0o640) && is_bare)
}

fn listings(volume: &Volume) -> Result<bool> {
    volume.create_dir_all("many/deep/deeper")?;
    for number in 0..1500 {
        volume.write(format!("many/{number}"), "")?;
    }
    let entries = volume.read_dir("many")?.collect::<Result<Vec<_>>>()?;
    let mut names: Vec<&OsStr> = entries.iter().map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    names.dedup();
    let ascends = entries.windows(2).all(|pair| pair[0].next() < pair[1].next());
    let is_whole = names.len() == 1501 && entries.len() == 1501 && ascends;
    let full = refused(volume.remove_dir("many"), Errno::ENOTEMPTY, "many");
    let no_file = refused(volume.remove_file("many"), Errno::EISDIR, "many");
    volume.remove_dir_all("many")?;
    volume.remove_file("whole")?;
    volume.sync()?;
    Ok(is_whole
        && full
        && no_file
        && !volume.exists("many")?
        && refused(volume.remove_dir_all("/"), Errno::EINVAL, "/")
        && refused(volume.read_dir("data"), Errno::ENOTDIR, "data")
        && volume.exists("soft").is_ok_and(|exists| !exists)
        && !volume.is_read_only()
        && volume.status()?.name_bytes_max == 255)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::MemoryFs;

    #[test]
    fn a_volume_in_memory_passes_and_releases_all_nodes() {
        let fs = Arc::new(MemoryFs::default());
        let volume = Volume::new(Arc::<MemoryFs>::clone(&fs));
        assert_eq!(check(&volume), Ok(()));
        for entry in volume.read_dir("/").unwrap() {
            volume.remove_dir_all(Path::new("/").join(entry.unwrap().file_name())).unwrap();
        }
        assert_eq!(fs.node_count(), 1, "references or openings were not given back");
    }
}
