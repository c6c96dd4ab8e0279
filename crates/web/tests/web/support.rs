//! Devices and bytes for all tests.

use std::sync::Arc;

use blockdev::{Access, Device, Locator};

/// Opens a locator for reading.
pub(crate) fn open(locator: &str) -> blockdev::Result<Arc<dyn Device>> {
    web::register();
    blockdev::open(&Locator::parse(locator).unwrap(), Access::READ)
}

/// Bytes that depend on their place.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 251) % 251).unwrap()).collect()
}

/// All of a device.
pub(crate) fn read_all(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size_bytes()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}
