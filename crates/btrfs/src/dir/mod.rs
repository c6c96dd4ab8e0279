//! Names of directories.
mod types;
pub use types::{DirEntry, NewNode, NodeKind, RenameFlags, XattrMode};
