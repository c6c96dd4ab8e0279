//! Encodes LZO1X: one segment, in the plain form that every kernel reads. Called by `lzo`.
//!
//! The kernel's `Documentation/staging/lzo.rst` describes the format. A run of up to three literals is counted in the
//! low two bits of the match before it, a longer run by an instruction of its own. Matches have three forms, by
//! distance and length. A match of the longest form, at a distance that no other has, ends the stream. Runs of zeros
//! are encoded as matches: this encoder does not write lzo-rle, which needs a version byte.
//!
//! The search is greedy. Two hash tables give the last position of a byte sequence: one of four bytes, for matches at
//! any distance, and one of three bytes, for the short form, which reaches 2 KiB back.

/// A match of this many bytes has a short form, up to [`SHORT_MAX`] and [`SHORT_DISTANCE_MAX`].
const SHORT_MIN: usize = 3;
const SHORT_MAX: usize = 8;
const SHORT_DISTANCE_MAX: usize = 0x800;
/// Shortest match that is worth a longer form.
const LONG_MIN: usize = 4;
/// Farthest match of the middle form, and of the longest.
const MIDDLE_DISTANCE_MAX: usize = 0x4000;
const FAR_DISTANCE_MAX: usize = 0xbfff;
/// Longest matches whose length fits into the instruction.
const MIDDLE_LEN_MAX: usize = 33;
const FAR_LEN_MAX: usize = 9;
/// Most literals that the first byte of a stream can count.
const FIRST_LITERALS_MAX: usize = 238;
/// A match of the longest form at [`MIDDLE_DISTANCE_MAX`].
const END: [u8; 3] = [17, 0, 0];

const TABLE_BITS: u32 = 12;
const TABLE_SIZE: usize = 1 << TABLE_BITS;
/// After this many bytes without a match (a power of two), the search takes a larger step.
const PATIENCE_BITS: u32 = 5;

/// The last position of byte sequences, by their hash.
struct Table([u16; TABLE_SIZE]);

impl Table {
    const fn new() -> Self {
        Self([0; TABLE_SIZE])
    }

    /// Returns the last position of a hash, and replaces it by `at`.
    fn replace(&mut self, hash: u32, at: usize) -> usize {
        let slot = usize::try_from(hash).ok().and_then(|hash| self.0.get_mut(hash));
        let new = u16::try_from(at).unwrap_or(0);
        slot.map_or(0, |slot| std::mem::replace(slot, new).into())
    }
}

fn hash(word: u32) -> u32 {
    word.wrapping_mul(0x9e37_79b1) >> u32::BITS.saturating_sub(TABLE_BITS)
}

/// Compresses one segment of at most 64 KiB to the end of `output`.
pub(super) fn compress(input: &[u8], output: &mut Vec<u8>) {
    let mut long = Table::new();
    let mut short = Table::new();
    let mut writer = Writer { start: output.len(), output };
    // The literals not written yet are those from `literals` to `at`.
    let (mut literals, mut at) = (0_usize, 1_usize);
    while let Some(word) = input.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        let word = u32::from_le_bytes(*word);
        let far = long.replace(hash(word), at);
        let near = short.replace(hash(word << 8), at);
        let found = longer(matched(input, far, at, LONG_MIN), matched(input, near, at, SHORT_MIN));
        let Some((len, distance)) = found else {
            let waited = at.saturating_sub(literals);
            at = at.saturating_add(1).saturating_add(waited >> PATIENCE_BITS);
            continue;
        };
        writer.literals(input.get(literals..at).unwrap_or_default());
        writer.matched(len, distance);
        at = at.saturating_add(len);
        literals = at;
        // A later match often refers to the end of this one, so that position goes into the tables.
        if let Some(last) = at.checked_sub(2)
            && let Some(word) = input.get(last..).and_then(|rest| rest.first_chunk::<4>())
        {
            let word = u32::from_le_bytes(*word);
            long.replace(hash(word), last);
            short.replace(hash(word << 8), last);
        }
    }
    writer.literals(input.get(literals..).unwrap_or_default());
    writer.output.extend_from_slice(&END);
}

/// Length and distance of a match between two positions, if encoding it saves space.
fn matched(input: &[u8], from: usize, at: usize, min: usize) -> Option<(usize, usize)> {
    let distance = at.checked_sub(from).filter(|distance| (1..=FAR_DISTANCE_MAX).contains(distance))?;
    let (before, now) = (input.get(from..)?, input.get(at..)?);
    let len = common(before, now);
    let is_worth = len >= LONG_MIN || (len >= min && distance <= SHORT_DISTANCE_MAX);
    is_worth.then_some((len, distance))
}

/// Length of the common prefix of two slices.
fn common(one: &[u8], other: &[u8]) -> usize {
    let mut same = 0_usize;
    for (one, other) in one.chunks_exact(8).zip(other.chunks_exact(8)) {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let different = (word(one) ^ word(other)).trailing_zeros() / u8::BITS;
        same = same.saturating_add(usize::try_from(different).unwrap_or_default());
        if different < 8 {
            return same;
        }
    }
    let (one, other) = (one.get(same..).unwrap_or_default(), other.get(same..).unwrap_or_default());
    let rest = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    same.saturating_add(rest)
}

