//! Wraps the file system under test for the cases: a failure is its number, which is all that a case may expect. Called
//! by `subject`.

use std::sync::Arc;

use vfs::file_system::{
    AllocateFlags, Attr, Caller, CopyRange, DirSink, Entry, FileSystem, Handle, NewNode, NodeFlags, NodeId, OpenFlags,
    RenameFlags, Result, Seek, SetAttr, SyncWhat, VolumeStatus, WriteFlags, Written, XattrMode,
};

#[derive(Clone)]
pub(super) struct Asked(Arc<dyn FileSystem>);

macro_rules! requests {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        impl Asked {
            pub(super) fn new(fs: Arc<dyn FileSystem>) -> Self {
                Self(fs)
            }

            pub(super) fn forget(&self, node: NodeId, count: u64) {
                self.0.forget(node, count);
            }

            pub(super) fn release(&self, node: NodeId, handle: Handle) {
                self.0.release(node, handle);
            }

            pub(super) fn is_read_only(&self) -> bool {
                self.0.is_read_only()
            }

            $(
                pub(super) fn $name(&self, $($argument: $kind),*) -> Result<$answer> {
                    Ok(self.0.$name($($argument),*)?)
                }
            )*
        }
    };
}

requests! {
    lookup(parent: NodeId, name: &[u8]) -> Entry;
    attr(node: NodeId) -> Attr;
    set_attr(caller: &Caller, node: NodeId, changes: &SetAttr) -> Attr;
    read_link(node: NodeId) -> Vec<u8>;
    create(caller: &Caller, parent: NodeId, name: &[u8], new: &NewNode<'_>) -> Entry;
    create_unnamed(caller: &Caller, parent: NodeId, new: &NewNode<'_>, flags: OpenFlags) -> (Entry, Handle);
    link(node: NodeId, parent: NodeId, name: &[u8]) -> Entry;
    unlink(parent: NodeId, name: &[u8]) -> ();
    remove_dir(parent: NodeId, name: &[u8]) -> ();
    rename(caller: &Caller, from: (NodeId, &[u8]), to: (NodeId, &[u8]), flags: RenameFlags) -> ();
    open(caller: &Caller, node: NodeId, flags: OpenFlags) -> Handle;
    read(node: NodeId, handle: Handle, offset: u64, buf: &mut [u8]) -> usize;
    write(node: NodeId, handle: Handle, offset: u64, data: &[u8], flags: WriteFlags) -> Written;
    sync_file(node: NodeId, handle: Handle, what: SyncWhat) -> ();
    sync_fs() -> ();
    allocate(node: NodeId, flags: AllocateFlags, offset: u64, len: u64) -> ();
    seek(node: NodeId, what: Seek, offset: u64) -> u64;
    copy_range(range: &CopyRange) -> u64;
    read_dir(node: NodeId, from: u64, with_nodes: bool, sink: &mut dyn DirSink) -> ();
    get_xattr(node: NodeId, name: &[u8]) -> Vec<u8>;
    list_xattrs(node: NodeId) -> Vec<Vec<u8>>;
    set_xattr(node: NodeId, name: &[u8], value: &[u8], mode: XattrMode, clear_set_group: bool) -> ();
    remove_xattr(node: NodeId, name: &[u8]) -> ();
    flags(node: NodeId) -> NodeFlags;
    set_flags(caller: &Caller, node: NodeId, flags: NodeFlags) -> ();
    status() -> VolumeStatus;
}
