//! Decompresses one LZ4 block.
//!
//! ```text
//!    | token | more literal length | literals | offset (2) | more match length | token ...
//!      high 4 bits: literals, low 4 bits: match length less 4; 15 means that bytes follow, up to one below 255
//! ```
//!
//! The last sequence ends after its literals. See the block format description of the LZ4 project. `block` calls
//! [`decompress`].

/// Minimum match length; the token stores the excess.
const MATCH_LEN_MIN: usize = 4;
/// A length of this value in a token continues in the following bytes.
const LENGTH_GOES_ON: usize = 15;

/// Fills `output` from its start and returns the number of bytes, or a description of the damage.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<usize, &'static str> {
    let mut rest = input;
    let mut done: usize = 0;
    loop {
        let token = usize::from(take(&mut rest)?);
        let literal_len = length(token >> 4, &mut rest)?;
        let literals = rest.split_off(..literal_len).ok_or("literals are cut short")?;
        let end = done.checked_add(literal_len).ok_or("literals are too long")?;
        output.get_mut(done..end).ok_or("more output than expected")?.copy_from_slice(literals);
        done = end;
        if rest.is_empty() {
            return Ok(done);
        }
        let offset = usize::from(u16::from_le_bytes([take(&mut rest)?, take(&mut rest)?]));
        let match_len = length(token & 0xf, &mut rest)?.saturating_add(MATCH_LEN_MIN);
        done = copy_match(output, done, offset, match_len)?;
    }
}

/// Repeats `len` bytes from `offset` bytes before `done`; the two ranges may overlap.
fn copy_match(output: &mut [u8], done: usize, offset: usize, len: usize) -> Result<usize, &'static str> {
    let start = done.checked_sub(offset).filter(|_| offset != 0).ok_or("match before the start of the block")?;
    let end = done.checked_add(len).filter(|end| *end <= output.len()).ok_or("more output than expected")?;
    let mut at = done;
    while at < end {
        // The copied bytes repeat with the period of the offset, so each round can copy all of them.
        let round = end.saturating_sub(at).min(at.saturating_sub(start));
        output.copy_within(start..start.saturating_add(round), at);
        at = at.saturating_add(round);
    }
    Ok(end)
}

fn take(rest: &mut &[u8]) -> Result<u8, &'static str> {
    rest.split_off_first().copied().ok_or("the block is cut short")
}

/// Reads the rest of a length that begins in a token.
fn length(in_token: usize, rest: &mut &[u8]) -> Result<usize, &'static str> {
    let mut len = in_token;
    if in_token == LENGTH_GOES_ON {
        loop {
            let byte = take(rest)?;
            len = len.saturating_add(usize::from(byte));
            if byte != u8::MAX {
                break;
            }
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(input: &[u8], len: usize) -> Result<Vec<u8>, &'static str> {
        let mut output = vec![0; len];
        let done = decompress(input, &mut output)?;
        output.truncate(done);
        Ok(output)
    }

    #[test]
    fn literals_and_overlapping_matches() {
        assert_eq!(run(&[0x30, b'a', b'b', b'c'], 8).unwrap(), b"abc");
        // Two literals, then 4 + 4 bytes from 2 before; then one literal.
        assert_eq!(run(&[0x24, b'x', b'y', 2, 0, 0x10, b'!'], 16).unwrap(), b"xyxyxyxyxy!");
        // A match length of 15 + 255 + 1 + 4.
        let long = run(&[0x1f, b'z', 1, 0, 255, 1, 0x10, b'.'], 512).unwrap();
        assert_eq!(long.len(), 1 + 275 + 1);
        assert!(long[..276].iter().all(|byte| *byte == b'z'));
    }

    #[test]
    fn damage_is_told() {
        for (input, len, what) in [
            (&[][..], 8, "cut short"),
            (&[0x30, b'a'][..], 8, "literals are cut short"),
            (&[0x30, b'a', b'b', b'c'][..], 2, "more output"),
            (&[0x14, b'a', 2, 0, 0][..], 64, "before the start"),
            (&[0x14, b'a', 0, 0, 0][..], 64, "before the start"),
            (&[0x1f, b'a', 1, 0, 255, 255][..], 64, "cut short"),
            (&[0x14, b'a', 1, 0, 0x00][..], 4, "more output"),
        ] {
            let error = run(input, len).unwrap_err();
            assert!(error.contains(what), "{input:?}: {error}");
        }
    }
}
