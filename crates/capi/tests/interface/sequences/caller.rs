//! One thread's sequences: their beginning, their calls, and what has to be true of each result.

use std::any::type_name;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::size_of;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::time::{Duration, Instant};

use spinney_capi::*;

use super::hostile;
use super::input::{Exact, Random};
use super::{AROUND, Shared, Sum, VOLUME_BYTES, message, text};

/// Most handles that are open at a time.
const HANDLES_MAX: usize = 48;
/// Most bytes of a buffer.
const BUFFER_BYTES: usize = 64 << 10;
/// Words that options are made of.
const WORDS: [&str; 10] = [
    "ro",
    "noatime",
    "compress=zstd",
    "subvol=a",
    "commit=0",
    "nonsense=1",
    ",",
    "=",
    "usebackuproot",
    "csum=xxhash64",
];

pub(super) struct Caller<'a> {
    pub(super) random: Random,
    pub(super) shared: &'a Shared<'a>,
    /// The volume of this sequence.
    pub(super) volume: *mut SpinneyVolume,
}

impl<'a> Caller<'a> {
    pub(super) fn new(random: Random, shared: &'a Shared<'a>) -> Self {
        Self { random, shared, volume: without_provenance_mut(shared.volume) }
    }

    pub(super) fn run(&mut self, sequences: u64) {
        for number in 0..sequences {
            let begun = Instant::now();
            self.begin();
            if self.random.one_in(2) {
                // Else a volume whose root was made read-only would stay so.
                unsafe { spinney_subvolume_set_flags(self.volume, c"/".as_ptr(), 0) };
            }
            let calls = 2 + self.random.below(26);
            let mut around = begun.elapsed();
            for _ in 0..calls {
                let begun = Instant::now();
                let (name, code) = self.call();
                self.judge(name, code, number, begun.elapsed());
            }
            let begun = Instant::now();
            self.close_oldest();
            around += begun.elapsed();
            self.shared.tally.lock().unwrap().entry(AROUND).or_default().time += around;
        }
    }

    /// Chooses the volume of a sequence.
    fn begin(&mut self) {
        self.volume = without_provenance_mut(self.shared.volume);
        let device = match self.random.below(100) {
            0 => {
                let mut device = null_mut();
                assert_eq!(unsafe { spinney_device_memory(VOLUME_BYTES, &raw mut device) }, 0);
                let format = [c"btrfs", c"f2fs"][self.random.below(2)].as_ptr();
                let mut volume = null_mut();
                unsafe { spinney_make_devices(&raw const device, 1, format, null(), &raw mut volume) };
                self.begin_with(volume);
                device
            }
            1..=8 => {
                let device = hostile::device(&self.shared.around.hostile, &mut self.random);
                let mut volume = null_mut();
                let flags = if self.random.one_in(3) { SPINNEY_READ_ONLY } else { 0 };
                let mut options: SpinneyOpenOptions = unsafe { std::mem::zeroed() };
                (options.struct_size, options.flags) = (size_of::<SpinneyOpenOptions>(), flags);
                let code = unsafe { spinney_open_devices(&raw const device, 1, &raw const options, &raw mut volume) };
                self.judge("open_hostile", code.into(), 0, Duration::ZERO);
                self.begin_with(volume);
                device
            }
            _ => return,
        };
        if self.random.one_in(4) {
            self.keep(0, device);
        } else {
            spinney_close(device.cast());
        }
    }

    /// An image that cannot be opened now and then leaves the sequence with no volume.
    fn begin_with(&mut self, volume: *mut SpinneyVolume) {
        self.keep(0, volume);
        if !volume.is_null() || self.random.one_in(4) {
            self.volume = volume;
        }
    }

    /// Fails for a result that no call may have.
    fn judge(&self, name: &'static str, code: i64, number: u64, time: Duration) {
        {
            let tally = &mut *self.shared.tally.lock().unwrap();
            let sum = tally.entry(name).or_default();
            *sum = Sum { made: sum.made + 1, good: sum.good + u64::from(code >= 0), time: sum.time + time };
        }
        let place = format_args!("{name}, sequence {number} of seed {}", self.shared.seed).to_string();
        assert!(code >= -4095, "{place}: {code}");
        if code < 0 {
            let message = message::<u8>(null());
            assert!(!message.is_empty(), "{place}: {code} without a message");
            assert!(!message.starts_with("a defect of this library"), "{place}: {message}");
        }
    }

