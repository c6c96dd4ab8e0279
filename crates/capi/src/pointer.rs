//! Reads the arguments of calls, and writes their results, through pointers of the caller. Every call uses it.
//!
//! Invariants
//! * NULL is refused by the name of the parameter, or is an empty range;
//! * a struct of the caller is read and written with the size that the caller says it has, never more.
//!
//! Failure: [`Misuse`]. Pointers that lead nowhere cannot be told; the contract of the header forbids them.

use std::ffi::{CStr, OsStr, c_char};
use std::mem::{MaybeUninit, size_of};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;

use spinney::Result;

use crate::failure::Misuse;

/// A struct of the header that begins with its size, and for which any bytes are legal, also all zeros.
///
/// # Safety
/// The first field is `struct_size: usize`, the type is `repr(C)`, and all fields are numbers, pointers or `Option` of
/// a function.
pub(crate) unsafe trait Struct: Copy {
    /// Name in messages.
    const NAME: &'static str;
    /// Its size in the first version of the header.
    const FIRST_BYTES: usize = size_of::<Self>();
}

/// A text of the caller.
///
/// # Safety
/// `pointer` is NULL or leads to bytes that end with NUL and do not change during `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &'static str) -> Result<&'a [u8]> {
    // SAFETY: as this function demands.
    unsafe { text_or_null(pointer) }.ok_or_else(|| Misuse::Null(what).error())
}

/// A text of the caller, which may be NULL.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn text_or_null<'a>(pointer: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: as this function demands.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// A path of the caller.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char, what: &'static str) -> Result<&'a Path> {
    // SAFETY: as this function demands.
    unsafe { text(pointer, what) }.map(as_path)
}

pub(crate) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// A text of the caller that has to be UTF-8.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn utf8_or_null<'a>(pointer: *const c_char, what: &'static str) -> Result<Option<&'a str>> {
    // SAFETY: as this function demands.
    let Some(bytes) = (unsafe { text_or_null(pointer) }) else { return Ok(None) };
    let wrong = |_| Misuse::value(what, "text in UTF-8", String::from_utf8_lossy(bytes));
    std::str::from_utf8(bytes).map(Some).map_err(wrong)
}

/// An array of the caller.
///
/// # Safety
/// `pointer` leads to `count` values that do not change during `'a`, or is NULL.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: usize, what: &'static str) -> Result<&'a [T]> {
    check_array(pointer, count, what)?;
    // SAFETY: checked, and as this function demands. No pointer is read where there is no value.
    Ok(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(pointer, count) } })
}

/// A buffer of the caller, to be filled.
///
/// # Safety
/// `pointer` leads to `count` bytes that nothing else uses during `'a`, or is NULL.
pub(crate) unsafe fn buffer<'a>(pointer: *mut u8, count: usize) -> Result<&'a mut [u8]> {
    check_array(pointer, count, "buffer")?;
    // SAFETY: as for `array`.
    Ok(if count == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(pointer, count) } })
}

fn check_array<T>(pointer: *const T, count: usize, what: &'static str) -> Result<()> {
    if pointer.is_null() && count > 0 {
        return Err(Misuse::Null(what).error());
    }
    // No range of memory is larger.
    let bytes_max = usize::MAX / 2;
    match count.checked_mul(size_of::<T>().max(1)) {
        Some(bytes) if bytes <= bytes_max => Ok(()),
        _ => Err(Misuse::value(what, format!("at most {bytes_max} bytes"), count)),
    }
}

/// An array of texts of the caller.
///
/// # Safety
/// As [`array`], and as [`text`] for each.
pub(crate) unsafe fn texts<'a>(
    pointer: *const *const c_char,
    count: usize,
    what: &'static str,
) -> Result<Vec<&'a [u8]>> {
    // SAFETY: as this function demands.
    unsafe { array(pointer, count, what)?.iter().map(|one| text(*one, what)).collect() }
}

/// A struct of the caller.
///
/// # Safety
/// `pointer` is NULL or leads to as many readable bytes as its first field says.
pub(crate) unsafe fn read_struct<T: Struct>(pointer: *const T) -> Result<T> {
    // SAFETY: as this function demands.
    let size = unsafe { struct_size(pointer) }?;
    let (known, mut copy) = (size.min(size_of::<T>()), MaybeUninit::<T>::zeroed());
    // SAFETY: both have `known` bytes. All bytes of the copy are set, which is legal for every `Struct`.
    let copy = unsafe {
        ptr::copy_nonoverlapping(pointer.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), known);
        copy.assume_init()
    };
    // SAFETY: `size` bytes are readable.
    let further = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) }.get(known..).unwrap_or_default();
    if further.iter().any(|byte| *byte != 0) {
        return Err(Misuse::LongStruct { what: T::NAME, known }.error());
    }
    Ok(copy)
}

