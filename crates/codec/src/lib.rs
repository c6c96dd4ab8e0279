//! Checksums and compression: pure functions on bytes.
