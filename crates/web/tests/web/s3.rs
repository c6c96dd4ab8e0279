//! A bucket that wants signatures: the server computes them itself, and refuses others.
//!
//! The settings come from variables of the process, which tests cannot change for one thread: `crates/cli` has tests of
//! the program with variables. Here, public objects are read without credentials.

use crate::fake::open;

#[test]
fn names_are_checked_before_anything_is_sent() {
    for (locator, words) in [("s3://bucket", "a key is missing"), ("s3://b u/k", "the name of a bucket"), ("s3:///k", "bucket")] {
        let error = open(locator).unwrap_err().to_string();
        assert!(error.contains(words), "{locator}: {error}");
    }
}
