//! Reads an archive of either format into a tree. Callers of the crate use it.

use transfer::{Observer, Tree};

use crate::bytes::Bytes;
use crate::cpio;
use crate::error::Result;
use crate::input::{Input, ReadOptions};
use crate::tar;

/// Puts all members of an archive into `tree`, over what is there. The format and the compression are recognised.
/// Absolute names and names with `..` stay below the root, as if the archive was unpacked in a root directory.
///
/// `watch` can end the reading. It is not told of names and bytes: the copy of the tree does that.
///
/// # Errors
/// See [`crate::Error`]. The tree has the members up to the failure.
pub fn read_into(tree: &mut Tree, input: Input, options: &ReadOptions, watch: &dyn Observer) -> Result<()> {
    let mut bytes = Bytes::open(input, options)?.watched(watch);
    if cpio::is_magic(bytes.peek(cpio::MAGIC_BYTES)?) {
        let mut members = cpio::Members::over(bytes);
        while let Some(member) = members.next_member()? {
            member.put_into(tree)?;
        }
        return Ok(());
    }
    let mut members = tar::Members::over(bytes);
    while let Some(member) = members.next_member()? {
        member.put_into(tree)?;
    }
    Ok(())
}
