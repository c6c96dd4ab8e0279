//! Headers of calls and replies of ONC RPC, and credentials (RFC 5531).

use super::xdr::{Reader, Writer};
use super::{Malformed, Result};
use crate::number::{to_u32, to_usize};

/// Longest credential or verifier in the protocol.
pub const CREDENTIAL_BYTES_MAX: usize = 400;
/// Most groups in a credential of AUTH_SYS.
pub const GROUPS_MAX: usize = 16;
/// Longest machine name in a credential.
const MACHINE_BYTES_MAX: usize = 255;
/// The version of RPC.
const RPC_VERSION: u32 = 2;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const MSG_DENIED: u32 = 1;
/// `MSG_ACCEPTED`.
pub const ACCEPTED: u32 = 0;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

/// Authentication flavors: how a caller identifies itself.
pub mod flavor {
    /// No identity.
    pub const AUTH_NONE: u32 = 0;
    /// User ID and group IDs, which the server trusts.
    pub const AUTH_SYS: u32 = 1;
}

/// The RPC programs of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// MOUNT, which returns the handle of the exported directory.
    Mount,
    /// NFS.
    Nfs,
}

impl Program {
    /// The version of both programs.
    pub const VERSION: u32 = 3;

    /// The number of the program.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Mount => 100_005,
            Self::Nfs => 100_003,
        }
    }

    /// The program with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Mount, Self::Nfs].into_iter().find(|program| program.number() == number)
    }
}

/// The user in an AUTH_SYS credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCredential {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups, at most [`GROUPS_MAX`].
    pub groups: Vec<u32>,
}

/// The credential of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS: a user and its groups.
    Sys(UserCredential),
    /// A flavor that the server does not support.
    Other(u32),
    /// An AUTH_SYS credential that cannot be decoded.
    Malformed,
}

/// The header of a call, with the arguments that follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call<'a> {
    /// Transaction ID; the reply repeats it.
    pub xid: u32,
    /// Version of RPC, 2.
    pub rpc_version: u32,
    /// Number of the program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Number of the procedure.
    pub procedure: u32,
    /// The caller.
    pub credential: Credential,
    /// The arguments, not decoded yet.
    pub arguments: &'a [u8],
}

impl<'a> Call<'a> {
    /// Decodes the header of a call.
    ///
    /// # Errors
    /// [`Malformed`] if the record is not a call: the server then cannot reply, and ends the connection.
    pub fn decode(record: &'a [u8]) -> Result<Self> {
        let mut read = Reader::new("call", record);
        let xid = read.u32()?;
        let kind = read.u32()?;
        if kind != CALL {
            return Err(Malformed::new("type of a message", "a call, 0", u64::from(kind)));
        }
        let rpc_version = read.u32()?;
        let (program, version, procedure) = (read.u32()?, read.u32()?, read.u32()?);
        let flavor = read.u32()?;
        let credential = Credential::decode(flavor, read.opaque(CREDENTIAL_BYTES_MAX)?);
        // The verifier, which these flavors do not use.
        let _ = (read.u32()?, read.opaque(CREDENTIAL_BYTES_MAX)?);
        Ok(Self { xid, rpc_version, program, version, procedure, credential, arguments: read.rest() })
    }

    /// Encodes the call as a record, as a client does.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        for number in [self.xid, CALL, self.rpc_version, self.program, self.version, self.procedure] {
            out.u32(number);
        }
        self.credential.encode(&mut out);
        out.u32(flavor::AUTH_NONE);
        out.opaque(b"");
        out.raw(self.arguments);
        out.into_bytes()
    }

    /// False if the call has another version of RPC than 2.
    #[must_use]
    pub const fn is_current(&self) -> bool {
        self.rpc_version == RPC_VERSION
    }
}

impl Credential {
    fn decode(number: u32, body: &[u8]) -> Self {
        match number {
            flavor::AUTH_NONE => Self::None,
            flavor::AUTH_SYS => user(body).map_or(Self::Malformed, Self::Sys),
            other => Self::Other(other),
        }
    }

    fn encode(&self, out: &mut Writer) {
        let mut body = Writer::default();
        let number = match self {
            Self::None => flavor::AUTH_NONE,
            Self::Other(flavor) => *flavor,
            Self::Malformed => flavor::AUTH_SYS,
            Self::Sys(user) => {
                body.u32(0);
                body.opaque(b"");
                body.u32(user.uid);
                body.u32(user.gid);
                body.u32(to_u32(user.groups.len()));
                user.groups.iter().for_each(|group| body.u32(*group));
                flavor::AUTH_SYS
            }
        };
        out.u32(number);
        out.opaque(&body.into_bytes());
    }
}

fn user(body: &[u8]) -> Result<UserCredential> {
    let mut read = Reader::new("AUTH_SYS", body);
    let _stamp = read.u32()?;
    let _machine = read.opaque(MACHINE_BYTES_MAX)?;
    let (uid, gid, count) = (read.u32()?, read.u32()?, read.u32()?);
    let many = Malformed::new("groups of AUTH_SYS", "at most 16", u64::from(count));
    let count = Some(to_usize(count)).filter(|count| *count <= GROUPS_MAX).ok_or(many)?;
    let groups = (0..count).map(|_| read.u32()).collect::<Result<_>>()?;
    read.end()?;
    Ok(UserCredential { uid, gid, groups })
}

/// The reason for which the server rejects a credential (`auth_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthFailure {
    /// The credential cannot be decoded.
    BadCredential,
    /// The server does not support the flavor.
    TooWeak,
}

/// The reason for which the server rejects a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Another version of RPC than 2.
    RpcMismatch,
    /// The credential was rejected.
    Auth(AuthFailure),
    /// No such program.
    ProgramUnavailable,
    /// Another version of the program than 3.
    ProgramMismatch,
    /// No such procedure.
    ProcedureUnavailable,
    /// The arguments cannot be decoded.
    GarbageArguments,
}

/// Writes the header of a successful reply; the results follow.
pub fn success(xid: u32, out: &mut Writer) {
    accepted(xid, 0, out);
}

fn accepted(xid: u32, status: u32, out: &mut Writer) {
    // With the verifier AUTH_NONE.
    for number in [xid, REPLY, ACCEPTED, flavor::AUTH_NONE, 0, status] {
        out.u32(number);
    }
}

/// Writes the reply to a rejected call.
pub fn refuse(xid: u32, refusal: Refusal, out: &mut Writer) {
    let denied = |numbers: &[u32], out: &mut Writer| {
        for number in [xid, REPLY, MSG_DENIED].iter().chain(numbers) {
            out.u32(*number);
        }
    };
    match refusal {
        Refusal::RpcMismatch => denied(&[RPC_MISMATCH, RPC_VERSION, RPC_VERSION], out),
        Refusal::Auth(AuthFailure::BadCredential) => denied(&[AUTH_ERROR, 1], out),
        Refusal::Auth(AuthFailure::TooWeak) => denied(&[AUTH_ERROR, 5], out),
        Refusal::ProgramUnavailable => accepted(xid, 1, out),
        Refusal::ProgramMismatch => {
            accepted(xid, 2, out);
            out.u32(Program::VERSION);
            out.u32(Program::VERSION);
        }
        Refusal::ProcedureUnavailable => accepted(xid, 3, out),
        Refusal::GarbageArguments => accepted(xid, 4, out),
    }
}
