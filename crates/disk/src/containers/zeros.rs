//! Finds out whether bytes are all zero. Called by `scan` and the writers of forms.

/// A block of zeros to compare with, and to write.
pub(super) static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// True if every byte is zero. Comparing memory is fast even in builds that are not optimised.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROS.len()).all(|part| ZEROS.get(..part.len()) == Some(part))
}
