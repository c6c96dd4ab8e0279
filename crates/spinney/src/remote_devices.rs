//! Registers the backends of devices that are elsewhere with `blockdev`: [`add_remote_devices`]. `open` does so by
//! itself; programs that open devices themselves call it first.

use std::sync::Once;

/// Lets [`crate::blockdev::open`] open `nbd://`, `nbd+unix://`, with TLS `nbds://` and `nbds+unix://`, and with the
/// feature `web` `http://`, `https://` and `s3://`, in the whole process. [`crate::open`], [`crate::make`] and
/// [`crate::check`] call it.
pub fn add_remote_devices() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        #[cfg(unix)]
        for scheme in nbd::SCHEMES {
            blockdev::locator::register(scheme, nbd::open);
        }
        #[cfg(all(feature = "web", unix))]
        ::web::register();
    });
}
