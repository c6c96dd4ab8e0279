//! Contention counters: background work (balance, deletion) checks them and yields to foreground requests.

use super::Store;

impl Store {
    /// How many handles were begun since the store was opened: where the number grows while the caller has none, other
    /// operations are running.
    #[must_use]
    pub fn changes_begun(&self) -> u64 {
        self.0.gate.entered()
    }
}
