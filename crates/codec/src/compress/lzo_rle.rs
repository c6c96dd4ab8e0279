//! Decompresses LZO1X with runs of zeros: the stream that kernels call `lzo-rle`.
//!
//! The bytes 17 and 1 (the version) precede an LZO1X stream in which a match of the largest distance (0xbfff) encodes
//! zeros: the next byte and the instruction's low three bits give their number minus four. With any other first byte,
//! this is plain LZO1X. The facts are from the kernel's `Documentation/staging/lzo.rst`.
//!
//! Fails with a message on streams that are damaged or longer than the output; accesses stay within the two slices.
//! `block` calls [`decompress`].

/// Marks a version if the stream is at least [`VERSIONED_LEN_MIN`] long.
const VERSION_MARK: u8 = 17;
const VERSIONED_LEN_MIN: usize = 5;
/// Minimum length of a run of zeros.
const ZEROS_MIN: usize = 4;
/// Distance of the match that ends a stream.
const END_DISTANCE: usize = 0x4000;
/// Distance that encodes zeros.
const ZEROS_DISTANCE: usize = 0xbfff;

const CUT_SHORT: &str = "the block is cut short";
const TOO_LONG: &str = "more output than expected";

struct Streams<'a> {
    input: std::slice::Iter<'a, u8>,
    output: &'a mut [u8],
    done: usize,
}

/// Decompresses all of `input` to the start of `output`. Returns the number of bytes written.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<usize, &'static str> {
    let mut has_zeros = false;
    let mut streams = Streams { input: input.iter(), output, done: 0 };
    if let [VERSION_MARK, version, rest @ ..] = input
        && input.len() >= VERSIONED_LEN_MIN
    {
        has_zeros = match version {
            0 => false,
            1 => true,
            _ => return Err("unknown version of the stream"),
        };
        streams.input = rest.iter();
    }
    // Literals of the last instruction: if there were none, a run of literals follows, and after four or more, a short
    // match has another length.
    let mut literals = 0;
    if let Some(first) = streams.input.as_slice().first().filter(|first| **first > VERSION_MARK) {
        literals = usize::from(first.saturating_sub(VERSION_MARK));
        streams.byte()?;
        streams.literals(literals)?;
    }
    loop {
        let instruction = streams.byte()?;
        let bits = usize::from(instruction);
        let (len, distance, next) = match instruction {
            0..16 if literals == 0 => {
                literals = streams.length(bits, 15)?.saturating_add(3);
                streams.literals(literals)?;
                continue;
            }
            0..16 => {
                let far = usize::from(streams.byte()?) << 2 | bits >> 2;
                let (len, nearest) = if literals < 4 { (2, 1) } else { (3, 2049) };
                (len, far.saturating_add(nearest), bits)
            }
            16..32 => {
                if has_zeros && instruction & 8 != 0 && streams.peek_pair()? >> 2 == ZEROS_DISTANCE & 0x3fff {
                    literals = streams.pair()? & 3;
                    let count = usize::from(streams.byte()?) << 3 | bits & 7;
                    streams.zeros(count.saturating_add(ZEROS_MIN))?;
                    streams.literals(literals)?;
                    continue;
                }
                let len = streams.length(bits & 7, 7)?.saturating_add(2);
                let pair = streams.pair()?;
                let distance = END_DISTANCE.saturating_add((bits & 8) << 11).saturating_add(pair >> 2);
                if distance == END_DISTANCE {
                    return streams.end(len);
                }
                (len, distance, pair)
            }
            32..64 => {
                let len = streams.length(bits & 31, 31)?.saturating_add(2);
                let pair = streams.pair()?;
                (len, (pair >> 2).saturating_add(1), pair)
            }
            64.. => {
                let (len, shortest) = if instruction < 128 { (bits >> 5 & 1, 3_usize) } else { (bits >> 5 & 3, 5) };
                let far = usize::from(streams.byte()?) << 3 | bits >> 2 & 7;
                (shortest.saturating_add(len), far.saturating_add(1), bits)
            }
        };
        streams.matched(len, distance)?;
        literals = next & 3;
        streams.literals(literals)?;
    }
}

