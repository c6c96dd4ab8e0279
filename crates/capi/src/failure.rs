//! Defines the refusals of this crate, and keeps the message of the last failure of each thread. Every call uses it.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use spinney::{Blame, Errno, Error};

/// The number for a handle whose volume a panic has left in an unknown state (`EUCLEAN`).
pub(crate) const POISONED: Errno = Errno(117);

/// A mistake of a program that calls the library, or of the library.
///
/// To do: correct the call; `spinney.h` describes it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Misuse {
    /// A program gave NULL for something that the call needs.
    #[error("`{0}` is NULL")]
    Null(&'static str),
    /// A program gave a value that the call does not take.
    #[error("`{what}` is {found}: expected {expected}")]
    Value { what: &'static str, expected: String, found: String },
    /// A program did not set the size of a struct.
    ///
    /// To do: set `struct_size` to `sizeof` the struct.
    #[error("the struct `{what}` has {found} bytes: expected {expected} or more")]
    ShortStruct { what: &'static str, expected: usize, found: usize },
    /// A program was written for a newer version of the library, and uses fields that this one lacks.
    ///
    /// To do: install a newer library, or leave the new fields 0.
    #[error("the struct `{what}` has fields behind byte {known} that this version of the library does not know")]
    LongStruct { what: &'static str, known: usize },
    /// A value does not fit into the buffer of a program.
    ///
    /// To do: call with a size of 0 to learn the length.
    #[error("the buffer has {found} bytes: expected {expected} or more")]
    ShortBuffer { expected: usize, found: usize },
    /// A program used a handle after it was closed, or a pointer that is no handle.
    #[error("not an open handle: expected {expected}, found one that was closed, or no handle")]
    Closed { expected: &'static str },
    /// A program used a handle of another type.
    #[error("a handle of another type: expected {expected}, found {found}")]
    OtherType { expected: &'static str, found: &'static str },
    /// The call is about subvolumes, which the volume does not have.
    ///
    /// To do: use a volume of btrfs.
    #[error("the format {0} has none of this: it needs btrfs")]
    OtherFormat(&'static str),
    /// The image has a name that a program in C cannot be given.
    ///
    /// To do: rename it with a program that can.
    #[error("{0} has a NUL in it, which a text of C cannot have")]
    Nul(&'static str),
    /// The library contradicts itself.
    ///
    /// To do: report it with the image; close all handles of the volume.
    #[error("a defect of this library: {0}")]
    Panic(String),
    /// An earlier call ended with a defect of the library.
    ///
    /// To do: close all handles of the volume, and open it again.
    #[error("nothing can be done with this volume after a defect of this library ({0}): close its handles")]
    Poisoned(String),
}

impl Misuse {
    /// The error with the number for it.
    pub(crate) fn error(self) -> Error {
        let (errno, blame) = match &self {
            Self::Closed { .. } | Self::OtherType { .. } => (Errno::EBADF, Blame::Caller),
            Self::LongStruct { .. } => (Errno::E2BIG, Blame::Caller),
            Self::ShortBuffer { .. } => (Errno::ERANGE, Blame::Caller),
            Self::OtherFormat(_) => (Errno::EOPNOTSUPP, Blame::Program),
            Self::Nul(_) => (Errno::EILSEQ, Blame::Image),
            Self::Panic(_) => (Errno::EIO, Blame::Bug),
            Self::Poisoned(_) => (POISONED, Blame::EarlierFailure),
            Self::Null(_) | Self::Value { .. } | Self::ShortStruct { .. } => (Errno::EINVAL, Blame::Caller),
        };
        Error::new(errno, blame, self)
    }

    /// A value that a call does not take.
    pub(crate) fn value(what: &'static str, expected: impl Into<String>, found: impl ToString) -> Error {
        Self::Value { what, expected: expected.into(), found: found.to_string() }.error()
    }
}

/// The result type of a call: 0 or a count, and negative for a failure.
pub(crate) trait Code {
    /// The code of a failure.
    fn failed(errno: Errno) -> Self;
}

impl Code for c_int {
    fn failed(errno: Errno) -> Self {
        // A failure without a number would look like a success.
        if errno.0 > 0 { -errno.0 } else { -Errno::EIO.0 }
    }
}

impl Code for i64 {
    fn failed(errno: Errno) -> Self {
        c_int::failed(errno).into()
    }
}

thread_local! {
    /// Message of the last failure of this thread.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
    /// The text that this thread was given last.
    static SHOWN: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps the message of a failure of this thread.
pub(crate) fn remember(message: &str) {
    // A thread that ends may call the library when its variables are gone; then there is no one to read the message.
    let _ = LAST.try_with(|last| message.clone_into(&mut last.borrow_mut()));
}

/// The message of the last failure of this thread.
pub(crate) fn last() -> String {
    LAST.try_with(|last| last.borrow().clone()).unwrap_or_default()
}

/// Shows a text to the caller, until this thread shows another one.
pub(crate) fn show(text: String) -> *const c_char {
    let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    let shown = SHOWN.try_with(|shown| {
        *shown.borrow_mut() = text;
        shown.borrow().as_ptr()
    });
    shown.unwrap_or(CStr::as_ptr(c""))
}
