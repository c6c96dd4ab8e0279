//! Random calls, sensible ones and others, by one thread and by several: every call returns, with a number of its own
//! and a message, and the volume is without errors at the end.
//!
//! `CAPI_CALLS` is the number of calls (20,000), `CAPI_SEED` the first seed.

use std::any::type_name;
use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_void};
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::Mutex;

use spinney_capi::*;

use super::misuse::{message, text};

/// Calls on one volume, until it is closed and checked.
const CALLS_PER_VOLUME: u64 = 2_000;
/// Most handles that are open at a time.
const HANDLES_MAX: usize = 48;
/// Most bytes of a buffer.
const BUFFER_BYTES: usize = 64 << 10;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// Random numbers that are the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// Shared by the threads: all handles, of every type, and a stream.
struct Shared {
    handles: Mutex<Vec<(usize, &'static str)>>,
    stream: Mutex<Vec<u8>>,
    paths: Vec<CString>,
    tally: Mutex<Tally>,
}

/// Calls of each name, and how many of them succeeded.
type Tally = BTreeMap<&'static str, (u64, u64)>;

struct Caller<'a> {
    random: Random,
    shared: &'a Shared,
    buffer: Vec<u8>,
    volume: *mut SpinneyVolume,
}

unsafe extern "C" fn take(context: *mut c_void, buffer: *const c_void, length: usize) -> i64 {
    let stream = unsafe { &mut *context.cast::<Vec<u8>>() };
    if stream.len() > 8 << 20 {
        return -28;
    }
    stream.extend_from_slice(unsafe { std::slice::from_raw_parts(buffer.cast(), length) });
    i64::try_from(length).unwrap()
}

unsafe extern "C" fn give(context: *mut c_void, buffer: *mut c_void, length: usize) -> i64 {
    let stream = unsafe { &mut *context.cast::<Vec<u8>>() };
    let count = stream.len().min(length);
    unsafe { std::ptr::copy_nonoverlapping(stream.as_ptr(), buffer.cast(), count) };
    stream.drain(..count);
    i64::try_from(count).unwrap()
}

unsafe extern "C" fn sometimes_cancel(_context: *mut c_void, progress: *const SpinneyProgress) -> c_int {
    c_int::from(unsafe { (*progress).bytes } % 7 == 3)
}

