//! Defines the compiled module `_spinney` of the Python package `spinney`: the library `spinney` for Python code.
//!
//! Its classes and functions are thin: the package (`bindings/python/spinney`) has the classes that users see, and
//! passes paths as `bytes` or `str`. Records cross as dictionaries, from which the package makes its data classes.
//!
//! Invariants
//! * No engine call runs while this thread is attached to the interpreter, so that other Python threads run meanwhile.
//! * A volume that was opened before a fork is refused in the child process and never written or closed there.
//! * Functions with a progress callback run the operation in a thread of its own. The calling thread runs the callback
//!   and handles signals, so that Ctrl-C cancels the operation.
//!
//! Failure: errors of the library become `OSError` with the errno, the message and the path ([`error`]); a panic
//! becomes `PanicException`.

mod error;
mod file;
mod forks;
mod images;
mod name;
mod progress;
mod records;
mod slot;
mod streams;
mod subvolumes;
mod volume;

use pyo3::prelude::*;

#[pymodule]
mod _spinney {
    #[pymodule_export]
    use super::file::{File, Listing};
    #[pymodule_export]
    use super::forks::{all_forks, drop_expired_forks, drop_fork, fork, fork_changes, fork_patch, merge_fork};
    #[pymodule_export]
    use super::images::{check_image, format_names, make_volume, open_volume, recognise_image};
    #[pymodule_export]
    use super::progress::Progress;
    #[pymodule_export]
    use super::records::Stat;
    #[pymodule_export]
    use super::slot::after_fork;
    #[pymodule_export]
    use super::streams::{diff, receive, send};
    #[pymodule_export]
    use super::subvolumes::{
        default_subvolume, deleted_subvolumes, generation, set_default_subvolume, set_subvolume_read_only,
        subvolume_at, subvolume_info, subvolumes,
    };
    #[pymodule_export]
    use super::volume::Volume;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// Bytes at the beginning of an image by which its format is recognised.
    #[pymodule_export]
    const HEAD_BYTES: u64 = spinney::magic::HEAD_BYTES;
}
