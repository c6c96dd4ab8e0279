//! Passes the progress of an operation to a function of the caller, which can cancel it. The long calls use it.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ops::ControlFlow;

use spinney::Progress;

/// `spinney_progress`: how far an operation has come.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyProgress {
    pub struct_size: usize,
    pub bytes: u64,
    pub bytes_total: u64,
    pub inodes: u64,
}

/// `spinney_progress_fn`: called with the progress.
pub type SpinneyProgressFn =
    Option<unsafe extern "C" fn(context: *mut c_void, progress: *const SpinneyProgress) -> c_int>;

/// The pointer that the caller gets back in its functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context(pub(crate) *mut c_void);

// SAFETY: the library never reads what it leads to; the header says which functions are called by any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// The callback of an operation, over the function of the caller.
///
/// # Safety
/// The function may be called with the context by any thread, until the call of the operation returns.
pub(crate) unsafe fn watch(
    function: SpinneyProgressFn,
    context: *mut c_void,
) -> impl FnMut(&Progress) -> ControlFlow<()> + Send {
    let context = Context(context);
    move |progress| {
        let Some(function) = function else { return ControlFlow::Continue(()) };
        let Progress { bytes, bytes_total, inodes } = *progress;
        let shown = SpinneyProgress { struct_size: size_of::<SpinneyProgress>(), bytes, bytes_total, inodes };
        // SAFETY: as this function demands.
        match unsafe { function(context.pointer(), &raw const shown) } {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}
