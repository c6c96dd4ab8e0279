//! Backups in a store of objects: their states come back, writers that die at any moment or meet each other do no harm,
//! and stores that lie are refused.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::as_conversions,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests fail by panicking"
)]

mod bucket;
mod hostile;
mod killed;
mod states;
mod support;
mod writers;
