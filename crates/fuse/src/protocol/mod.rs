//! The language of the FUSE device: structures, numbers, and cutting requests into parts.
//!
//! What is here is the border to the kernel as linux/fuse.h of protocol 7.45 lays it out, and
//! nothing that acts. A request has three parts: a header, a structure whose size follows from
//! the kind of request, and the rest (names, data). Over the device the three lie in one piece,
//! over a ring apart; [`Request`] is the same for both.
//!
//! Invariants
//! * sizes of all structures are asserted at compile time;
//! * no byte of a request is believed: what does not fit is an error number, never a panic, and
//!   the kernel that sent it gets an answer.
//!
//! Called by the session (meaning of requests) and the transports (headers).

mod decode;
mod init;
pub(crate) mod opcode;
pub(crate) mod replies;
pub(crate) mod requests;

pub(crate) use decode::{OwnedRequest, Request};
pub(crate) use init::{Agreement, InitFlags, Wish};
