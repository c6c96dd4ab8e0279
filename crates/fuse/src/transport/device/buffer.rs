//! Allocates page-aligned buffers for requests and replies. Called by `worker`.

use crate::protocol::replies::OutHeader;
use crate::protocol::requests::{InHeader, WriteIn};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment of data for any page size: enough for direct I/O of any device.
const ALIGN: usize = 4096;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; ALIGN]);

/// A buffer whose data starts on a page border, with room for `FRONT` bytes before it.
pub(super) struct Buffer<const FRONT: usize> {
    pages: Vec<Page>,
}

/// A request of the kernel: the data of a write is aligned.
pub(super) type RequestBuffer = Buffer<{ size_of::<InHeader>() + size_of::<WriteIn>() }>;
/// A reply: the part behind the header is aligned.
pub(super) type ReplyBuffer = Buffer<{ size_of::<OutHeader>() }>;

impl<const FRONT: usize> Buffer<FRONT> {
    const START: usize = ALIGN - FRONT;

    /// A buffer for `data_bytes` behind the front. `None` if memory is short.
    pub(super) fn new(data_bytes: usize) -> Option<Self> {
        let count = data_bytes.div_ceil(ALIGN).checked_add(1)?;
        let pages = Page::new_vec_zeroed(count).ok()?;
        Some(Self { pages })
    }

    /// Front and data in one piece.
    pub(super) fn whole(&self) -> &[u8] {
        self.pages.as_bytes().get(Self::START..).unwrap_or_default()
    }

    /// Front and data in one piece.
    pub(super) fn whole_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut_bytes().get_mut(Self::START..).unwrap_or_default()
    }

    /// The data.
    pub(super) fn data_mut(&mut self) -> &mut [u8] {
        self.pages.as_mut_bytes().get_mut(ALIGN..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_aligned_and_the_front_lies_before_it() {
        let mut buffer = RequestBuffer::new(10_000).unwrap();
        assert_eq!(buffer.data_mut().as_ptr().addr() % ALIGN, 0);
        assert_eq!(buffer.data_mut().len(), 3 * ALIGN);
        assert_eq!(buffer.whole().len(), 3 * ALIGN + 80);
        assert_eq!(buffer.whole_mut().as_ptr().addr() % 8, 0);
        assert_eq!(ReplyBuffer::new(0).unwrap().whole().len(), 16);
    }

    #[test]
    fn more_than_there_is_cannot_be_had() {
        assert!(RequestBuffer::new(usize::MAX - ALIGN).is_none());
    }
}
