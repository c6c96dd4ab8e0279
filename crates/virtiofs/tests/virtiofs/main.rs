//! The device with a virtual machine monitor of the tests' own, whose guest sends what it likes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hostile;
mod requests;
mod vmm;
