//! What every file system has in common.
