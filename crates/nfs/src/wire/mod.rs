//! The messages of ONC RPC (RFC 5531), MOUNT and NFS version 3 (RFC 1813) as values, without any I/O.
//!
//! ```text
//!   xdr        numbers and opaque bytes (RFC 4506): Reader, Writer
//!   record     fragments of a connection (RFC 5531, section 11)
//!   rpc        calls, credentials, the heads of replies
//!   status     the numbers of results, and which errno becomes which
//!   attributes what a client sets, and what it is told of a node
//!   call       the arguments of every procedure
//! ```
//!
//! Structures and procedures keep the names of the RFCs.
//!
//! Invariants: decoders take any bytes, never panic, and allocate no more than the bytes they are given; data and
//! names are borrowed from the message, and every length is limited before it is used. Failure: [`Malformed`].
//! Callers: `server`, the tests' client, and the fuzz targets.

mod attributes;
mod call;
mod record;
mod rpc;
mod status;
mod xdr;

pub use attributes::{NfsTime, SetAttributes, TimeChange, put_attributes, put_wcc, spec_data};
pub use call::{
    Access, Arguments, CREATE_VERIFIER_BYTES, DirOp, How, MountArguments, Stability, mount_procedure, procedure,
};
pub use record::{FRAGMENTS_MAX, Mark, RECORD_BYTES_MAX};
pub use rpc::{
    ACCEPTED, AuthFailure, CREDENTIAL_BYTES_MAX, Call, Credential, GROUPS_MAX, Program, Refusal, UserCredential,
    flavor, refuse, success,
};
pub use status::Status;
pub use xdr::{Reader, Writer};

/// Most data of one READ or WRITE.
pub const DATA_BYTES_MAX: u32 = 1 << 20;
/// Longest file handle; the specification's.
pub const HANDLE_BYTES_MAX: usize = 64;
/// Longest name that is decoded. The file system has a lower limit, and an error for it.
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest path that is decoded: of MNT, and the target of a symbolic link.
pub const PATH_BYTES_MAX: usize = 4096;

/// Bytes that are no message of the protocol: the client has a fault, or speaks another protocol.
///
/// To do: see whether the client mounts with `vers=3`, and whether its port leads to this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {expected}, found {found:#x}")]
pub struct Malformed {
    /// The field.
    pub what: &'static str,
    /// A legal value.
    pub expected: &'static str,
    /// The number that was found.
    pub found: u64,
}

impl Malformed {
    /// A field with another value than one that is legal.
    #[must_use]
    pub const fn new(what: &'static str, expected: &'static str, found: u64) -> Self {
        Self { what, expected, found }
    }
}

/// The result of decoding.
pub type Result<T> = std::result::Result<T, Malformed>;