impl Caller<'_> {
    /// A path of the few, so that calls meet; seldom NULL.
    fn path(&mut self) -> *const std::ffi::c_char {
        if self.random.one_in(200) {
            return null();
        }
        let index = self.random.below(self.shared.paths.len());
        self.shared.paths[index].as_ptr()
    }

    /// Any handle: often the volume, else an open or a closed one of any type, or none.
    fn handle<H>(&mut self) -> *mut H {
        match self.random.below(100) {
            0 => null_mut(),
            1 => without_provenance_mut(self.random.below(4096)),
            2 => self.buffer.as_mut_ptr().cast(),
            _ => {
                let is_any = self.random.one_in(10);
                let handles = self.shared.handles.lock().unwrap();
                let fitting = handles.iter().filter(|(_, name)| is_any || *name == type_name::<H>());
                let fitting: Vec<usize> = fitting.map(|(number, _)| *number).collect();
                without_provenance_mut(fitting.get(self.random.below(fitting.len() + 1)).copied().unwrap_or_default())
            }
        }
    }

    fn volume(&mut self) -> *mut SpinneyVolume {
        if self.random.one_in(50) { self.handle() } else { self.volume }
    }

    fn keep<H>(&self, handle: *mut H) {
        if !handle.is_null() {
            self.shared.handles.lock().unwrap().push((handle.addr(), type_name::<H>()));
        }
    }

    fn offset(&mut self) -> i64 {
        match self.random.below(20) {
            0 => i64::from_ne_bytes(self.random.next().to_ne_bytes()),
            _ => i64::try_from(self.random.below(1 << 20)).unwrap(),
        }
    }

    fn structure<T>(&mut self) -> T {
        let mut value: T = unsafe { zeroed() };
        let size = if self.random.one_in(100) { self.random.below(70_000) } else { size_of::<T>() };
        // A size that is larger than the struct would be a lie.
        unsafe { (&raw mut value).cast::<usize>().write(size.min(size_of::<T>())) };
        value
    }

    /// Makes one call; its name and its result.
    fn step(&mut self) -> (&'static str, i64) {
        let usual = SPINNEY_FILE_READ | SPINNEY_FILE_WRITE | SPINNEY_FILE_CREATE;
        let flags = if self.random.one_in(2) { usual } else { u32::try_from(self.random.below(72)).unwrap() };
        let few = u32::try_from(self.random.below(4)).unwrap();
        let mode = u32::try_from(self.random.below(0o10_010)).unwrap();
        let (volume, one, two) = (self.volume(), self.path(), self.path());
        let (offset, len) = (self.offset(), self.random.below(BUFFER_BYTES));
        let buffer = self.buffer.as_mut_ptr();
        let (name, code): (_, c_int) = unsafe {
            match self.random.below(34) {
                0..=3 => {
                    let mut file = null_mut();
                    let code = spinney_file_open(volume, one, flags, mode & 0o7777, &raw mut file);
                    self.keep(file);
                    ("file_open", code)
                }
                4..=6 => return ("file_write", spinney_file_write(self.handle(), buffer.cast(), len, offset)),
                7..=8 => return ("file_read", spinney_file_read(self.handle(), buffer.cast(), len, offset)),
                9 => ("file_truncate", spinney_file_truncate(self.handle(), offset)),
                10 => ("file_sync", spinney_file_sync(self.handle(), few)),
                11 => ("file_stat", spinney_file_stat(self.handle(), &mut self.structure())),
                12 => {
                    let mut dir = null_mut();
                    let code = spinney_dir_open(volume, one, &raw mut dir);
                    self.keep(dir);
                    ("dir_open", code)
                }
                13 => ("dir_read", spinney_dir_read(self.handle(), &mut self.structure())),
                14 => ("mkdir", spinney_mkdir(volume, one, mode)),
                15 => ("rmdir", spinney_rmdir(volume, one)),
                16 => ("unlink", spinney_unlink(volume, one)),
                17 => ("rename", spinney_rename(volume, one, two)),
                18 => ("link", spinney_link(volume, one, two)),
                19 => ("symlink", spinney_symlink(volume, one, two)),
                20 => return ("readlink", spinney_readlink(volume, one, buffer.cast(), len % 8)),
                21 => ("stat", spinney_stat(volume, one, &mut self.structure())),
                22 => ("lstat", spinney_lstat(volume, one, &mut self.structure())),
                23 => ("chmod", spinney_chmod(volume, one, mode)),
                24 => ("chown", spinney_chown(volume, one, flags, few)),
                25 => ("xattr", self.attribute(volume, one, few)),
                26 => ("subvolume", self.subvolume(volume, one, two, few)),
                27 => ("lists", self.list(volume, one, two)),
                28 => ("streams", self.stream(volume, one, two)),
                29 => ("sync", if few == 0 { spinney_sync(volume) } else { 0 }),
                30 => ("get_info", spinney_get_info(volume, &mut self.structure())),
                31 => return ("get_label", spinney_get_label(volume, buffer.cast(), len % 4)),
                32 => ("import_contents", spinney_import_contents(volume, [one].as_ptr(), 1, two, None, null_mut())),
                _ => ("close", self.close()),
            }
        };
        (name, code.into())
    }

    fn close(&mut self) -> c_int {
        let handle = if self.random.one_in(2) { self.handle::<SpinneyFile>().cast() } else { self.handle::<c_void>() };
        // The volume is closed at the end.
        if handle == self.volume.cast() { 0 } else { spinney_close(handle) }
    }

    unsafe fn attribute(&mut self, volume: *mut SpinneyVolume, path: *const std::ffi::c_char, flags: u32) -> c_int {
        let name = [c"user.a", c"user.b", c"system.none", c""][self.random.below(4)].as_ptr();
        let (buffer, len) = (self.buffer.as_mut_ptr(), self.random.below(300));
        let short = |code: i64| c_int::try_from(code.min(1)).unwrap();
        unsafe {
            match self.random.below(4) {
                0 => short(spinney_getxattr(volume, path, name, buffer.cast(), len)),
                1 => short(spinney_listxattr(volume, path, buffer.cast(), len)),
                2 => spinney_removexattr(volume, path, name),
                _ => spinney_setxattr(volume, path, name, buffer.cast(), len, flags),
            }
        }
    }

    unsafe fn subvolume(
        &mut self,
        volume: *mut SpinneyVolume,
        one: *const std::ffi::c_char,
        two: *const std::ffi::c_char,
        flags: u32,
    ) -> c_int {
        unsafe {
            match self.random.below(5) {
                0 => spinney_subvolume_create(volume, one),
                1 => spinney_subvolume_delete(volume, one),
                2 => spinney_subvolume_set_flags(volume, one, flags),
                // The name that streams are made of.
                3 => spinney_snapshot(volume, c"/".as_ptr(), c"t".as_ptr(), SPINNEY_READ_ONLY),
                _ => spinney_snapshot(volume, one, two, flags & 1),
            }
        }
    }

    unsafe fn list(
        &mut self,
        volume: *mut SpinneyVolume,
        one: *const std::ffi::c_char,
        two: *const std::ffi::c_char,
    ) -> c_int {
        unsafe {
            match self.random.below(4) {
                0 => {
                    let mut list = null_mut();
                    let code = spinney_subvolumes_open(volume, &raw mut list);
                    self.keep(list);
                    code
                }
                1 => spinney_subvolumes_next(self.handle(), &mut self.structure()),
                2 => {
                    let mut list = null_mut();
                    let code = spinney_changes_open(volume, one, two, &raw mut list);
                    self.keep(list);
                    code
                }
                _ => spinney_changes_next(self.handle(), &mut self.structure()),
            }
        }
    }

    unsafe fn stream(
        &mut self,
        volume: *mut SpinneyVolume,
        mut one: *const std::ffi::c_char,
        two: *const std::ffi::c_char,
    ) -> c_int {
        let sends = self.random.one_in(2);
        if self.random.one_in(2) {
            one = if sends { c"t" } else { c"/" }.as_ptr();
        }
        let watch: SpinneyProgressFn = if self.random.one_in(4) { Some(sometimes_cancel) } else { None };
        let mut stream = Vec::new();
        let context: *mut c_void = (&raw mut stream).cast();
        unsafe {
            if sends {
                let mut options: SpinneySendOptions = zeroed();
                options.struct_size = size_of::<SpinneySendOptions>();
                options.parent = if self.random.one_in(2) { two } else { null() };
                (options.version, options.flags) = (self.random.below(4).try_into().unwrap(), 0);
                let code = spinney_send_to(volume, one, &raw const options, Some(take), watch, context);
                if code == 0 {
                    *self.shared.stream.lock().unwrap() = stream;
                }
                code
            } else {
                stream.clone_from(&self.shared.stream.lock().unwrap());
                if self.random.one_in(3) && !stream.is_empty() {
                    let at = self.random.below(stream.len());
                    stream[at] ^= 1 << self.random.below(8);
                }
                spinney_receive_from(volume, one, Some(give), watch, context)
            }
        }
    }

    fn run(&mut self, calls: u64) {
        for _ in 0..calls {
            let (name, code) = self.step();
            let tally = &mut *self.shared.tally.lock().unwrap();
            let (made, good) = tally.entry(name).or_default();
            (*made, *good) = (*made + 1, *good + u64::from(code >= 0));
            assert!(code >= -4095, "{name}: {code}");
            if code < 0 {
                assert!(!message::<u8>(null()).is_empty(), "{name}: {code} without a message");
                assert!(code != -5 || !message::<u8>(null()).contains("defect"), "{name}: {}", message::<u8>(null()));
            }
            let mut handles = self.shared.handles.lock().unwrap();
            if handles.len() > HANDLES_MAX {
                // Closed ones stay a while, to be used again.
                let (oldest, _) = handles.remove(0);
                drop(handles);
                if oldest != self.volume.addr() {
                    spinney_close(without_provenance_mut(oldest));
                }
            }
        }
    }
}

