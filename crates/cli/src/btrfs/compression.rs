//! Compressions as options name them.

use spinney::{Compression, CompressionType};

/// `zstd`, `zlib:9`, ... as the kernel's mount options and mkfs.btrfs have them.
///
/// # Errors
/// What is wrong, and what there is.
pub(crate) fn parse(text: &str) -> Result<Compression, String> {
    if let Some(compression) = Compression::parse(text) {
        return Ok(compression);
    }
    let name = text.split_once(':').map_or(text, |(name, _)| name);
    Err(match CompressionType::from_name(name) {
        None => format!("`{text}` is no compression; there are zlib, lzo and zstd"),
        Some(CompressionType::Lzo) => format!("`{text}`: lzo has no levels"),
        Some(kind) => {
            let levels = kind.levels();
            format!("`{text}`: the levels of {kind} are {} to {}", levels.start(), levels.end())
        }
    })
}
