//! Reads and decompresses compressed clusters of files, and keeps the last one. Called by `file`.

use std::sync::Arc;

use codec::compress::{BlockCodec, decompress_block};
use f2fs_disk::compression::{Algorithm, stream};
use f2fs_disk::convert::{to_u64, usize_from};
use f2fs_disk::inode::Compressed;
use f2fs_disk::{At, BLOCK_SIZE, BlockAddr, Corrupt, Detail, Nid};

use crate::error::{Error, Result};
use crate::locks::{Mutex, Rank};
use crate::map;
use crate::read_volume::{Node, ReadVolume};

/// The cluster that was decompressed last: a sequential reader asks for its parts.
#[derive(Debug)]
pub(crate) struct LastCluster(Mutex<Option<Kept>>);

#[derive(Debug)]
struct Kept {
    ino: Nid,
    first: u64,
    bytes: Arc<Vec<u8>>,
}

impl Default for LastCluster {
    fn default() -> Self {
        Self(Mutex::new(Rank::Cluster, None))
    }
}

impl LastCluster {
    /// The bytes of the compressed cluster that begins at block `first` of a file.
    pub(crate) fn get(&self, volume: &ReadVolume, node: &Node, how: Compressed, first: u64) -> Result<Arc<Vec<u8>>> {
        if let Some(kept) = &*self.0.lock()
            && kept.ino == node.ino()
            && kept.first == first
        {
            return Ok(Arc::clone(&kept.bytes));
        }
        let bytes = Arc::new(read(volume, node, how, first)?);
        *self.0.lock() = Some(Kept { ino: node.ino(), first, bytes: Arc::clone(&bytes) });
        Ok(bytes)
    }
}

/// The name of a compression, as [`vfs::file_system::Extent`] has it.
pub(crate) const fn name(how: Compressed) -> &'static str {
    how.algorithm.name()
}

/// Reads and decompresses a cluster: at most 256 blocks.
fn read(volume: &ReadVolume, node: &Node, how: Compressed, first: u64) -> Result<Vec<u8>> {
    let codec = match how.algorithm {
        Algorithm::Lzo => BlockCodec::Lzo,
        Algorithm::Lz4 => BlockCodec::Lz4,
        Algorithm::Zstd => BlockCodec::Zstd,
        Algorithm::LzoRle => BlockCodec::LzoRle,
    };
    let place = At::File(node.ino(), first);
    let mut packed = Vec::new();
    for at in map::addresses(volume, node, first, how.cluster.blocks())?.into_iter().skip(1) {
        if matches!(at, BlockAddr::NULL | BlockAddr::NEW) {
            break;
        }
        map::check_is_data(volume, node.ino(), first, at)?;
        packed.extend_from_slice(&volume.blocks.read(at)?);
    }
    let stream = stream(&packed, how.has_checksums).map_err(|error| error.at(place))?;
    let mut bytes = vec![0; usize_from(how.cluster.blocks()).saturating_mul(BLOCK_SIZE)];
    let done = decompress_block(codec, stream, &mut bytes);
    let done = done.map_err(|source| Error::Cluster { ino: node.ino(), index: first, source })?;
    if done != bytes.len() {
        let (expected, found) = (Detail::Number(to_u64(bytes.len())), Detail::Number(to_u64(done)));
        return Err(Corrupt::new("compressed cluster size", expected, found).at(place).into());
    }
    Ok(bytes)
}
