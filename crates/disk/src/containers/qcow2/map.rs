//! Remembers which clusters of an image have data, and how they are stored. Called by `qcow2` and `tables`.
//!
//! Only groups of clusters with data take memory, so that an image of petabytes that holds little needs little.

use std::collections::BTreeMap;

use super::CLUSTER;
use crate::number::{bytes, up};

/// Clusters of a group: those of one L2 table.
pub(super) const GROUP_CLUSTERS: u64 = CLUSTER / 8;
/// Words of the bits of a group.
const GROUP_WORDS: usize = 128;

/// How a cluster is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stored {
    /// In a cluster of its own.
    Whole,
    /// Compressed, with as many bytes.
    Compressed(u16),
}

impl Stored {
    /// How a cluster is stored that could be compressed to as many bytes.
    pub(super) fn of_len(len: usize) -> Self {
        u16::try_from(len).map_or(Self::Whole, Self::Compressed)
    }

    const fn len_bytes(self) -> u64 {
        match self {
            Self::Whole => CLUSTER,
            // `From` is not usable in a constant function, and this is no narrowing.
            Self::Compressed(len) => widened(len),
        }
    }
}

const fn widened(len: u16) -> u64 {
    let [low, high] = len.to_le_bytes();
    u64::from_le_bytes([low, high, 0, 0, 0, 0, 0, 0])
}

/// Where a cluster with data is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its number in the image.
    pub(super) cluster_index: u64,
    /// Its first byte in the file.
    pub(super) at: u64,
    /// Bytes in the file.
    pub(super) len_bytes: u64,
    pub(super) is_compressed: bool,
}

/// Which clusters have data. In the order of the image, which is their order in the file.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Map {
    /// For each group with data a bit for each of its clusters.
    groups: BTreeMap<u64, Box<[u64; GROUP_WORDS]>>,
    /// How each cluster with data is stored, from the first that is compressed on.
    stored: Vec<Stored>,
    /// How many clusters come before those: all of them whole.
    whole_count: u64,
}

impl Map {
    /// Adds a cluster behind all others.
    pub(super) fn add(&mut self, cluster_index: u64, stored: Stored) {
        let bits = self.groups.entry(cluster_index / GROUP_CLUSTERS).or_insert_with(|| Box::new([0; GROUP_WORDS]));
        let bit = cluster_index % GROUP_CLUSTERS;
        let word = usize::try_from(bit / 64).ok().and_then(|word| bits.get_mut(word));
        if let Some(word) = word {
            *word |= 1 << (bit % 64);
        }
        if self.stored.is_empty() && stored == Stored::Whole {
            self.whole_count += 1;
        } else {
            self.stored.push(stored);
        }
    }

    /// How many clusters have data.
    pub(super) fn data_count(&self) -> u64 {
        self.whole_count.saturating_add(bytes(self.stored.len()))
    }

    /// The numbers of the groups with data, ascending.
    pub(super) fn groups(&self) -> impl Iterator<Item = u64> {
        self.groups.keys().copied()
    }

    /// How many groups have data.
    pub(super) fn group_count(&self) -> u64 {
        bytes(self.groups.len())
    }

    /// Where each cluster with data is if the first one is at a place.
    pub(super) fn places(&self, first_at: u64) -> impl Iterator<Item = Place> {
        let whole = (0..self.whole_count).map(|_| Stored::Whole);
        let mut next_at = first_at;
        self.clusters().zip(whole.chain(self.stored.iter().copied())).map(move |(cluster_index, stored)| {
            let is_compressed = stored != Stored::Whole;
            let at = if is_compressed { next_at } else { up(next_at, CLUSTER).unwrap_or(u64::MAX) };
            let len_bytes = stored.len_bytes();
            next_at = at.saturating_add(len_bytes);
            Place { cluster_index, at, len_bytes, is_compressed }
        })
    }

    /// Where the data ends, at the end of a cluster.
    pub(super) fn end(&self, first_at: u64) -> u64 {
        let last = match self.stored.is_empty() {
            true => first_at.saturating_add(self.whole_count.saturating_mul(CLUSTER)),
            false => self.places(first_at).last().map_or(first_at, |place| place.at.saturating_add(place.len_bytes)),
        };
        up(last, CLUSTER).unwrap_or(u64::MAX)
    }

    /// True if no cluster is compressed.
    pub(super) fn is_whole(&self) -> bool {
        self.stored.is_empty()
    }

    fn clusters(&self) -> impl Iterator<Item = u64> {
        self.groups.iter().flat_map(|(group, bits)| {
            let first = group.saturating_mul(GROUP_CLUSTERS);
            let set = |word: u64, bit: u32| word >> bit & 1 == 1;
            let words = (0_u64..).zip(bits.iter());
            words.flat_map(move |(index, word)| {
                (0..64_u32).filter(move |bit| set(*word, *bit)).map(move |bit| first + index * 64 + u64::from(bit))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_packed_and_whole_ones_aligned() {
        let mut map = Map::default();
        map.add(3, Stored::Whole);
        map.add(64, Stored::Compressed(100));
        map.add(20_000, Stored::Compressed(200));
        map.add(20_001, Stored::Whole);
        let places: Vec<_> = map.places(CLUSTER).map(|place| (place.cluster_index, place.at)).collect();
        assert_eq!(places, [(3, 65_536), (64, 131_072), (20_000, 131_172), (20_001, 196_608)]);
        assert_eq!(map.end(CLUSTER), 262_144);
        assert_eq!(map.groups().collect::<Vec<_>>(), [0, 2]);
        assert_eq!((map.data_count(), map.is_whole()), (4, false));
    }
}
