//! Reads, writes, cuts, preallocates, copies, shares and defragments the contents of files.
//!
//! Everything works on an [`Inode`](crate::inode::Inode) and the layers of its data, which
//! `inode::data` draws: dirty pages over pages in flight over pending extents over the tree.
//! [`read`] takes each byte from the first layer that has it. [`write`] puts small writes into
//! pages and large ones straight on disk. The others change items themselves, after a flush, in
//! transactions of bounded size.
//!
//! Invariants
//! * data that has checksums is never returned without having matched them, nor contents that fs-verity protects
//!   without having matched their tree;
//! * a size in an item is checked before memory is allocated for it;
//! * bytes beyond the end of a file read as zeros once the file grows over them: the operation that makes a
//!   file shorter or longer takes care of its last sector;
//! * space is reserved before anything becomes dirty: `NoSpace` comes from the write, not later.
//!
//! Failure: callers' mistakes as `Error::Caller` before anything changes; `NoSpace`; damage and
//! device errors as they are met. A step of a longer operation that fails leaves the steps before.
//!
//! Callers: `vfs_impl` for requests on data, `dir` (targets of symbolic links), `send`.

mod allocate;
mod copy;
mod defrag;
mod disk;
mod encoded_write;
mod exchange;
mod list;
mod page_preparation;
mod read;
mod reflink;
mod shared_extents;
#[cfg(test)]
mod tests;
mod truncate;
mod verity;
mod write;

pub(crate) use allocate::AllocateMode;

pub(crate) use allocate::allocate;
pub(crate) use copy::copy_range;
pub(crate) use defrag::{Layout, defragment};
pub(crate) use disk::{Csums, expand, inline_bytes, read as read_from_disk};
pub(crate) use encoded_write::{Encoded, write_encoded};
pub(crate) use list::{extents, seek_data, seek_hole};
pub(crate) use read::read_at;
pub(crate) use reflink::{CloneRange, reflink, share_same};
pub use shared_extents::SharedExtent;
pub(crate) use shared_extents::shared_extents;
pub(crate) use truncate::set_size;
pub(crate) use verity::descriptor as verity_descriptor;
#[cfg(test)]
pub(crate) use write::write_at;
pub(crate) use write::{write_back, write_some};
