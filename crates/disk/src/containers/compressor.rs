//! Compresses pieces to zstd frames, each for itself. Called by the forms `qcow2` and `zstd`.

use zstd_safe::{CCtx, CParameter};

use crate::{Error, Result};

/// One thread's state of the library.
pub(super) struct Compressor {
    context: CCtx<'static>,
    room: Vec<u8>,
}

impl Compressor {
    /// For frames of a level, with a checksum at their end if asked for. Each tells the size of its contents.
    pub(super) fn new(level: i32, has_checksum: bool) -> Result<Self> {
        let mut context = CCtx::try_create().ok_or(Error::Zstd("no memory for a context"))?;
        for parameter in [CParameter::CompressionLevel(level), CParameter::ChecksumFlag(has_checksum)] {
            context.set_parameter(parameter).map_err(failed)?;
        }
        Ok(Self { context, room: Vec::new() })
    }

    /// The frame of a piece.
    pub(super) fn compress(&mut self, piece: &[u8]) -> Result<Vec<u8>> {
        let len_max = zstd_safe::compress_bound(piece.len());
        self.room.resize(len_max, 0);
        let len = self.context.compress2(self.room.as_mut_slice(), piece).map_err(failed)?;
        Ok(self.room.get(..len).unwrap_or_default().to_vec())
    }
}

fn failed(code: usize) -> Error {
    Error::Zstd(zstd_safe::get_error_name(code))
}