fn longer(one: Option<(usize, usize)>, other: Option<(usize, usize)>) -> Option<(usize, usize)> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.0 >= one.0 { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Writes instructions; each ends with two bytes of a distance, of which the first has room for a few literals.
struct Writer<'a> {
    start: usize,
    output: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn literals(&mut self, bytes: &[u8]) {
        let len = bytes.len();
        let is_first = self.output.len() == self.start;
        match len {
            0 => return,
            1..=FIRST_LITERALS_MAX if is_first => self.output.push(low_byte(len.saturating_add(17))),
            1..=3 => {
                let at = self.output.len().saturating_sub(2);
                if let Some(byte) = self.output.get_mut(at) {
                    *byte |= low_byte(len);
                }
            }
            4..=18 => self.output.push(low_byte(len.saturating_sub(3))),
            _ => {
                self.output.push(0);
                self.more(len.saturating_sub(18));
            }
        }
        self.output.extend_from_slice(bytes);
    }

    fn matched(&mut self, len: usize, distance: usize) {
        let back = distance.saturating_sub(1);
        if len <= SHORT_MAX && distance <= SHORT_DISTANCE_MAX {
            let instruction = (len.saturating_sub(1) << 5) | ((back & 7) << 2);
            self.output.extend_from_slice(&[low_byte(instruction), low_byte(back >> 3)]);
            return;
        }
        let (mark, len_max, back) = if distance <= MIDDLE_DISTANCE_MAX {
            (0x20, MIDDLE_LEN_MAX, back)
        } else {
            let beyond = distance.saturating_sub(MIDDLE_DISTANCE_MAX);
            (0x10 | ((beyond >> 11) & 8), FAR_LEN_MAX, beyond & 0x3fff)
        };
        if len <= len_max {
            self.output.push(low_byte(mark | len.saturating_sub(2)));
        } else {
            self.output.push(low_byte(mark));
            self.more(len.saturating_sub(len_max));
        }
        self.output.extend_from_slice(&[low_byte(back << 2), low_byte(back >> 6)]);
    }

    /// The part of a length that does not fit its instruction: each zero counts 255, and the byte after them the rest.
    fn more(&mut self, len: usize) {
        let mut rest = len;
        while rest > 255 {
            self.output.push(0);
            rest = rest.saturating_sub(255);
        }
        self.output.push(low_byte(rest));
    }
}

/// The low eight bits of a number.
fn low_byte(number: usize) -> u8 {
    u8::try_from(number & 0xff).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::lzo_rle;
    use super::compress;

    fn round(data: &[u8]) -> usize {
        let mut packed = vec![7; 3];
        compress(data, &mut packed);
        let stream = &packed[3..];
        // Three independent decoders.
        let mut output = vec![0; data.len()];
        assert_eq!(lzo::decompress_into(stream, &mut output), Ok(data.len()));
        assert_eq!(output, data);
        assert_eq!(lzo1x::decompress(stream, data.len()).as_deref(), Ok(data));
        assert_eq!(lzo_rle::decompress(stream, &mut output), Ok(data.len()));
        assert_eq!(output, data);
        stream.len()
    }

    #[test]
    fn every_form_of_match_and_literals_reads_back() {
        let noise = |len: usize, seed: u64| -> Vec<u8> {
            let mut state = seed | 1;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                u8::try_from(state >> 56).unwrap()
            };
            (0..len).map(|_| next()).collect()
        };
        for distance in [1, 2, 3, 8, 100, 2047, 2048, 2049, 16_383, 16_384, 16_385, 32_767, 32_768, 49_150, 49_151] {
            let base = noise(distance, 77);
            for len in [3, 4, 8, 9, 10, 33, 34, 264, 265, 288, 289, 600] {
                for literals in [0, 1, 2, 3, 4, 18, 19, 273, 274, 600] {
                    let mut data = base.clone();
                    for _ in 0..len {
                        data.push(data[data.len() - distance]);
                    }
                    data.extend(noise(literals, 1234));
                    data.truncate(65_536);
                    round(&data);
                }
            }
        }
        for len in (0..40).chain([237, 238, 239, 240, 241, 255, 256, 4096, 65_536]) {
            round(&noise(len, 5));
            round(&vec![0; len]);
        }
    }

    #[test]
    fn text_becomes_no_longer_than_the_kernel_makes_it() {
        let words = ["small", "extent", "tree", "block", "inode", "the", "of", "and", "is", "a"];
        let mut text = Vec::new();
        let mut state = 1_u32;
        while text.len() < 4096 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text.extend_from_slice(words[usize::try_from(state >> 16).unwrap() % words.len()].as_bytes());
            text.push(b' ');
        }
        text.truncate(4096);
        // Output of Linux 6.18 with `compress-force=lzo`, without the two lengths in front.
        let of_kernel = 1493 - 8;
        let len = round(&text);
        assert!(len <= of_kernel, "{len}");
    }
}
