//! Parses lists of options as `mount -o` takes them, for the tests of the options of each format.

use formats::VolumeOptions;

/// `ro`, and options of one format, between commas.
pub(crate) fn parse(list: &str) -> VolumeOptions {
    let mut options = VolumeOptions::new();
    for option in list.split(',') {
        options = match option.split_once('=') {
            None if option == "ro" || option == "rw" => options.read_only(option == "ro"),
            None if option == "noatime" => options,
            None => options.flag(option),
            Some((name, value)) => options.option(name, value),
        };
    }
    options
}
