//! A node with all that is known about it, made by one request after the other.

use super::{
    Answer, Attr, Caller, FileSystem, NewNode, NodeId, NodeKind, OpenFlags, SetAttr, SetTime, WholeNode, WriteFlags,
    XattrMode,
};

/// What [`FileSystem::create_whole`] does where the format has no such step. What was made goes again when a request
/// fails.
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

/// Contents, attributes and times, in this order: each changes what comes after it.
fn fill<F: FileSystem + ?Sized>(fs: &F, caller: &Caller, made: NodeId, node: &WholeNode<'_>) -> Answer<()> {
    if !node.data.is_empty() {
        let handle = fs.open(caller, made, OpenFlags::WRITE)?;
        let written = fs.write(made, handle, 0, node.data, WriteFlags::empty());
        fs.release(made, handle);
        written?;
    }
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
