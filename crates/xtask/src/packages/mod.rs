//! Packages the built program and the C library.
//!
//! `payload` copies the files into a directory per package, with their paths below the root directory. `deb` and `rpm`
//! pack these directories with the tools of Debian and Fedora; `archive` makes a `.tar.gz`. This module compiles
//! nothing: its callers `main` and `release` pass the built files.
//!
//! Invariants: root owns all files, modes do not depend on the umask, and all time stamps are the time of the sources
//! (`system::source_date`), so that the same inputs give the same packages. Failure: the first command that fails ends
//! the run with its error.

pub(crate) mod archive;
pub(crate) mod deb;
pub(crate) mod payload;
pub(crate) mod rpm;
