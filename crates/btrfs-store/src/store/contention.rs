//! Counts the handles that were begun, so that background work sees foreground requests and yields to them. Called by
//! the balance and the deletion of subvolumes of the crate `btrfs`.

use super::Store;

impl Store {
    /// How many handles were begun since the store was opened: where the number grows while the caller has none, other
    /// operations are running.
    #[must_use]
    pub fn changes_begun(&self) -> u64 {
        self.0.gate.entered()
    }
}
