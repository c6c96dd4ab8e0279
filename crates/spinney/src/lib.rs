//! btrfs without root: the library.
