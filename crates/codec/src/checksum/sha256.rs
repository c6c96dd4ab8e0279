//! Computes SHA-256. Called by `checksum`.

use sha2::{Digest as _, Sha256};

/// As stored.
pub(super) fn checksum(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
