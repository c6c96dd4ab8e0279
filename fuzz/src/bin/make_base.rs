//! `make_base IMAGE OUT`: packs the sectors of a small image that are not zeros, for the target
//! `image`. Each is its number (4 bytes, little-endian) and its 4096 bytes; all of it is zstd.

use std::error::Error;
use std::fs;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: make_base IMAGE OUT";
    let image = fs::read(arguments.next().ok_or(usage)?)?;
    let out = arguments.next().ok_or(usage)?;
    let mut packed = u32::try_from(image.len() / 4096)?.to_le_bytes().to_vec();
    for (number, sector) in (0u32..).zip(image.chunks_exact(4096)) {
        if sector.iter().any(|byte| *byte != 0) {
            packed.extend_from_slice(&number.to_le_bytes());
            packed.extend_from_slice(sector);
        }
    }
    Ok(fs::write(out, zstd::encode_all(&packed[..], 19)?)?)
}