    /// Closes handles until few are open. Their numbers stay for a while in the hands of other threads.
    fn close_oldest(&mut self) {
        loop {
            let mut handles = self.shared.handles.lock().unwrap();
            if handles.len() <= HANDLES_MAX {
                return;
            }
            let (oldest, _) = handles.remove(0);
            drop(handles);
            if oldest != self.shared.volume {
                spinney_close(without_provenance_mut(oldest));
            }
        }
    }

    /// A path of the few, so that calls meet; seldom NULL.
    pub(super) fn path(&mut self) -> *const c_char {
        if self.random.one_in(200) {
            return null();
        }
        let index = self.random.below(self.shared.paths.len());
        self.shared.paths[index].as_ptr()
    }

    /// A path of the host, which is an image, something else or nothing.
    pub(super) fn host_path(&mut self) -> CString {
        let dir = self.shared.around.dir.display();
        let names =
            ["good.img", "good.img", "good.img?offset=0&size=1M", "text", "site", "none/x", "made.img", "?size=-1"];
        text(&format!("{dir}/{}", names[self.random.below(names.len())]))
    }

    /// Any handle: often a fitting one, else an open or a closed one of any type, or none.
    pub(super) fn handle<H>(&mut self) -> *mut H {
        match self.random.below(100) {
            0 => null_mut(),
            1 => without_provenance_mut(self.random.below(4096)),
            // An address of the caller.
            2 => self.shared.paths.as_ptr().cast_mut().cast(),
            _ => {
                let is_any = self.random.one_in(10);
                let handles = self.shared.handles.lock().unwrap();
                let fitting = handles.iter().filter(|(_, name)| is_any || *name == type_name::<H>());
                let fitting: Vec<usize> = fitting.map(|(number, _)| *number).collect();
                without_provenance_mut(fitting.get(self.random.below(fitting.len() + 1)).copied().unwrap_or_default())
            }
        }
    }

    /// The volume of the sequence, seldom another handle.
    pub(super) fn volume(&mut self) -> *mut SpinneyVolume {
        if self.random.one_in(50) { self.handle() } else { self.volume }
    }

    /// Keeps a handle that a call has given out, or not.
    pub(super) fn keep<H>(&self, code: c_int, handle: *mut H) {
        assert!(code >= 0 || handle.is_null(), "a call that failed gave a handle");
        if !handle.is_null() {
            self.shared.handles.lock().unwrap().push((handle.addr(), type_name::<H>()));
        }
    }

    pub(super) fn offset(&mut self) -> i64 {
        match self.random.below(20) {
            0 => i64::from_ne_bytes(self.random.next().to_ne_bytes()),
            _ => i64::try_from(self.random.below(1 << 20)).unwrap(),
        }
    }

    /// A buffer with no byte more than the call is told of.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        let most = if self.random.one_in(4) { BUFFER_BYTES } else { 300 };
        vec![7; self.random.below(most)]
    }

    pub(super) fn structure<T: Copy>(&mut self) -> Exact {
        Exact::empty::<T>(&mut self.random)
    }

    /// Options of opening and making: some words, seldom no text.
    pub(super) fn words(&mut self) -> CString {
        let words: Vec<&str> = (0..self.random.below(3)).map(|_| WORDS[self.random.below(WORDS.len())]).collect();
        if self.random.one_in(20) { CString::new([0xff, 0xe9]).unwrap() } else { text(&words.join(",")) }
    }

    /// Closes a handle. The shared volume is closed at the end.
    pub(super) fn close(&mut self) -> c_int {
        let handle = match self.random.below(4) {
            0 => self.handle::<c_void>(),
            1 => self.handle::<SpinneyVolume>().cast(),
            _ => self.handle::<SpinneyFile>().cast(),
        };
        if handle.addr() == self.shared.volume { 0 } else { spinney_close(handle) }
    }
}
