//! What others do meanwhile, for who would rather give way to them.

use super::Store;

impl Store {
    /// How many handles on running transactions were begun since the store was opened: where the number grows while
    /// the caller has none, others change something.
    #[must_use]
    pub fn changes_begun(&self) -> u64 {
        self.0.gate.entered()
    }
}
