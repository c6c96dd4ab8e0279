//! A partition's entry as bytes. Called by `read` and `write`.

use uuid::Uuid;

use super::header::{ENTRY_BYTES, long, part};
use super::{Attributes, NAME_UNITS_MAX, Partition};

/// Where the name begins.
const NAME_AT: usize = 56;

/// The entry of a partition.
pub(super) fn encode(partition: &Partition) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(partition.kind.to_bytes_le());
    bytes.extend(partition.id.to_bytes_le());
    for number in [partition.first_sector, partition.last_sector, partition.attributes.0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(partition.name.encode_utf16().take(NAME_UNITS_MAX).flat_map(u16::to_le_bytes));
    bytes.resize(usize::try_from(ENTRY_BYTES).unwrap_or_default(), 0);
    bytes
}

/// The partition of an entry, or nothing if it is free. Units of the name that are no text become replacement
/// characters.
pub(super) fn decode(number: u32, entry: &[u8]) -> Option<Partition> {
    let kind = Uuid::from_bytes_le(part(entry, 0));
    if kind.is_nil() {
        return None;
    }
    let name = entry.get(NAME_AT..).unwrap_or_default().chunks_exact(2).take(NAME_UNITS_MAX);
    let units: Vec<u16> = name.map(|unit| u16::from_le_bytes(part(unit, 0))).take_while(|unit| *unit != 0).collect();
    Some(Partition {
        number,
        kind,
        id: Uuid::from_bytes_le(part(entry, 16)),
        first_sector: long(entry, 32),
        last_sector: long(entry, 40),
        attributes: Attributes(long(entry, 48)),
        name: String::from_utf16_lossy(&units),
    })
}
