//! Inodes in memory.
mod attr;
mod data;
pub use attr::{
    FileType, MODE_PERMISSION_MASK, MODE_SET_GROUP, MODE_TYPE_MASK, Metadata, SetAttr, Times,
    Timestamp, InodeFlags,
};
