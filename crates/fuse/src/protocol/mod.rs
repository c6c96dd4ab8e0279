//! Defines the protocol of the FUSE device: structures, numbers, and parsing of requests.
//!
//! This module has the interface to the kernel as in linux/fuse.h of protocol 7.45, and no behaviour. A request has
//! three parts: a header, a structure whose size follows from the kind of request, and the rest (names, data). Over the
//! device the three lie in one piece, over a ring they are separate; [`Request`] is the same for both.
//!
//! Invariants
//! * sizes of all structures are asserted at compile time;
//! * requests are untrusted: a malformed one gives an error number, never a panic, and the kernel gets an answer.
//!
//! Called by the session (meaning of requests) and the transports (headers).

mod decode;
mod init;
pub(crate) mod opcode;
pub(crate) mod replies;
pub(crate) mod requests;

pub(crate) use decode::{OwnedRequest, Request};
pub(crate) use init::{Agreement, InitFlags, Wish};
