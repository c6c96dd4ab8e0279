//! Makes packages of the built program and of the library for C.
//!
//! `payload` lays out the files below directories; `deb` and `rpm` pack these with the tools of Debian and Fedora,
//! `archive` as a `.tar.gz`. Nothing is compiled here: `main` and `release` say what to pack.
//!
//! Invariants: owners are root, modes do not depend on the umask, and every time is that of the sources
//! (`system::source_date`), so that equal inputs give equal packages. Fails with the first command that fails.

pub(crate) mod archive;
pub(crate) mod deb;
pub(crate) mod payload;
pub(crate) mod rpm;
