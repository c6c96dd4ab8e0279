//! What the targets of whole images share: how a base image is packed, and patched.

/// Bytes of the pieces that images are packed by.
pub(crate) const SECTOR: usize = 4096;

/// Sectors of the image, and those that are not zeros, by number.
pub(crate) fn unpacked(packed: &[u8]) -> (u32, Vec<(u32, [u8; SECTOR])>) {
    let unpacked = zstd::decode_all(packed).expect("packed by make_base");
    let (count, rest) = unpacked.split_first_chunk().expect("packed by make_base");
    let sectors = rest.chunks_exact(SECTOR + 4).map(|entry| {
        let (number, sector) = entry.split_first_chunk().expect("it has 4100 bytes");
        (u32::from_le_bytes(*number), sector.try_into().expect("it has 4096 bytes"))
    });
    (u32::from_le_bytes(*count), sectors.collect())
}

/// Bytes that replace some of a sector's.
pub(crate) struct Patch<'a> {
    /// Which sector, in the order of the target.
    pub(crate) index: usize,
    /// Where in it.
    pub(crate) at: usize,
    /// What, no more than there is room for.
    pub(crate) bytes: &'a [u8],
    /// Its checksum stays wrong.
    pub(crate) is_broken: bool,
}

/// The patches that an input has: most go to the first `deciding` sectors of `count`, which are what decides.
pub(crate) fn patches(mut input: &[u8], deciding: usize, count: usize) -> impl Iterator<Item = Patch<'_>> {
    std::iter::from_fn(move || {
        let ([which, high, low, len, how], rest) = input.split_first_chunk()?;
        let (bytes, rest) = rest.split_at(usize::from(*len % 32).min(rest.len()));
        input = rest;
        let range = if how & 0x80 == 0 { deciding } else { count };
        let index = (usize::from(*which) | usize::from(how & 3) << 8) % range.max(1);
        let at = (usize::from(*high) << 8 | usize::from(*low)) % SECTOR;
        let bytes = &bytes[..bytes.len().min(SECTOR - at)];
        Some(Patch { index, at, bytes, is_broken: how & 0x40 != 0 })
    })
}
