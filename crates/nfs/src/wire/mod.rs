//! Encodes and decodes the messages of ONC RPC (RFC 5531), MOUNT and NFS version 3 (RFC 1813), without I/O.
//!
//! ```text
//!   xdr        numbers and opaque bytes (RFC 4506): Reader, Writer
//!   record     record marks of a connection (RFC 5531, section 11)
//!   rpc        headers of calls and replies, credentials
//!   status     status codes, and how errno maps to them
//!   attributes attributes in SETATTR and in replies
//!   call       the arguments of every procedure
//! ```
//!
//! Structures and procedures keep the names of the RFCs.
//!
//! Invariants: decoders accept any bytes, never panic, and allocate no more bytes than the message has. They borrow
//! data and names from the message, and check every length against a limit before they use it. Failure: [`Malformed`].
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
/// Longest file handle in the protocol (`NFS3_FHSIZE`).
pub const HANDLE_BYTES_MAX: usize = 64;
/// Longest name that is decoded. The file system has a lower limit, with an error of its own.
pub const NAME_BYTES_MAX: usize = 4096;
/// Longest path that is decoded, in MNT and in the target of a symbolic link.
pub const PATH_BYTES_MAX: usize = 4096;

/// A message that breaks the protocol: the client has a bug, or speaks another protocol.
///
/// To do: check that the client mounts with `vers=3`, and that its port is that of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {expected}, found {found:#x}")]
pub struct Malformed {
    /// Name of the field.
    pub what: &'static str,
    /// The legal values.
    pub expected: &'static str,
    /// The number that was found.
    pub found: u64,
}

impl Malformed {
    /// Reports a field with an illegal value.
    #[must_use]
    pub const fn new(what: &'static str, expected: &'static str, found: u64) -> Self {
        Self { what, expected, found }
    }
}

/// The result of decoding.
pub type Result<T> = std::result::Result<T, Malformed>;
