//! Makes file extent items in the locked leaf, as an earlier implementation did. Called by `tree/replace` in
//! measurements.

/// Bytes of the fields of a file extent item, in their order.
const FIELDS: [usize; 10] = [8, 8, 1, 1, 2, 1, 8, 8, 8, 8];

/// Makes an item field by field in the locked block `block`: each is found from the item header at
/// `header_at`, as accessors for fields do, and stored on its own.
pub(crate) fn fill(block: &mut [u8], header_at: usize, data_from: usize, item: &[u8]) {
    let mut field_at = 0;
    for len in FIELDS {
        let Some(field) = item.get(field_at..field_at + len) else { break };
        let start = std::hint::black_box(place(block, header_at, data_from)) + field_at;
        if let Some(to) = block.get_mut(start..start + len) {
            to.copy_from_slice(field);
        }
        field_at += len;
    }
    // Inline data, or nothing.
    let start = place(block, header_at, data_from) + field_at;
    if let (Some(rest), Some(to)) = (item.get(field_at..), block.get_mut(start..start + item.len() - field_at)) {
        to.copy_from_slice(rest);
    }
}

/// Where the item's data is, from the offset in its header.
fn place(block: &[u8], header_at: usize, data_from: usize) -> usize {
    let mut raw = [0; 4];
    if let Some(bytes) = block.get(header_at + 17..header_at + 21) {
        raw.copy_from_slice(bytes);
    }
    data_from + usize::try_from(u32::from_le_bytes(raw)).unwrap_or(0)
}
