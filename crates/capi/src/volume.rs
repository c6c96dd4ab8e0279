//! Opens and makes volumes, and tells what a volume is. Programs begin with it.

use std::ffi::{OsString, c_char, c_int};
use std::mem::size_of;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use spinney::vfs::AtimeMode;
use spinney::{MakeOptions, OptionError, Result, Volume, VolumeOptions};

use crate::device::devices;
use crate::failure::Misuse;
use crate::handle::{self, Handle, SpinneyDevice, SpinneyVolume, alone, on};
use crate::pointer::{
    HandlePlace, Struct, StructPlace, array, buffer, check_flags, copy_value, path, read_struct_or_null, text_or_null,
    utf8_or_null,
};

/// Nothing is written; a subvolume or snapshot cannot be changed.
pub const SPINNEY_READ_ONLY: u32 = 1;

/// The version of the header.
pub const SPINNEY_VERSION: u32 = 100;

/// Bytes of a UUID.
const UUID_BYTES: usize = 16;

/// `spinney_open_options`: how a volume is opened.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyOpenOptions {
    pub struct_size: usize,
    pub flags: u32,
    pub uid: u32,
    pub gid: u32,
    pub reserved: u32,
    pub options: *const c_char,
}

// SAFETY: it begins with its size; all fields are numbers and pointers.
unsafe impl Struct for SpinneyOpenOptions {
    const NAME: &'static str = "spinney_open_options";
}

/// `spinney_make_options`: how a volume is made.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyMakeOptions {
    pub struct_size: usize,
    pub size: u64,
    pub uid: u32,
    pub gid: u32,
    pub label: *const c_char,
    pub uuid: *const u8,
    pub options: *const c_char,
}

// SAFETY: it begins with its size; all fields are numbers and pointers.
unsafe impl Struct for SpinneyMakeOptions {
    const NAME: &'static str = "spinney_make_options";
}

/// `spinney_info`: the facts that every format has of a volume.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyInfo {
    pub struct_size: usize,
    pub format: [c_char; 16],
    pub uuid: [u8; 16],
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub block_bytes: u32,
    pub flags: u32,
}

// SAFETY: it begins with its size; all fields are numbers.
unsafe impl Struct for SpinneyInfo {
    const NAME: &'static str = "spinney_info";
}

impl Handle for SpinneyVolume {
    type Object = Volume;
    const NAME: &'static str = "a volume";

    fn close(volume: &Volume) -> Result<()> {
        if volume.is_read_only() { Ok(()) } else { volume.sync() }
    }
}

/// The version of the library; see the header.
#[unsafe(no_mangle)]
pub extern "C" fn spinney_version() -> u32 {
    SPINNEY_VERSION
}

/// Opens a volume; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_open(
    image: *const c_char,
    options: *const SpinneyOpenOptions,
    volume: *mut *mut SpinneyVolume,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (image, options, place) =
        unsafe { (path(image, "image"), open_options(options), HandlePlace::new(volume, "volume")) };
    alone(|| {
        let place = place?;
        place.fill(handle::new(spinney::open(image?, &options?)?));
        Ok(0)
    })
}

/// Opens a volume on devices; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_open_devices(
    devices: *const *mut SpinneyDevice,
    count: usize,
    options: *const SpinneyOpenOptions,
    volume: *mut *mut SpinneyVolume,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (devices, options, place) =
        unsafe { (self::devices(devices, count), open_options(options), HandlePlace::new(volume, "volume")) };
    alone(|| {
        let place = place?;
        place.fill(handle::new(spinney::open_devices(devices?, &options?)?));
        Ok(0)
    })
}

/// Makes a volume; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_make(
    image: *const c_char,
    format: *const c_char,
    options: *const SpinneyMakeOptions,
    volume: *mut *mut SpinneyVolume,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (image, format, options, place) = unsafe {
        (path(image, "image"), self::format(format), make_options(options), HandlePlace::new(volume, "volume"))
    };
    alone(|| {
        let place = place?;
        place.fill(handle::new(spinney::make(image?, format?, &options?)?));
        Ok(0)
    })
}

/// Makes a volume on devices; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_make_devices(
    devices: *const *mut SpinneyDevice,
    count: usize,
    format: *const c_char,
    options: *const SpinneyMakeOptions,
    volume: *mut *mut SpinneyVolume,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (devices, format, options, place) = unsafe {
        let devices = self::devices(devices, count);
        (devices, self::format(format), make_options(options), HandlePlace::new(volume, "volume"))
    };
    alone(|| {
        let place = place?;
        place.fill(handle::new(spinney::make_devices(devices?, format?, &options?)?));
        Ok(0)
    })
}