/// A struct of the caller, or `None` for NULL.
///
/// # Safety
/// As [`read_struct`].
pub(crate) unsafe fn read_struct_or_null<T: Struct>(pointer: *const T) -> Result<Option<T>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as this function demands.
    unsafe { read_struct(pointer) }.map(Some)
}

/// The size that a struct of the caller has.
///
/// # Safety
/// As [`read_struct`].
unsafe fn struct_size<T: Struct>(pointer: *const T) -> Result<usize> {
    if pointer.is_null() {
        return Err(Misuse::Null(T::NAME).error());
    }
    // SAFETY: the first field of every `Struct` is its size.
    let found = unsafe { pointer.cast::<usize>().read_unaligned() };
    // The limit keeps a size that was never set from being taken for one.
    if found < T::FIRST_BYTES || found > usize::from(u16::MAX) {
        return Err(Misuse::ShortStruct { what: T::NAME, expected: T::FIRST_BYTES, found }.error());
    }
    Ok(found)
}

/// A struct of the caller, to be filled.
#[derive(Debug)]
pub(crate) struct StructPlace<T> {
    pointer: *mut T,
    size: usize,
}

impl<T: Struct> StructPlace<T> {
    /// # Safety
    /// As [`read_struct`]; and the bytes can be written as long as this value is used.
    pub(crate) unsafe fn new(pointer: *mut T) -> Result<Self> {
        // SAFETY: as this function demands.
        Ok(Self { pointer, size: unsafe { struct_size(pointer) }? })
    }

    /// Fills it; the caller's size stays, fields that this version does not know become 0.
    pub(crate) fn fill(self, value: &T) {
        let known = self.size.min(size_of::<T>());
        // SAFETY: the caller of `new` has promised `size` bytes, and `known` is at most that.
        unsafe {
            ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), self.pointer.cast::<u8>(), known);
            self.pointer.cast::<u8>().add(known).write_bytes(0, self.size - known);
            self.pointer.cast::<usize>().write_unaligned(self.size);
        }
    }
}

/// A pointer of the caller, where a handle goes.
#[derive(Debug)]
pub(crate) struct HandlePlace<H>(*mut *mut H);

impl<H> HandlePlace<H> {
    /// The place, which holds NULL until [`HandlePlace::fill`].
    ///
    /// # Safety
    /// `pointer` is NULL, or can be written as long as this value is used.
    pub(crate) unsafe fn new(pointer: *mut *mut H, what: &'static str) -> Result<Self> {
        if pointer.is_null() {
            return Err(Misuse::Null(what).error());
        }
        // SAFETY: as this function demands.
        unsafe { pointer.write(ptr::null_mut()) };
        Ok(Self(pointer))
    }

    pub(crate) fn fill(self, handle: *mut H) {
        // SAFETY: the caller of `new` has promised it.
        unsafe { self.0.write(handle) };
    }
}

/// Copies a value of any length, and returns its length; with an empty buffer it copies nothing.
///
/// # Errors
/// `ERANGE` for a buffer that is too small.
pub(crate) fn copy_value(value: &[u8], buffer: &mut [u8]) -> Result<i64> {
    let (found, expected) = (buffer.len(), value.len());
    if found > 0 {
        let place = buffer.get_mut(..expected).ok_or_else(|| Misuse::ShortBuffer { expected, found }.error())?;
        place.copy_from_slice(value);
    }
    Ok(count(expected))
}

/// A count as a result.
pub(crate) fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A position or length that must not be negative.
pub(crate) fn not_negative(number: i64, what: &'static str) -> Result<u64> {
    u64::try_from(number).map_err(|_| Misuse::value(what, "0 or more", number))
}

/// Refuses bits that are none of `known`.
pub(crate) fn check_flags(flags: u32, known: u32) -> Result<()> {
    match flags & !known {
        0 => Ok(()),
        other => Err(Misuse::value("flags", format!("bits of {known:#x}"), format!("{other:#x}"))),
    }
}
