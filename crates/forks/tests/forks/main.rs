//! Forks by the public interface: what they contain, merges by rule and by chance, crashes, and hostile trees.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod basics;
mod crash;
mod hostile;
mod links;
mod model;
mod property;
mod sample;
