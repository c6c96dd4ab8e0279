//! Gives out handles, finds the objects behind them, and runs calls on them. Every call goes through [`on`] or
//! [`alone`].
//!
//! A handle is a number that is never given out again, so that a closed one is told from an open one. It is odd: no
//! address of an object of the caller's is.
//!
//! Invariants
//! * an object lives as long as a call uses it, also after another thread has closed its handle;
//! * after a panic the handles of the volume refuse every call but [`spinney_close`].
//!
//! Failure: `EBADF` for a handle that is not open or of another type; `EIO` for a panic, `EUCLEAN` afterwards.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use parking_lot::{Mutex, RwLock};
use spinney::{Error, Result};

use crate::failure::{self, Code, Misuse};

/// Shards of the table, so that threads with different handles do not wait for each other.
const SHARDS: usize = 16;
/// The lowest bits of a handle.
const HANDLE_BITS: u32 = 3;
/// Their value in every handle.
const HANDLE_MARK: usize = 0b101;

/// The type that C knows of a handle.
pub(crate) trait Handle {
    /// The type of the object behind it.
    type Object: Any + Send + Sync;
    /// Its name in messages.
    const NAME: &'static str;

    /// Ends the use of the object, before its handle goes.
    ///
    /// # Errors
    /// Those of the object; it goes all the same.
    fn close(object: &Self::Object) -> Result<()> {
        let _ = object;
        Ok(())
    }
}

/// Declares the types that C knows only by name.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug)]
            pub struct $name {
                _opaque: [u8; 0],
            }
        )*
    };
}

opaque! {
    /// `spinney_volume`: an open volume.
    SpinneyVolume;
    /// `spinney_file`: an open file.
    SpinneyFile;
    /// `spinney_dir`: an open directory.
    SpinneyDir;
    /// `spinney_subvolumes`: a list of subvolumes.
    SpinneySubvolumes;
    /// `spinney_changes`: a list of differences.
    SpinneyChanges;
    /// `spinney_report`: the report of a check.
    SpinneyReport;
    /// `spinney_device`: a device.
    SpinneyDevice;
}

/// Says whether a panic has ended a call on the volume, and which one.
#[derive(Debug, Default)]
pub(crate) struct Health(OnceLock<String>);

/// An object in the table.
struct Slot {
    object: Box<dyn Any + Send + Sync>,
    type_name: &'static str,
    close: fn(&dyn Any) -> Result<()>,
    /// Message of the last failure of a call on the handle.
    message: Mutex<String>,
    health: Arc<Health>,
}

type Shard = RwLock<HashMap<usize, Arc<Slot>>>;

static TABLE: LazyLock<Vec<Shard>> = LazyLock::new(|| (0..SHARDS).map(|_| Shard::default()).collect());
static NEXT: AtomicUsize = AtomicUsize::new(1);

fn shard(number: usize) -> &'static Shard {
    &TABLE[(number >> HANDLE_BITS) % SHARDS]
}

/// Puts an object into the table.
fn insert<H: Handle>(object: H::Object, health: Arc<Health>) -> *mut H {
    let close = |object: &dyn Any| object.downcast_ref().map_or(Ok(()), H::close);
    let slot = Slot { object: Box::new(object), type_name: H::NAME, close, message: Mutex::default(), health };
    let number = (NEXT.fetch_add(1, Ordering::Relaxed) << HANDLE_BITS) | HANDLE_MARK;
    shard(number).write().insert(number, Arc::new(slot));
    ptr::without_provenance_mut(number)
}

fn find(number: usize) -> Option<Arc<Slot>> {
    (number & ((1 << HANDLE_BITS) - 1) == HANDLE_MARK).then(|| shard(number).read().get(&number).cloned()).flatten()
}

/// The object behind a handle, during a call.
pub(crate) struct Held<H> {
    slot: Arc<Slot>,
    handle: PhantomData<H>,
}

impl<H: Handle> Held<H> {
    fn find(handle: *const H) -> Result<Self> {
        if handle.is_null() {
            return Err(Misuse::Null(H::NAME).error());
        }
        let slot = find(handle.addr()).ok_or_else(|| Misuse::Closed { expected: H::NAME }.error())?;
        if !slot.object.is::<H::Object>() {
            return Err(Misuse::OtherType { expected: H::NAME, found: slot.type_name }.error());
        }
        Ok(Self { slot, handle: PhantomData })
    }

    /// A handle of something that belongs to this one.
    pub(crate) fn child<K: Handle>(&self, object: K::Object) -> *mut K {
        insert(object, Arc::clone(&self.slot.health))
    }
}

