//! Reads and writes files, and reads the names of directories.

use std::ffi::{c_char, c_int, c_void};
use std::mem::size_of;

use parking_lot::Mutex;
use spinney::{File, OpenOptions, ReadDir};

use crate::failure::Misuse;
use crate::handle::{Handle, SpinneyDir, SpinneyFile, SpinneyVolume, on};
use crate::metadata::{SpinneyAttributes, attributes_of, check_mode};
use crate::pointer::{HandlePlace, Struct, StructPlace, array, buffer, check_flags, count, not_negative, path};

/// Opens a file for reading.
pub const SPINNEY_FILE_READ: u32 = 1;
/// Opens a file for writing.
pub const SPINNEY_FILE_WRITE: u32 = 2;
/// Every write goes to the end.
pub const SPINNEY_FILE_APPEND: u32 = 4;
/// Creates the file if there is none.
pub const SPINNEY_FILE_CREATE: u32 = 8;
/// Creates the file, and fails if the name is taken.
pub const SPINNEY_FILE_NEW: u32 = 16;
/// Empties the file.
pub const SPINNEY_FILE_TRUNCATE: u32 = 32;
/// Makes the data of a file durable, and what reading it needs.
pub const SPINNEY_DATA_ONLY: u32 = 1;

/// `spinney_entry`: a name of a directory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyEntry {
    pub struct_size: usize,
    pub ino: u64,
    pub r#type: u32,
    pub name_length: u32,
    pub name: [c_char; 256],
}

// SAFETY: it begins with its size; all fields are numbers.
unsafe impl Struct for SpinneyEntry {
    const NAME: &'static str = "spinney_entry";
}

impl Handle for SpinneyFile {
    type Object = File;
    const NAME: &'static str = "a file";
}

impl Handle for SpinneyDir {
    type Object = Mutex<ReadDir>;
    const NAME: &'static str = "a directory";
}

/// Opens a file; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_file_open(
    volume: *mut SpinneyVolume,
    path: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut *mut SpinneyFile,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (path, place) = unsafe { (self::path(path, "path"), HandlePlace::new(file, "file")) };
    on(volume, |volume| {
        let (path, place) = (path?, place?);
        check_flags(flags, (SPINNEY_FILE_TRUNCATE << 1) - 1)?;
        check_mode(mode)?;
        let has = |flag| flags & flag != 0;
        let options = OpenOptions::new()
            .read(has(SPINNEY_FILE_READ))
            .write(has(SPINNEY_FILE_WRITE))
            .append(has(SPINNEY_FILE_APPEND))
            .create(has(SPINNEY_FILE_CREATE))
            .create_new(has(SPINNEY_FILE_NEW))
            .truncate(has(SPINNEY_FILE_TRUNCATE))
            .mode(mode);
        place.fill(volume.child(options.open(volume, path)?));
        Ok(0)
    })
}

/// Reads at a position; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_file_read(
    file: *mut SpinneyFile,
    buffer: *mut c_void,
    length: usize,
    offset: i64,
) -> i64 {
    // SAFETY: the caller keeps the contract of the header.
    let buffer = unsafe { self::buffer(buffer.cast(), length) };
    on(file, |file| file.read_at(buffer?, not_negative(offset, "offset")?).map(count))
}

/// Writes at a position; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_file_write(
    file: *mut SpinneyFile,
    buffer: *const c_void,
    length: usize,
    offset: i64,
) -> i64 {
    // SAFETY: the caller keeps the contract of the header.
    let data = unsafe { array(buffer.cast::<u8>(), length, "buffer") };
    on(file, |file| file.write_at(data?, not_negative(offset, "offset")?).map(|()| count(length)))
}

/// Cuts or extends a file; see the header.
#[unsafe(no_mangle)]
pub extern "C" fn spinney_file_truncate(file: *mut SpinneyFile, length: i64) -> c_int {
    on(file, |file| file.set_len(not_negative(length, "length")?).map(|()| 0))
}

/// Makes a file durable; see the header.
#[unsafe(no_mangle)]
pub extern "C" fn spinney_file_sync(file: *mut SpinneyFile, flags: u32) -> c_int {
    on(file, |file| {
        check_flags(flags, SPINNEY_DATA_ONLY)?;
        if flags == SPINNEY_DATA_ONLY { file.sync_data() } else { file.sync_all() }.map(|()| 0)
    })
}

/// Tells the attributes of an open file; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_file_stat(file: *mut SpinneyFile, attributes: *mut SpinneyAttributes) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let place = unsafe { StructPlace::new(attributes) };
    on(file, |file| {
        place?.fill(&attributes_of(&file.metadata()?));
        Ok(0)
    })
}

/// Opens a directory; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_dir_open(
    volume: *mut SpinneyVolume,
    path: *const c_char,
    dir: *mut *mut SpinneyDir,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (path, place) = unsafe { (self::path(path, "path"), HandlePlace::new(dir, "dir")) };
    on(volume, |volume| {
        let place = place?;
        place.fill(volume.child(Mutex::new(volume.read_dir(path?)?)));
        Ok(0)
    })
}

/// Reads the next name of a directory; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_dir_read(dir: *mut SpinneyDir, entry: *mut SpinneyEntry) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let place = unsafe { StructPlace::new(entry) };
    on(dir, |dir| {
        let place = place?;
        let Some(found) = dir.lock().next().transpose()? else { return Ok(0) };
        let bytes = found.name_bytes();
        if bytes.contains(&0) {
            return Err(Misuse::Nul("a name").error());
        }
        let mut name: [c_char; 256] = [0; 256];
        // Names of both formats have at most 255 bytes.
        let Some(whole) = name.get_mut(..bytes.len()).filter(|whole| whole.len() < 256) else {
            return Err(Misuse::ShortBuffer { expected: bytes.len().saturating_add(1), found: 256 }.error());
        };
        for (to, from) in whole.iter_mut().zip(bytes) {
            *to = c_char::from_ne_bytes([*from]);
        }
        place.fill(&SpinneyEntry {
            struct_size: size_of::<SpinneyEntry>(),
            ino: found.ino(),
            r#type: found.file_type().mode_bits(),
            name_length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            name,
        });
        Ok(1)
    })
}
