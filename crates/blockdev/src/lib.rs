//! Block devices and the request queue: the only crate that touches a device.
