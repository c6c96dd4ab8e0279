//! Writes send streams: commands that create a subvolume, or turn one snapshot into another, at a receiver.
//!
//! [`send`] is a function of two trees that do not change, and writes commands to an encoder. It iterates over
//! differences in the order of inode numbers ([`changes`]), twice: first every inode that loses its place is set aside
//! or removed ([`names::clear`]), then each inode gets its names, contents and attributes ([`names::place`],
//! [`content`], [`attributes`]). Times of directories are set after the changes in them.
//!
//! Invariants
//! * Memory is bounded, but for one number for each differing directory of some kinds: trees of any size can be sent.
//! * Every path in a command is where its inode is at the receiver at that moment ([`places`]).
//!
//! Failure: damage and I/O as everywhere; images that contradict themselves give streams that a receiver refuses, but
//! the sender still ends. Caller: `volume::send`.

mod attributes;
mod changes;
mod clones;
mod content;
mod names;
mod places;
mod report;
mod sender;
mod stream;
mod view;

pub use report::{Change, ChangeKind, Named};
pub(crate) use report::{data_bytes, report};
pub(crate) use sender::Source;
pub use sender::{SendError, SendOptions};
pub(crate) use stream::send;
