//! Verifies a repository without reading all of it: the manifest, all lists, the length of each object, and the
//! contents of some objects. Called by the command `restore --verify`.

use checking::Watch;

use crate::error::{Error, Result};
use crate::repository::Repository;
use crate::repository::catalog::Stream;

/// The outcome of a verification.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// States that can be restored, as far as was read.
    pub states: u64,
    /// Objects that are there in their length.
    pub objects: u64,
    /// Objects whose contents were read and compared.
    pub read: u64,
    /// Bytes of all objects.
    pub bytes: u64,
    /// The faults, each with its object.
    pub faults: Vec<String>,
}

impl Repository {
    /// Verifies all streams. Of 100 objects the contents of `percent` are read, others each time if `seed` is another
    /// number.
    ///
    /// # Errors
    /// [`Error::Store`], [`Error::Cancelled`]. Faults of objects are in the [`Inspection`].
    pub fn verify_objects(&self, percent: u8, seed: u64, watch: &dyn Watch) -> Result<Inspection> {
        let mut found = Inspection::default();
        for stream in self.streams() {
            let faults = found.faults.len();
            let parts = match self.list(stream) {
                Err(Error::Corrupt { path, what }) => {
                    found.faults.push(format!("{}: {what}", path.display()));
                    continue;
                }
                parts => parts?,
            };
            for (key, part) in stream.head.part_keys().zip(&parts) {
                if watch.is_cancelled() {
                    return Err(Error::Cancelled);
                }
                let is_read = is_chosen(found.objects, percent, seed);
                let checked = match is_read {
                    true => self.object(&key, part).map(drop),
                    false => self.measure(&key, part.stored),
                };
                match checked {
                    Err(Error::Corrupt { path, what }) => found.faults.push(format!("{}: {what}", path.display())),
                    done => done?,
                }
                found.objects = found.objects.saturating_add(1);
                found.read = found.read.saturating_add(u64::from(is_read));
                found.bytes = found.bytes.saturating_add(part.stored);
                watch.add_bytes(if is_read { part.stored } else { 0 });
            }
            if faults == found.faults.len() && self.chain(stream).is_ok() {
                found.states = found.states.saturating_add(1);
            }
        }
        Ok(found)
    }

    /// Asks whether all objects of a stream are there in their length.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Store`].
    pub(super) fn measure_all(&self, stream: &Stream) -> Result<()> {
        let parts = self.list(stream)?;
        stream.head.part_keys().zip(&parts).try_for_each(|(key, part)| self.measure(&key, part.stored))
    }

    fn measure(&self, key: &str, expected: u64) -> Result<()> {
        match self.store.size(key).map_err(|error| self.failed(key, error))? {
            None => Err(self.corrupt(key, "is missing")),
            Some(len) if len == expected => Ok(()),
            Some(len) => Err(self.corrupt(key, format!("its length: expected {expected} bytes, found {len}"))),
        }
    }
}

/// Chooses `percent` of 100 numbers, spread evenly, others for another seed.
fn is_chosen(number: u64, percent: u8, seed: u64) -> bool {
    // An odd factor visits each remainder of 100 that is prime to it once.
    let place = number.wrapping_add(seed).wrapping_mul(61) % 100;
    place < u64::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentage_is_kept_and_every_object_is_chosen_in_time() {
        for percent in [0, 1, 5, 50, 100] {
            for first in [0, 7, 12_345] {
                let count = (first..first + 100).filter(|number| is_chosen(*number, percent, 3)).count();
                assert_eq!(count, usize::from(percent));
            }
        }
        assert!((0..100).any(|seed| is_chosen(42, 1, seed)));
    }
}
