//! The formats that are known, one row each: how an image of it is mounted. A second format adds
//! its row here, and the bytes by which it is known to `common::magic`.

use crate::btrfs;
use crate::common::mount::Format;

/// The formats of this program.
pub(crate) const FORMATS: &[Format] = &[Format {
    name: "btrfs",
    open: btrfs::mount::open,
    check_options: btrfs::mount::check_options,
    is_option: btrfs::mount::is_option,
    chooses: btrfs::place::chooses,
    place: btrfs::place::find,
    check_place: btrfs::place::check,
    options_help: btrfs::mount::OPTIONS_HELP,
}];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::magic;

    #[test]
    fn every_format_has_its_magic() {
        let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
        assert_eq!(names, magic::ours().collect::<Vec<_>>());
    }
}
