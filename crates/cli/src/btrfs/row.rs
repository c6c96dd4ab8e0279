//! The row of btrfs among the formats.

use super::{format, mount, place, subvolume};
use commands::format::{Format, MountFormat};
use commands::magic::magic;

/// The row.
pub(crate) const FORMAT: Format = Format {
    name: "btrfs",
    magic: magic(0x10040, b"_BHRfS_M"),
    copies: &[],
    relatives: &[("a btrfs send stream", magic(0, b"btrfs-stream\0"))],
    open: format::open,
    remedies: format::remedies,
    status: format::status,
    mount: MountFormat {
        open: mount::open,
        check_options: mount::check_options,
        is_option: mount::is_option,
        chooses: place::chooses,
        place: place::find,
        check_place: place::check,
        shows_image: subvolume::shows_default,
        options_help: mount::OPTIONS_HELP,
    },
};
