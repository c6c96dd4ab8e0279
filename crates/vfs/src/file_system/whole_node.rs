//! Makes and reads a node with all that is known about it, by one request after the other. Called by the trait
//! `FileSystem` for file systems that do not do it at once; `transfer` copies with it.

use serde::{Deserialize, Serialize};

use crate::acl::{ACCESS_NAME, DEFAULT_NAME};

use super::{
    Answer, Attr, Caller, Errno, FileSystem, Follow, NewNode, NodeId, NodeKind, OpenFlags, Seek, SetAttr, SetTime,
    WholeNode, WriteFlags, XattrMode,
};

/// Bytes of the names and values that [`FileSystem::known_at`] returns at most.
const XATTR_BYTES_MAX: usize = 128 << 10;

/// Extended attributes: names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// A node with its most important properties. Unreadable or long ones are missing: a caller requests them individually,
/// and gets the error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownNode {
    /// Attributes, as `stat` reports them.
    pub attr: Attr,
    /// Where a symbolic link leads.
    pub target: Option<Vec<u8>>,
    /// Names and values of all extended attributes.
    pub xattrs: Option<Xattrs>,
    /// All contents of a regular file without holes.
    pub data: Option<Vec<u8>>,
}

/// The default of [`FileSystem::create_whole`], for formats without such a step. If a request fails, the node is
/// removed again.
pub(super) fn create<F: FileSystem + ?Sized>(
    fs: &F,
    parent: NodeId,
    name: &[u8],
    node: &WholeNode<'_>,
) -> Answer<Attr> {
    let caller = Caller { uid: node.uid, gid: node.gid, pid: 0 };
    let new =
        NewNode { kind: node.kind, permissions: node.permissions, umask: 0, rdev: node.rdev, target: node.target };
    let entry = fs.create(&caller, parent, name, &new)?;
    let made = fill(fs, &caller, entry.node, node).and_then(|()| fs.attr(entry.node));
    fs.forget(entry.node, 1);
    match made {
        Ok(attr) => Ok(attr),
        Err(error) => {
            // The first failure is the one to report; a name that cannot be removed is left in the directory.
            let _ = match node.kind {
                NodeKind::Directory => fs.remove_dir(parent, name),
                _ => fs.unlink(parent, name),
            };
            Err(error)
        }
    }
}

/// Contents, attributes and times, in this order: each changes the later ones.
fn fill<F: FileSystem + ?Sized>(fs: &F, caller: &Caller, made: NodeId, node: &WholeNode<'_>) -> Answer<()> {
    if !node.data.is_empty() {
        let handle = fs.open(caller, made, OpenFlags::WRITE)?;
        let written = fs.write(made, handle, 0, node.data, WriteFlags::empty());
        fs.release(made, handle);
        written?;
    }
    drop_inherited(fs, made, node)?;
    let changes = SetAttr {
        permissions: (node.kind != NodeKind::Symlink).then_some(node.permissions),
        uid: Some(node.uid),
        gid: Some(node.gid),
        ..SetAttr::default()
    };
    fs.set_attr(caller, made, &changes)?;
    for (name, value) in node.xattrs {
        fs.set_xattr(made, name, value, XattrMode::Either, false)?;
    }
    let times = SetAttr {
        atime: node.atime.map(SetTime::To),
        mtime: node.mtime.map(SetTime::To),
        ctime: node.ctime,
        btime: node.btime,
        ..SetAttr::default()
    };
    if times != SetAttr::default() {
        fs.set_attr(caller, made, &times)?;
    }
    Ok(())
}

/// Removes access control lists that the node has from its directory: a whole node has those that it names, and no
/// others.
fn drop_inherited<F: FileSystem + ?Sized>(fs: &F, made: NodeId, node: &WholeNode<'_>) -> Answer<()> {
    let names = match fs.list_xattrs(made) {
        Err(error) if matches!(error.errno(), Errno::ENOSYS | Errno::EOPNOTSUPP) => return Ok(()),
        names => names?,
    };
    for name in names.iter().filter(|name| [ACCESS_NAME, DEFAULT_NAME].contains(&name.as_slice())) {
        if !node.xattrs.iter().any(|(own, _)| own == name) {
            fs.remove_xattr(made, name)?;
        }
    }
    Ok(())
}

/// The default of [`FileSystem::known_at`].
pub(super) fn read<F: FileSystem + ?Sized>(
    fs: &F,
    path: &[u8],
    follow: Follow,
    data_bytes_max: usize,
) -> Answer<KnownNode> {
    let entry = fs.resolve(path, follow)?;
    let (node, attr) = (entry.node, entry.attr);
    let target = attr.is_symlink().then(|| fs.read_link(node).ok()).flatten();
    let xattrs = xattrs(fs, node).ok().flatten();
    let size = usize::try_from(attr.size).ok().filter(|size| attr.is_file() && *size <= data_bytes_max);
    let data = size.and_then(|size| data(fs, node, size).ok().flatten());
    fs.forget(node, 1);
    Ok(KnownNode { attr, target, xattrs, data })
}

/// All attributes, where they are not too long.
fn xattrs<F: FileSystem + ?Sized>(fs: &F, node: NodeId) -> Answer<Option<Xattrs>> {
    let (mut pairs, mut bytes) = (Vec::new(), 0_usize);
    for name in fs.list_xattrs(node)? {
        let value = match fs.get_xattr(node, &name) {
            Ok(value) => value,
            // It has gone meanwhile.
            Err(error) if error.errno() == Errno::ENODATA => continue,
            Err(error) => return Err(error),
        };
        bytes = bytes.saturating_add(name.len()).saturating_add(value.len());
        if bytes > XATTR_BYTES_MAX {
            return Ok(None);
        }
        pairs.push((name, value));
    }
    Ok(Some(pairs))
}

/// All contents, where they are `size` bytes without a hole.
fn data<F: FileSystem + ?Sized>(fs: &F, node: NodeId, size: usize) -> Answer<Option<Vec<u8>>> {
    let mut bytes = vec![0; size];
    if size == 0 {
        return Ok(Some(bytes));
    }
    match fs.seek(node, Seek::Hole, 0) {
        Ok(hole) if usize::try_from(hole).is_ok_and(|hole| hole < size) => return Ok(None),
        Ok(_) => {}
        Err(error) if matches!(error.errno(), Errno::ENOSYS | Errno::EOPNOTSUPP) => {}
        Err(error) => return Err(error),
    }
    let handle = fs.open(&Caller::default(), node, OpenFlags::READ | OpenFlags::NO_ATIME)?;
    let count = fs.read(node, handle, 0, &mut bytes);
    fs.release(node, handle);
    Ok((count? == size).then_some(bytes))
}
