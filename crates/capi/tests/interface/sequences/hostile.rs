//! Devices of the caller that hold an image with wrong contents, and now and then fail.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem::{size_of, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use blockdev::Device;
use spinney_capi::*;
use testkit::hostile::{SmallBase, hostile_image};

use super::input::Random;

const PAGE_BYTES: u64 = 4096;

/// An image, and the pages that were written.
struct Image {
    below: Arc<dyn Device>,
    pages: Mutex<HashMap<u64, Vec<u8>>>,
    /// Every so many calls one fails; 0: none.
    failing: u64,
    calls: AtomicU64,
}

impl Image {
    /// The failure of this call, if it fails.
    fn failure(&self) -> c_int {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.failing {
            0 => 0,
            every if call % every == every - 1 => [-5, -28, 7][usize::try_from(call / every % 3).unwrap()],
            _ => 0,
        }
    }

    fn page(&self, index: u64) -> Vec<u8> {
        let (at, end) = (index * PAGE_BYTES, self.below.size_bytes());
        let mut page = vec![0; usize::try_from(PAGE_BYTES.min(end - at)).unwrap()];
        self.below.read_at(at, &mut page).unwrap();
        page
    }

    /// Calls `each` with every page of a range, the place in the page, and that in the range.
    fn each(&self, offset: u64, length: usize, mut each: impl FnMut(&mut Vec<u8>, usize, std::ops::Range<usize>)) {
        let mut pages = self.pages.lock().unwrap();
        let mut done = 0;
        while done < length {
            let at = offset + u64::try_from(done).unwrap();
            let (index, inside) = (at / PAGE_BYTES, usize::try_from(at % PAGE_BYTES).unwrap());
            let page = pages.entry(index).or_insert_with(|| self.page(index));
            let count = (page.len() - inside).min(length - done);
            each(page, inside, done..done + count);
            done += count;
        }
    }
}

unsafe extern "C" fn read(context: *mut c_void, offset: u64, buffer: *mut c_void, length: usize) -> c_int {
    let (image, buffer) =
        unsafe { (&*context.cast::<Image>(), std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length)) };
    image.below.read_at(offset, buffer).unwrap();
    for (index, page) in image.pages.lock().unwrap().iter() {
        let (begin, end) = (index * PAGE_BYTES, index * PAGE_BYTES + u64::try_from(page.len()).unwrap());
        let (from, to) = (begin.max(offset), end.min(offset + u64::try_from(length).unwrap()));
        if from < to {
            let place = |at: u64, base: u64| usize::try_from(at - base).unwrap();
            buffer[place(from, offset)..place(to, offset)].copy_from_slice(&page[place(from, begin)..place(to, begin)]);
        }
    }
    image.failure()
}

unsafe extern "C" fn write(context: *mut c_void, offset: u64, buffer: *const c_void, length: usize) -> c_int {
    let (image, buffer) =
        unsafe { (&*context.cast::<Image>(), std::slice::from_raw_parts(buffer.cast::<u8>(), length)) };
    image.each(offset, length, |page, inside, range| {
        page[inside..inside + range.len()].copy_from_slice(&buffer[range]);
    });
    image.failure()
}

unsafe extern "C" fn flush(context: *mut c_void) -> c_int {
    unsafe { &*context.cast::<Image>() }.failure()
}

unsafe extern "C" fn discard(context: *mut c_void, offset: u64, length: u64) -> c_int {
    let image = unsafe { &*context.cast::<Image>() };
    image.each(offset, usize::try_from(length).unwrap(), |page, inside, range| {
        page[inside..inside + range.len()].fill(0);
    });
    image.failure()
}

unsafe extern "C" fn release(context: *mut c_void) {
    drop(unsafe { Box::from_raw(context.cast::<Image>()) });
}

/// A device with a random image. Seldom it cannot be written, or fails at times.
pub(super) fn device(bases: &[SmallBase], random: &mut Random) -> *mut SpinneyDevice {
    let numbers: Vec<u64> = (0..1 + random.below(3)).map(|_| random.next()).collect();
    let below = hostile_image(bases, random.next(), &numbers).unwrap().device;
    let mut calls: SpinneyDeviceCalls = unsafe { zeroed() };
    calls.struct_size = size_of::<SpinneyDeviceCalls>();
    calls.size = below.size_bytes();
    calls.name = c"hostile".as_ptr();
    calls.read = Some(read);
    calls.release = Some(release);
    if !random.one_in(5) {
        calls.write = Some(write);
        calls.flush = Some(flush);
        calls.discard = Some(discard);
    }
    let failing = if random.one_in(5) { 1 + u64::from(random.small(60)) } else { 0 };
    let image = Image { below, pages: Mutex::default(), failing, calls: AtomicU64::new(0) };
    let mut device = null_mut();
    let context = Box::into_raw(Box::new(image)).cast();
    assert_eq!(unsafe { spinney_device_new(&raw const calls, context, &raw mut device) }, 0);
    device
}
