//! Reads archives of cpio in the newc format, with and without checksums: what `cpio -o -H newc` and `-H crc` write,
//! and what the kernel unpacks as its initramfs.
//!
//! Several archives behind one another are one, with zeros between them; a later one may be compressed, as in an
//! initramfs with early microcode. Names of one file share an inode number; its contents stand at one of them, mostly
//! the last. Times are whole seconds from 1970 to 2106, sizes at most 4 GiB.
//!
//! Invariants: every archive ends with its trailer; a checksum is verified before a member is returned; inode numbers
//! hold within one archive only, as for the kernel.
//!
//! Failure: [`crate::Error`] names the member and the byte. Callers: `read_into`, and programs that look at members.

mod header;
mod members;

pub(crate) use header::{MAGIC_BYTES, is_magic};
pub use members::Members;