impl Streams<'_> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        self.input.next().copied().ok_or(CUT_SHORT)
    }

    fn peek_pair(&self) -> Result<usize, &'static str> {
        let pair = self.input.as_slice().first_chunk().ok_or(CUT_SHORT)?;
        Ok(usize::from(u16::from_le_bytes(*pair)))
    }

    fn pair(&mut self) -> Result<usize, &'static str> {
        let pair = self.peek_pair()?;
        self.byte()?;
        self.byte()?;
        Ok(pair)
    }

    /// A length with the bits `low` in the instruction; if they are zero, bytes follow, and `base` is added to them.
    fn length(&mut self, low: usize, base: usize) -> Result<usize, &'static str> {
        if low > 0 {
            return Ok(low);
        }
        let mut len = base;
        loop {
            match self.byte()? {
                0 => len = len.saturating_add(255),
                last => return Ok(len.saturating_add(usize::from(last))),
            }
        }
    }

    /// The next `len` bytes of the output.
    fn room(&mut self, len: usize) -> Result<&mut [u8], &'static str> {
        let start = self.done;
        self.done = start.checked_add(len).filter(|end| *end <= self.output.len()).ok_or(TOO_LONG)?;
        self.output.get_mut(start..self.done).ok_or(TOO_LONG)
    }

    fn literals(&mut self, len: usize) -> Result<(), &'static str> {
        let (bytes, rest) = self.input.as_slice().split_at_checked(len).ok_or(CUT_SHORT)?;
        self.room(len)?.copy_from_slice(bytes);
        self.input = rest.iter();
        Ok(())
    }

    fn zeros(&mut self, len: usize) -> Result<(), &'static str> {
        self.room(len)?.fill(0);
        Ok(())
    }

    fn matched(&mut self, len: usize, distance: usize) -> Result<(), &'static str> {
        let from = self.done.checked_sub(distance).ok_or("match before the start of the block")?;
        self.room(len)?;
        // In steps, as a match may overlap its output.
        let mut copied = 0;
        while copied < len {
            let step = len.saturating_sub(copied).min(distance.saturating_add(copied));
            let to = from.saturating_add(distance).saturating_add(copied);
            self.output.copy_within(from..from.saturating_add(step), to);
            copied = copied.saturating_add(step);
        }
        Ok(())
    }

    /// The last instruction has a fixed length, and nothing follows it.
    fn end(&self, len: usize) -> Result<usize, &'static str> {
        match (len, self.input.as_slice()) {
            (3, []) => Ok(self.done),
            (3, _) => Err("bytes behind the end of the block"),
            _ => Err("damaged end of the block"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of every stream.
    const END: [u8; 3] = [17, 0, 0];

    fn decompressed(input: &[u8], len: usize) -> Result<Vec<u8>, &'static str> {
        let mut output = vec![0xee; len];
        let done = decompress(input, &mut output)?;
        output.truncate(done);
        Ok(output)
    }

    fn random(len: usize, alphabet: u32) -> Vec<u8> {
        let mut state = 12_345_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u8::try_from((state >> 16) % alphabet).unwrap()
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn streams_without_runs_are_read_as_another_library_writes_them() {
        for (len, alphabet) in [(1, 2), (3, 2), (4, 256), (20, 256), (300, 256), (70_000, 2), (70_000, 4), (9000, 256)]
        {
            let data = random(len, alphabet);
            assert_eq!(decompressed(&lzo1x::compress(&data), len).as_deref(), Ok(data.as_slice()), "{len} {alphabet}");
        }
        // Far matches of every kind.
        let far: Vec<u8> = [random(40_000, 256), random(30_000, 256)].concat();
        assert_eq!(decompressed(&lzo1x::compress(&far), far.len()), Ok(far));
    }

    #[test]
    fn a_run_of_zeros_is_one_instruction_and_a_byte() {
        // Two literals, 4 + (1 << 3 | 5) zeros and one literal; the distance of a match is relative to those.
        let stream = [&[17, 1, 19, b'a', b'b', 0x1d, 0xfd, 0xff, 1, b'c'][..], &END].concat();
        let expected = [b"ab".as_slice(), &[0; 17], b"c"].concat();
        assert_eq!(decompressed(&stream, 100), Ok(expected));
        // In a stream of the first version it is a match that leads nowhere.
        let first = [&[19, b'a', b'b', 0x1d, 0xfd, 0xff, b'c'][..], &END].concat();
        assert_eq!(decompressed(&first, 100), Err("match before the start of the block"));
    }

    #[test]
    fn damage_is_told() {
        assert_eq!(decompressed(&[17, 2, 0, 0, 0], 100), Err("unknown version of the stream"));
        assert_eq!(decompressed(&[], 100), Err(CUT_SHORT));
        let zeros = [&[17, 1, 18, b'a', 0x1f, 0xfc, 0xff, 255][..], &END].concat();
        assert_eq!(decompressed(&zeros, 4096), Ok([b"a".as_slice(), &[0; 2051]].concat()));
        assert_eq!(decompressed(&zeros, 2051), Err(TOO_LONG));
        assert_eq!(decompressed(&[&zeros[..], &[0]].concat(), 4096), Err("bytes behind the end of the block"));
        for cut in 0..zeros.len() {
            assert!(decompressed(&zeros[..cut], 4096).is_err(), "{cut}");
        }
        // Every byte changed to every value: an error or other bytes, and no panic.
        let data = lzo1x::compress(&random(600, 3));
        for at in 0..data.len() {
            for byte in 0..=255 {
                let mut damaged = data.clone();
                damaged[at] = byte;
                let _ = decompressed(&damaged, 600);
            }
        }
    }
}
