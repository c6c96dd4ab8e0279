//! Whole images, read as damaged ones are: whatever an image says, its rescue ends, soon.
//!
//! The input is as that of `image`. What the patches break is what a rescue goes round.

use std::sync::Arc;

use blockdev::Device;
use btrfs_rescue::Rescue;

use super::image::patched;
use super::whole::walk;

/// Older states that are looked at.
const STATES_MAX: usize = 3;

/// Reads the newest state, older ones, and what was deleted.
pub fn rescue(data: &[u8]) {
    let Some((options, patches)) = data.split_first() else { return };
    let device: Arc<dyn Device> = Arc::new(patched(patches));
    let Ok(found) = Rescue::open(&[device], 1, Arc::new(())) else { return };
    if let Ok(view) = found.view(None) {
        walk(&view.volume());
        let _ = (view.losses(), view.missing());
    }
    if options & 1 == 1 {
        for root in found.roots().iter().take(STATES_MAX) {
            if let Ok(view) = found.view(Some(root.at)) {
                walk(&view.volume());
            }
        }
    }
    if options & 2 == 2 {
        let undeleted = found.undelete(b"*");
        undeleted.views().iter().take(STATES_MAX).for_each(|view| walk(&view.volume()));
    }
}
