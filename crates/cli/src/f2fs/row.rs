//! The row of f2fs among the formats.

use super::open;
use commands::format::{Format, MountFormat};
use commands::magic::magic;

/// The row.
pub(crate) const FORMAT: Format = Format {
    name: "f2fs",
    magic: magic(0x400, b"\x10\x20\xf5\xf2"),
    copies: &[magic(0x1400, b"\x10\x20\xf5\xf2")],
    relatives: &[],
    open: open::open,
    remedies: open::remedies,
    // Its errors are those of every volume.
    status: |_| None,
    mount: MountFormat {
        open: open::mount,
        check_options: open::check_options,
        is_option: open::is_option,
        chooses: |_| false,
        place: open::place,
        check_place: |_, _, _| Ok(()),
        shows_image: |_| true,
        options_help: open::OPTIONS_HELP,
    },
};
