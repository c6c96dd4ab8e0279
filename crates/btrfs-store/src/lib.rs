//! A transactional, checksummed copy-on-write store of items and extents.
