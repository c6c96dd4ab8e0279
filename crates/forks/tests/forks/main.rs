//! Forks by the public interface: what they contain, merges by rule and by chance, crashes, and hostile trees.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod model;
mod property;
mod sample;