/// Tells what a volume is; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_get_info(volume: *mut SpinneyVolume, info: *mut SpinneyInfo) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let place = unsafe { StructPlace::new(info) };
    on(volume, |volume| {
        let (place, info) = (place?, volume.info()?);
        let mut format = [0; 16];
        for (to, from) in format.iter_mut().zip(info.format.bytes().take(15)) {
            *to = c_char::from_ne_bytes([from]);
        }
        place.fill(&SpinneyInfo {
            struct_size: size_of::<SpinneyInfo>(),
            format,
            uuid: info.uuid,
            total_bytes: info.total_bytes,
            free_bytes: info.free_bytes,
            block_bytes: info.block_bytes,
            flags: if volume.is_read_only() { SPINNEY_READ_ONLY } else { 0 },
        });
        Ok(0)
    })
}

/// Copies the label of a volume; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_get_label(volume: *mut SpinneyVolume, buffer: *mut c_char, size: usize) -> i64 {
    // SAFETY: the caller keeps the contract of the header.
    let buffer = unsafe { self::buffer(buffer.cast(), size) };
    on(volume, |volume| copy_value(volume.info()?.label.as_bytes(), buffer?))
}

/// Makes all changes durable; see the header.
#[unsafe(no_mangle)]
pub extern "C" fn spinney_sync(volume: *mut SpinneyVolume) -> c_int {
    on(volume, |volume| volume.sync().map(|()| 0))
}

/// # Safety
/// `name` is a text, or NULL.
unsafe fn format<'a>(name: *const c_char) -> Result<&'a str> {
    // SAFETY: as this function demands.
    unsafe { utf8_or_null(name, "format") }?.ok_or_else(|| Misuse::Null("format").error())
}

/// # Safety
/// `options` is NULL, or a struct of the header.
unsafe fn open_options(options: *const SpinneyOpenOptions) -> Result<VolumeOptions> {
    // SAFETY: as this function demands.
    let Some(given) = unsafe { read_struct_or_null(options) }? else { return Ok(VolumeOptions::new()) };
    check_flags(given.flags, SPINNEY_READ_ONLY)?;
    if given.reserved != 0 {
        return Err(Misuse::value("reserved", "0", given.reserved));
    }
    let read_only = given.flags & SPINNEY_READ_ONLY != 0;
    let mut options = VolumeOptions::new().read_only(read_only).owner(given.uid, given.gid);
    // SAFETY: as this function demands.
    for option in words(unsafe { text_or_null(given.options) }.unwrap_or_default()) {
        let (name, value) = match option.iter().position(|byte| *byte == b'=') {
            Some(at) => (option.get(..at), option.get(at.saturating_add(1)..)),
            None => (Some(option), None),
        };
        let name = std::str::from_utf8(name.unwrap_or_default())
            .map_err(|_| Misuse::value("options", "names in UTF-8", String::from_utf8_lossy(option)))?;
        add(&mut options, name, value.map(|value| OsString::from_vec(value.to_vec())))?;
    }
    // A flag is not taken back by an option.
    options.read_only |= read_only;
    Ok(options)
}

/// Adds an option of `mount -o`.
fn add(options: &mut VolumeOptions, name: &str, value: Option<OsString>) -> Result<()> {
    match (name, value) {
        ("ro", None) => options.read_only = true,
        ("rw", None) => options.read_only = false,
        ("noatime", None) => options.atime = AtimeMode::No,
        ("relatime", None) => options.atime = AtimeMode::Relative,
        ("strictatime", None) => options.atime = AtimeMode::Strict,
        ("commit", Some(value)) => {
            let seconds = value.to_str().and_then(|text| text.parse().ok()).filter(|seconds| *seconds > 0);
            let wrong = || OptionError::wrong(format!("option `commit={}`: give seconds, 1 or more", value.display()));
            options.commit_interval = Duration::from_secs(seconds.ok_or_else(wrong)?);
        }
        (name, value) => options.own.push((name.to_owned(), value)),
    }
    Ok(())
}

/// # Safety
/// `options` is NULL, or a struct of the header.
unsafe fn make_options(options: *const SpinneyMakeOptions) -> Result<MakeOptions> {
    // SAFETY: as this function demands.
    let Some(given) = unsafe { read_struct_or_null(options) }? else { return Ok(MakeOptions::new()) };
    // SAFETY: as this function demands.
    let (label, own) = unsafe { (utf8_or_null(given.label, "label")?, utf8_or_null(given.options, "options")?) };
    let mut options = MakeOptions::new().label(label.unwrap_or_default()).owner(given.uid, given.gid);
    options.size = (given.size > 0).then_some(given.size);
    if !given.uuid.is_null() {
        // SAFETY: the header demands 16 bytes.
        let uuid = unsafe { array(given.uuid, UUID_BYTES, "uuid") }?;
        options.uuid = uuid.first_chunk().copied();
    }
    for option in own.unwrap_or_default().split(',').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        options = options.option(name, value);
    }
    Ok(options)
}

/// The options of a list.
fn words(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',').filter(|word| !word.is_empty())
}
