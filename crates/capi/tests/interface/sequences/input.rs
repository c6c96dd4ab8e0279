//! Random input of calls: numbers, structs of any size, functions of the caller.

use std::ffi::{c_int, c_void};
use std::mem::size_of;

use spinney_capi::SpinneyProgress;

/// Most bytes that the library takes for the size of a struct.
const STRUCT_BYTES_MAX: usize = 0xffff;
/// Most bytes of a stream that is kept.
const STREAM_BYTES_MAX: usize = 8 << 20;

/// Random numbers that are the same for the same seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    pub(super) fn small(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(usize::try_from(end).unwrap())).unwrap()
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// The bytes of a struct of the caller, no more than it says that there are.
pub(super) struct Exact(Vec<u8>);

impl Exact {
    /// A struct with the right size, seldom with another one.
    pub(super) fn new<T: Copy>(random: &mut Random, value: &T) -> Self {
        let whole = size_of::<T>();
        let said = match random.below(300) {
            0 => random.below(whole + 1),
            1 => whole + random.below(100),
            2 => STRUCT_BYTES_MAX + random.below(1000),
            _ => whole,
        };
        // The size itself is always there; a size that is refused promises nothing else.
        let held = if said > STRUCT_BYTES_MAX { size_of::<usize>() } else { said.max(size_of::<usize>()) };
        let mut bytes = vec![0u8; held];
        let known = held.min(whole);
        unsafe { std::ptr::copy_nonoverlapping((&raw const *value).cast(), bytes.as_mut_ptr(), known) };
        bytes[..size_of::<usize>()].copy_from_slice(&said.to_ne_bytes());
        if held > whole && random.one_in(2) {
            bytes[whole] = 1;
        }
        Self(bytes)
    }

    /// A struct of zeros, to be filled.
    pub(super) fn empty<T: Copy>(random: &mut Random) -> Self {
        let value: T = unsafe { std::mem::zeroed() };
        Self::new(random, &value)
    }

    pub(super) fn pointer<T>(&mut self) -> *mut T {
        self.0.as_mut_ptr().cast()
    }
}

/// A stream that is sent or received.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) bytes: Vec<u8>,
    /// How many were received.
    at: usize,
}

/// Takes a stream into the one that the context leads to.
pub(super) unsafe extern "C" fn take(context: *mut c_void, buffer: *const c_void, length: usize) -> i64 {
    let stream = unsafe { &mut *context.cast::<Stream>() };
    if stream.bytes.len() > STREAM_BYTES_MAX {
        return -28;
    }
    stream.bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(buffer.cast(), length) });
    i64::try_from(length).unwrap()
}

/// Gives the bytes of the stream that the context leads to.
pub(super) unsafe extern "C" fn give(context: *mut c_void, buffer: *mut c_void, length: usize) -> i64 {
    let stream = unsafe { &mut *context.cast::<Stream>() };
    let rest = &stream.bytes[stream.at..];
    let count = rest.len().min(length);
    unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), buffer.cast(), count) };
    stream.at += count;
    i64::try_from(count).unwrap()
}

/// Claims to have given more than there was room for, or an errno that does not exist.
pub(super) unsafe extern "C" fn lie(context: *mut c_void, _buffer: *mut c_void, length: usize) -> i64 {
    let odd = context.addr() & 8 == 0;
    if odd { i64::try_from(length).unwrap() + 1 } else { i64::MIN }
}

/// Cancels now and then.
pub(super) unsafe extern "C" fn sometimes_cancel(_context: *mut c_void, progress: *const SpinneyProgress) -> c_int {
    c_int::from(unsafe { (*progress).bytes } % 7 == 3)
}