fn paths() -> Vec<CString> {
    let long = "x".repeat(300);
    let names = ["/", "", ".", "a", "b", "c", "a/a", "a/b", "b/../c", "a/b/c", "s", "t", "s/f", "t/f", "c/", &long];
    names.iter().map(|name| text(name)).collect()
}

/// Random calls on a new volume by several threads; the volume is checked at the end.
fn explore(format: &str, seed: u64, calls: u64, threads: u64) -> Tally {
    let (mut device, mut volume, mut report) = (null_mut(), null_mut(), null_mut());
    unsafe {
        assert_eq!(spinney_device_memory(64 << 20, &raw mut device), 0);
        let made = spinney_make_devices(&raw const device, 1, text(format).as_ptr(), null(), &raw mut volume);
        assert_eq!(made, 0, "{}", message::<u8>(null()));
    }
    let shared =
        Shared { handles: Mutex::default(), stream: Mutex::default(), paths: paths(), tally: Mutex::default() };
    let volume_number = volume.addr();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let shared = &shared;
            scope.spawn(move || {
                let random = Random(seed.wrapping_mul(1_000_003).wrapping_add(thread));
                let volume = without_provenance_mut(volume_number);
                let mut caller = Caller { random, shared, buffer: vec![7; BUFFER_BYTES], volume };
                caller.run(calls / threads);
            });
        }
    });
    for (handle, _) in shared.handles.into_inner().unwrap() {
        spinney_close(without_provenance_mut(handle));
    }
    let mut summary: SpinneySummary = unsafe { zeroed() };
    let mut finding: SpinneyFinding = unsafe { zeroed() };
    (summary.struct_size, finding.struct_size) = (size_of::<SpinneySummary>(), size_of::<SpinneyFinding>());
    unsafe {
        assert_eq!(spinney_close(volume.cast()), 0, "{format}, seed {seed}: {}", message::<u8>(null()));
        assert_eq!(spinney_check_devices(&raw const device, 1, null(), None, null_mut(), &raw mut report), 0);
        assert_eq!(spinney_report_summary(report, &raw mut summary), 0);
        if spinney_report_next(report, &raw mut finding) > 0 {
            let about = std::ffi::CStr::from_ptr(finding.about);
            panic!("{format}, seed {seed}, {threads} threads: {} errors: {about:?}", summary.errors);
        }
    }
    spinney_close(report.cast());
    spinney_close(device.cast());
    shared.tally.into_inner().unwrap()
}

#[test]
fn random_calls_are_answered() {
    let (calls, seed) = (number("CAPI_CALLS", 20_000), number("CAPI_SEED", 1));
    let rounds = calls.div_ceil(CALLS_PER_VOLUME).max(2);
    let mut all = Tally::new();
    for round in 0..rounds {
        let format = if round % 4 == 1 { "f2fs" } else { "btrfs" };
        let threads = if round % 3 == 0 { 1 } else { 3 };
        for (name, (made, good)) in explore(format, seed + round, calls / rounds, threads) {
            let sum = all.entry(name).or_default();
            *sum = (sum.0 + made, sum.1 + good);
        }
    }
    for (name, (made, good)) in &all {
        println!("{name}: {good} of {made} succeeded");
        assert!(*good > 0 || *made < 500, "{name} never succeeds: {made} calls");
    }
    println!("{calls} calls on {rounds} volumes, seeds from {seed}");
}
