//! The calls, in groups: each makes one with random arguments, and gives its name and its result.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::{Seek as _, Write as _};
use std::mem::{size_of, zeroed};
use std::os::fd::AsRawFd as _;
use std::ptr::{null, null_mut};

use spinney_capi::*;

use super::caller::Caller;
use super::hostile;
use super::input::{Exact, Stream, give, lie, sometimes_cancel, take};

/// The name of a call, and its result.
type Called = (&'static str, i64);

fn called(name: &'static str, code: c_int) -> Called {
    (name, code.into())
}

impl Caller<'_> {
    /// Makes one call.
    pub(super) fn call(&mut self) -> Called {
        unsafe {
            match self.random.below(100) {
                0..=29 => self.call_files(),
                30..=51 => self.call_names(),
                52..=67 => self.call_metadata(),
                68..=75 => self.call_subvolumes(),
                76..=81 => self.call_lists(),
                82..=85 => self.call_streams(),
                86..=88 => self.call_copies(),
                89..=91 => self.call_devices(),
                92..=96 => self.call_volume(),
                _ => called("close", self.close()),
            }
        }
    }

    unsafe fn call_files(&mut self) -> Called {
        let (volume, path, offset) = (self.volume(), self.path(), self.offset());
        let mut bytes = self.buffer();
        let usual = SPINNEY_FILE_READ | SPINNEY_FILE_WRITE | SPINNEY_FILE_CREATE;
        unsafe {
            match self.random.below(12) {
                0..=3 => {
                    let flags = if self.random.one_in(2) { usual } else { self.random.small(72) };
                    let mut file = null_mut();
                    let mode = self.random.small(0o10_010);
                    let code = spinney_file_open(volume, path, flags, mode & 0o7777, &raw mut file);
                    self.keep(code, file);
                    called("file_open", code)
                }
                4..=6 => ("file_write", spinney_file_write(self.handle(), bytes.as_ptr().cast(), bytes.len(), offset)),
                7..=8 => {
                    ("file_read", spinney_file_read(self.handle(), bytes.as_mut_ptr().cast(), bytes.len(), offset))
                }
                9 => called("file_truncate", spinney_file_truncate(self.handle(), offset)),
                10 => called("file_sync", spinney_file_sync(self.handle(), self.random.small(3))),
                _ => {
                    let mut place = self.structure::<SpinneyAttributes>();
                    called("file_stat", spinney_file_stat(self.handle(), place.pointer()))
                }
            }
        }
    }

    unsafe fn call_names(&mut self) -> Called {
        let (volume, one, two) = (self.volume(), self.path(), self.path());
        unsafe {
            match self.random.below(11) {
                0 => {
                    let mut dir = null_mut();
                    let code = spinney_dir_open(volume, one, &raw mut dir);
                    self.keep(code, dir);
                    called("dir_open", code)
                }
                1..=2 => {
                    let mut place = self.structure::<SpinneyEntry>();
                    called("dir_read", spinney_dir_read(self.handle(), place.pointer()))
                }
                3..=4 => called("mkdir", spinney_mkdir(volume, one, self.random.small(0o10_010))),
                5 => called("rmdir", spinney_rmdir(volume, one)),
                6 => called("unlink", spinney_unlink(volume, one)),
                7 => called("rename", spinney_rename(volume, one, two)),
                8 => called("link", spinney_link(volume, one, two)),
                9 => called("symlink", spinney_symlink(volume, one, two)),
                _ => {
                    let mut bytes = self.buffer();
                    ("readlink", spinney_readlink(volume, one, bytes.as_mut_ptr().cast(), bytes.len()))
                }
            }
        }
    }

    unsafe fn call_metadata(&mut self) -> Called {
        let (volume, path) = (self.volume(), self.path());
        let few = self.random.small(4);
        let mut bytes = self.buffer();
        bytes.truncate(300);
        let (buffer, len) = (bytes.as_mut_ptr(), bytes.len());
        let name = [c"user.a", c"user.b", c"system.none", c""][self.random.below(4)].as_ptr();
        let name = if self.random.one_in(100) { null() } else { name };
        unsafe {
            match self.random.below(9) {
                0 => called("stat", spinney_stat(volume, path, self.structure::<SpinneyAttributes>().pointer())),
                1 => called("lstat", spinney_lstat(volume, path, self.structure::<SpinneyAttributes>().pointer())),
                2 => called("chmod", spinney_chmod(volume, path, self.random.small(0o10_010))),
                3 => {
                    let uid = [0, 7, 1 << 31, u32::MAX][self.random.below(4)];
                    called("chown", spinney_chown(volume, path, uid, few))
                }
                4 => {
                    let nanoseconds = [0, 999_999_999, SPINNEY_TIME_NOW, SPINNEY_TIME_OMIT, 1_000_000_000, u32::MAX];
                    let nanoseconds = nanoseconds[self.random.below(nanoseconds.len())];
                    let time = SpinneyTime { seconds: self.offset(), nanoseconds, reserved: few / 3 };
                    let atime = if self.random.one_in(2) { null() } else { &raw const time };
                    called("utimens", spinney_utimens(volume, path, atime, &raw const time))
                }
                5 => ("getxattr", spinney_getxattr(volume, path, name, buffer.cast(), len)),
                6 => ("listxattr", spinney_listxattr(volume, path, buffer.cast(), len)),
                7 => called("removexattr", spinney_removexattr(volume, path, name)),
                _ => called("setxattr", spinney_setxattr(volume, path, name, buffer.cast(), len, few)),
            }
        }
    }

    unsafe fn call_subvolumes(&mut self) -> Called {
        let (volume, one, two) = (self.volume(), self.path(), self.path());
        let flags = self.random.small(3);
        unsafe {
            match self.random.below(5) {
                0 => called("subvolume_create", spinney_subvolume_create(volume, one)),
                1 => called("subvolume_delete", spinney_subvolume_delete(volume, one)),
                2 => called("subvolume_set_flags", spinney_subvolume_set_flags(volume, one, flags)),
                // The name that streams are made of.
                3 => called("snapshot", spinney_snapshot(volume, c"/".as_ptr(), c"t".as_ptr(), SPINNEY_READ_ONLY)),
                _ => called("snapshot", spinney_snapshot(volume, one, two, flags)),
            }
        }
    }

    /// Reads a text that a call has given, if no other thread can have closed the handle that it belongs to.
    unsafe fn read(&self, text: *const c_char) {
        if self.shared.is_alone && !text.is_null() {
            std::hint::black_box(unsafe { CStr::from_ptr(text) }.to_bytes().len());
        }
    }

    /// The struct, if the call has filled it and it has its whole size.
    unsafe fn filled<T: Copy>(&self, code: c_int, place: &mut Exact) -> Option<T> {
        let pointer: *const T = place.pointer();
        let has_all = unsafe { pointer.cast::<usize>().read_unaligned() } >= size_of::<T>();
        (code > 0 && has_all).then(|| unsafe { pointer.read_unaligned() })
    }

    unsafe fn call_lists(&mut self) -> Called {
        let (volume, one, two) = (self.volume(), self.path(), self.path());
        unsafe {
            match self.random.below(5) {
                0 => {
                    let mut list = null_mut();
                    let code = spinney_subvolumes_open(volume, &raw mut list);
                    self.keep(code, list);
                    called("subvolumes_open", code)
                }
                1..=2 => {
                    let mut place = self.structure::<SpinneySubvolume>();
                    let code = spinney_subvolumes_next(self.handle(), place.pointer());
                    if let Some(row) = self.filled::<SpinneySubvolume>(code, &mut place) {
                        self.read(row.path);
                    }
                    called("subvolumes_next", code)
                }
                3 => {
                    let mut list = null_mut();
                    let code = spinney_changes_open(volume, one, two, &raw mut list);
                    self.keep(code, list);
                    called("changes_open", code)
                }
                _ => {
                    let mut place = self.structure::<SpinneyChange>();
                    let code = spinney_changes_next(self.handle(), place.pointer());
                    if let Some(change) = self.filled::<SpinneyChange>(code, &mut place)
                        && self.shared.is_alone
                    {
                        self.read(change.path);
                        for index in 0..change.name_count {
                            let name = *change.names.add(index);
                            self.read(name.from);
                            self.read(name.to);
                        }
                        for index in 0..change.data_count {
                            std::hint::black_box(*change.data.add(index));
                        }
                    }
                    called("changes_next", code)
                }
            }
        }
    }

    unsafe fn call_streams(&mut self) -> Called {
        let (volume, mut one, two) = (self.volume(), self.path(), self.path());
        let (sends, to_descriptor) = (self.random.one_in(2), self.random.one_in(4));
        if self.random.one_in(2) {
            one = if sends { c"t" } else { c"/" }.as_ptr();
        }
        let watch: SpinneyProgressFn = if self.random.one_in(4) { Some(sometimes_cancel) } else { None };
        let mut stream = Stream::default();
        if !sends {
            stream.bytes.clone_from(&self.shared.stream.lock().unwrap());
            if self.random.one_in(3) && !stream.bytes.is_empty() {
                let at = self.random.below(stream.bytes.len());
                stream.bytes[at] ^= 1 << self.random.below(8);
            }
        }
        let file = (to_descriptor && !self.random.one_in(4)).then(|| {
            let mut file = tempfile::tempfile_in(&self.shared.around.dir).unwrap();
            file.write_all(&stream.bytes).unwrap();
            file.rewind().unwrap();
            file
        });
        let descriptor = file.as_ref().map_or(-1, |file| file.as_raw_fd());
        let context: *mut c_void = (&raw mut stream).cast();
        let mut options: SpinneySendOptions = unsafe { zeroed() };
        options.parent = if self.random.one_in(2) { two } else { null() };
        (options.version, options.flags) = (self.random.small(4), self.random.small(5) & 3);
        if self.random.one_in(4) {
            (options.clones, options.clone_count) = (&raw const one, 1);
        }
        let mut options = Exact::new(&mut self.random, &options);
        let options = if self.random.one_in(3) { null() } else { options.pointer::<SpinneySendOptions>().cast_const() };
        unsafe {
            match (sends, to_descriptor) {
                (true, true) => called("send", spinney_send(volume, one, options, descriptor, watch, context)),
                (true, false) => {
                    let code = spinney_send_to(volume, one, options, Some(take), watch, context);
                    if code == 0 {
                        *self.shared.stream.lock().unwrap() = stream.bytes;
                    }
                    called("send_to", code)
                }
                (false, true) => called("receive", spinney_receive(volume, one, descriptor, watch, context)),
                (false, false) => {
                    let read: SpinneyReadFn = if self.random.one_in(10) { Some(lie) } else { Some(give) };
                    called("receive_from", spinney_receive_from(volume, one, read, watch, context))
                }
            }
        }
    }

    unsafe fn call_copies(&mut self) -> Called {
        let (volume, path, host) = (self.volume(), self.path(), self.host_path());
        let watch: SpinneyProgressFn = if self.random.one_in(4) { Some(sometimes_cancel) } else { None };
        unsafe {
            match self.random.below(8) {
                0..=3 => called("import", spinney_import(volume, host.as_ptr(), path, watch, null_mut())),
                4 => {
                    let out = tempfile::tempdir_in(&self.shared.around.dir).unwrap();
                    let to = super::text(out.path().join("out").to_str().unwrap());
                    called("export", spinney_export(volume, path, to.as_ptr(), watch, null_mut()))
                }
                _ => {
                    let sources = [host.as_ptr(), null()];
                    let (sources, count) = match self.random.below(6) {
                        0 => (null(), self.random.below(2)),
                        1 => (sources.as_ptr(), 2),
                        2 => (sources.as_ptr(), usize::MAX),
                        _ => (sources.as_ptr(), 1),
                    };
                    let code = spinney_import_contents(volume, sources, count, path, watch, null_mut());
                    called("import_contents", code)
                }
            }
        }
    }

    unsafe fn call_devices(&mut self) -> Called {
        let words = self.words();
        let mut device = null_mut();
        let mut volume = null_mut();
        unsafe {
            match self.random.below(10) {
                0 => {
                    let size = u64::from(self.random.small(1 << 20)) * 4096;
                    let code = spinney_device_memory(size, &raw mut device);
                    self.keep(code, device);
                    called("device_memory", code)
                }
                1 if self.random.one_in(2) => {
                    let device = hostile::device(&self.shared.around.hostile, &mut self.random);
                    self.keep(0, device);
                    called("device_new", 0)
                }
                1 => {
                    // Without a function to read.
                    let mut calls = self.structure::<SpinneyDeviceCalls>();
                    let code = spinney_device_new(calls.pointer(), null_mut(), &raw mut device);
                    self.keep(code, device);
                    called("device_new", code)
                }
                2..=4 => {
                    let device = self.handle::<SpinneyDevice>();
                    let mut options: SpinneyOpenOptions = zeroed();
                    (options.flags, options.options) = (self.random.small(3), words.as_ptr());
                    let mut options = Exact::new(&mut self.random, &options);
                    let devices = [device, device];
                    let count = 1 + self.random.below(20) / 19;
                    let code = spinney_open_devices(devices.as_ptr(), count, options.pointer(), &raw mut volume);
                    self.keep(code, volume);
                    called("open_devices", code)
                }
                5 => {
                    let devices = [self.handle::<SpinneyDevice>()];
                    let mut options: SpinneyMakeOptions = zeroed();
                    (options.size, options.options) = (u64::from(self.random.small(3)) << 26, words.as_ptr());
                    let mut options = Exact::new(&mut self.random, &options);
                    let format = [c"btrfs", c"f2fs", c"ext9"][self.random.below(3)].as_ptr();
                    let code = spinney_make_devices(devices.as_ptr(), 1, format, options.pointer(), &raw mut volume);
                    self.keep(code, volume);
                    called("make_devices", code)
                }
                _ => self.call_reports(),
            }
        }
    }

    unsafe fn call_reports(&mut self) -> Called {
        let mut report = null_mut();
        unsafe {
            match self.random.below(4) {
                0 => {
                    let base = &self.shared.around.hostile;
                    let device = hostile::device(base, &mut self.random);
                    let mut options: SpinneyCheckOptions = zeroed();
                    (options.flags, options.threads) = (self.random.small(3), self.random.small(3));
                    let mut options = Exact::new(&mut self.random, &options);
                    let code = spinney_check_devices(
                        &raw const device,
                        1,
                        options.pointer(),
                        if self.random.one_in(4) { Some(sometimes_cancel) } else { None },
                        null_mut(),
                        &raw mut report,
                    );
                    self.keep(code, report);
                    spinney_close(device.cast());
                    called("check_devices", code)
                }
                1 => {
                    let mut place = self.structure::<SpinneySummary>();
                    called("report_summary", spinney_report_summary(self.handle(), place.pointer()))
                }
                _ => {
                    let mut place = self.structure::<SpinneyFinding>();
                    let code = spinney_report_next(self.handle(), place.pointer());
                    if let Some(row) = self.filled::<SpinneyFinding>(code, &mut place) {
                        let texts = [row.code, row.pass, row.about, row.what, row.path, row.place];
                        for text in texts.into_iter().chain([row.expected, row.found]) {
                            self.read(text);
                        }
                    }
                    called("report_next", code)
                }
            }
        }
    }

    unsafe fn call_volume(&mut self) -> Called {
        let (volume, host, words) = (self.volume(), self.host_path(), self.words());
        unsafe {
            match self.random.below(30) {
                0..=5 => called("sync", spinney_sync(volume)),
                6..=11 => called("get_info", spinney_get_info(volume, self.structure::<SpinneyInfo>().pointer())),
                12..=17 => {
                    let mut bytes = self.buffer();
                    ("get_label", spinney_get_label(volume, bytes.as_mut_ptr().cast(), bytes.len()))
                }
                18..=23 => {
                    self.read_message();
                    ("error_message", i64::from(spinney_version()))
                }
                24..=26 => {
                    let mut options: SpinneyOpenOptions = zeroed();
                    (options.flags, options.options) = (self.random.small(3), words.as_ptr());
                    let mut options = Exact::new(&mut self.random, &options);
                    let mut opened = null_mut();
                    let code = spinney_open(host.as_ptr(), options.pointer(), &raw mut opened);
                    self.keep(code, opened);
                    called("open", code)
                }
                27..=28 => {
                    let mut report = null_mut();
                    let code = spinney_check(host.as_ptr(), null(), None, null_mut(), &raw mut report);
                    self.keep(code, report);
                    called("check", code)
                }
                _ => {
                    let made = super::text(self.shared.around.dir.join("made.img").to_str().unwrap());
                    let mut options: SpinneyMakeOptions = zeroed();
                    (options.size, options.options) = (super::VOLUME_BYTES, words.as_ptr());
                    let mut options = Exact::new(&mut self.random, &options);
                    let mut volume = null_mut();
                    let code = spinney_make(made.as_ptr(), c"btrfs".as_ptr(), options.pointer(), &raw mut volume);
                    self.keep(code, volume);
                    called("make", code)
                }
            }
        }
    }

    /// Reads the message of any handle.
    unsafe fn read_message(&mut self) {
        let text = spinney_error_message(self.handle::<c_void>());
        std::hint::black_box(unsafe { CStr::from_ptr(text) }.to_bytes().len());
    }
}