impl<H: Handle> Deref for Held<H> {
    type Target = H::Object;

    fn deref(&self) -> &H::Object {
        self.slot.object.downcast_ref().expect("the type was compared when the handle was found")
    }
}

/// A handle of something that belongs to no other handle.
pub(crate) fn new<H: Handle>(object: H::Object) -> *mut H {
    insert(object, Arc::default())
}

/// The objects of several handles.
///
/// # Errors
/// `EBADF`, `EINVAL` as [`on`].
pub(crate) fn all<H: Handle>(handles: &[*mut H]) -> Result<Vec<Held<H>>> {
    handles.iter().map(|handle| Held::find(handle.cast_const())).collect()
}

/// Runs a call on a handle.
pub(crate) fn on<H: Handle, C: Code>(handle: *const H, call: impl FnOnce(&Held<H>) -> Result<C>) -> C {
    let held = match Held::find(handle) {
        Ok(held) => held,
        Err(error) => return fail(&error, None),
    };
    if let Some(text) = held.slot.health.0.get() {
        return fail(&Misuse::Poisoned(text.clone()).error(), Some(&held.slot));
    }
    let code = match catch(|| call(&held)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => fail(&error, Some(&held.slot)),
        Err(text) => {
            let _ = held.slot.health.0.set(text.clone());
            fail(&Misuse::Panic(text).error(), Some(&held.slot))
        }
    };
    // If another thread has closed the handle meanwhile, the object ends here.
    match catch(|| drop(held)) {
        Ok(()) => code,
        Err(text) => fail(&Misuse::Panic(text).error(), None),
    }
}

/// Runs a call that has no handle.
pub(crate) fn alone<C: Code>(call: impl FnOnce() -> Result<C>) -> C {
    match catch(call) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => fail(&error, None),
        Err(text) => fail(&Misuse::Panic(text).error(), None),
    }
}

/// Runs something; the text of its panic if it panics.
fn catch<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
    })
}

/// Keeps the message of a failure, and gives its code.
fn fail<C: Code>(error: &Error, slot: Option<&Slot>) -> C {
    let message = spinney::message(error);
    failure::remember(&message);
    if let Some(slot) = slot {
        *slot.message.lock() = message;
    }
    C::failed(error.errno())
}

/// Closes a handle of any type; see the header.
#[unsafe(no_mangle)]
pub extern "C" fn spinney_close(handle: *mut c_void) -> c_int {
    if handle.is_null() {
        return 0;
    }
    let removed = find(handle.addr()).and_then(|_| shard(handle.addr()).write().remove(&handle.addr()));
    let Some(slot) = removed else { return fail(&Misuse::Closed { expected: "a handle" }.error(), None) };
    alone(|| {
        // Nothing that a panic left behind may become durable.
        let closed = if slot.health.0.get().is_some() { Ok(()) } else { (slot.close)(&*slot.object) };
        drop(slot);
        closed.map(|()| 0)
    })
}

/// The message of the last failure of a handle, or of the thread; see the header.
#[unsafe(no_mangle)]
pub extern "C" fn spinney_error_message(handle: *const c_void) -> *const c_char {
    let of_handle = find(handle.addr()).map(|slot| slot.message.lock().clone());
    failure::show(of_handle.unwrap_or_else(failure::last))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, and one panic is on purpose")]

    use std::ffi::CStr;

    use super::*;

    struct Probe;

    impl Handle for Probe {
        type Object = u32;
        const NAME: &'static str = "a probe";
    }

    fn message(handle: *const Probe) -> String {
        // SAFETY: the text stays until this thread asks for another one.
        unsafe { CStr::from_ptr(spinney_error_message(handle.cast())) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_volume_refuses_everything_afterwards() {
        let parent: *mut Probe = new(1);
        let mut child: *mut Probe = ptr::null_mut();
        let made: c_int = on(parent, |held| {
            child = held.child::<Probe>(2);
            Ok(0)
        });
        assert_eq!(made, 0);
        assert_eq!(on::<_, c_int>(child, |_| panic!("one and {}", 1)), -5);
        assert_eq!(message(child), "a defect of this library: one and 1");
        assert_eq!(on::<_, c_int>(parent, |_| Ok(0)), -117);
        assert!(message(parent).contains("close its handles"), "{}", message(parent));
        assert_eq!(spinney_close(child.cast()), 0);
        assert_eq!(spinney_close(parent.cast()), 0);
        assert_eq!(spinney_close(parent.cast()), -9);
    }
}
