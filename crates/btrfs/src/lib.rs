//! Files, directories and subvolumes on the store.
