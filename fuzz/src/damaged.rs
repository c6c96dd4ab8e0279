//! Whole images, given to check, scrub, rescue and repair: whatever an image says, they end, soon.
//!
//! The input is as that of `image`. What the patches break is what a rescue goes round, and a repair mends.

use std::sync::Arc;

use blockdev::Device;

use super::ends::{self, Depth};
use super::image::patched;

/// The options, and the image that the patches make.
fn device(data: &[u8]) -> Option<(u8, Arc<dyn Device>)> {
    let (options, patches) = data.split_first()?;
    Some((*options, Arc::new(patched(patches).into_read_only())))
}

/// Reads the newest state, older ones, and what was deleted.
pub fn rescue(data: &[u8]) {
    if let Some((options, device)) = device(data) {
        ends::rescue(&device, Depth { states: options & 1 == 1, undelete: options & 2 == 2 });
    }
}

/// Checks, and scrubs with an odd number.
pub fn check(data: &[u8]) {
    if let Some((options, device)) = device(data) {
        ends::check(&device);
        if options & 1 == 1 {
            ends::scrub(&device, options & 2 == 2);
        }
    }
}

/// Plans a repair, applies and undoes it.
pub fn repair(data: &[u8]) {
    if let Some((_, device)) = device(data) {
        ends::repair(&device);
    }
}
