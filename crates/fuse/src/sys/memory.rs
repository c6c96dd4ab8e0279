//! Maps page-aligned memory that the kernel writes to while this process does not access it. Called by `ring`.

use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;

/// Anonymous memory of its own.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, whatever thread it is in.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Zeros, of the two sizes together.
    pub(super) fn new(first_bytes: usize, second_bytes: usize) -> io::Result<Self> {
        let len = first_bytes.checked_add(second_bytes).filter(|len| *len > 0).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing that exists.
        let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Its address, for the kernel.
    pub(super) fn address_bytes(&self) -> u64 {
        u64::try_from(self.start.as_ptr().expose_provenance()).unwrap_or(0)
    }

    /// All of it. Only while the kernel does not write to it.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has `len` initialized bytes, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from a value that is dropped.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "giving back the memory of a ring");
        }
    }
}
