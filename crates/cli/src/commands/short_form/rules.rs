//! Lists for each command the positions of paths in an image among its arguments. `short_form` rewrites by this table.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// The arguments, without options, that are paths in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sides {
    All,
    /// All but the last.
    From,
    /// The last.
    To,
    /// None: the command works on the whole image.
    Whole,
}

/// The argument after the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    Nothing,
    Word,
    /// One of these, or nothing.
    OneOf(&'static [&'static str]),
    /// A name for something new, or a path, or nothing.
    Name,
}

/// A command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// Its name, and that of a subcommand.
    pub(super) name: &'static [&'static str],
    pub(super) sides: Sides,
    /// Minimal number of arguments in the long form: the image and the paths, without `behind`.
    pub(super) long_min: usize,
    /// Maximal number of paths.
    pub(super) paths_max: usize,
    pub(super) behind: Behind,
    /// Options whose values are paths in the image.
    pub(super) options: &'static [&'static str],
    /// With one of these options the other arguments are no paths, or the server of a mount cannot run the command.
    pub(super) without: &'static [&'static str],
    /// The argument whose `IMAGE:/PATH` is split, and the option that takes its path.
    pub(super) with_option: Option<(End, &'static str)>,
    /// The server of a mount cannot run the command.
    pub(super) opens_image: bool,
    /// The image is the last argument.
    pub(super) image_last: bool,
}

/// The first or the last argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    First,
    Last,
}

/// Paths without limit.
pub(super) const MANY: usize = usize::MAX;

const ANY: Rule = Rule {
    name: &[],
    sides: Sides::All,
    long_min: 2,
    paths_max: MANY,
    behind: Behind::Nothing,
    options: &[],
    without: &[],
    with_option: None,
    opens_image: false,
    image_last: false,
};
/// IMAGE, and one path that may be left out.
const OPTIONAL: Rule = Rule { long_min: 1, paths_max: 1, ..ANY };
const ONE: Rule = Rule { paths_max: 1, ..ANY };
const TWO: Rule = Rule { long_min: 3, paths_max: 2, ..ANY };
const WHOLE: Rule = Rule { sides: Sides::Whole, long_min: 1, paths_max: 0, ..ANY };

/// `get` as it writes an archive: there is no path on the host among its arguments.
const GET_ARCHIVE: Rule = Rule { name: &["get"], options: &["--oci-layer"], ..ONE };

/// `put` as it unpacks an archive: the only path is in the image.
const PUT_ARCHIVE: Rule = Rule { name: &["put"], without: &["--compress"], ..ONE };

impl Rule {
    /// The rule for a command line, which may have an option that changes what its arguments are.
    pub(super) fn for_words(self, words: &[OsString]) -> Self {
        let names_archive = |word: &OsString| {
            ["--tar", "--composefs-dump"].iter().any(|name| {
                let rest = word.as_bytes().strip_prefix(name.as_bytes());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"="))
            })
        };
        match self.name {
            ["get"] if words.iter().any(names_archive) => GET_ARCHIVE,
            ["put"] if words.iter().any(names_archive) => PUT_ARCHIVE,
            _ => self,
        }
    }
}

/// All commands that take an image, except `cp`, which parses its own places.
const RULES: &[Rule] = &[
    Rule {
        name: &["backup"],
        sides: Sides::From,
        options: &["--snapshots"],
        with_option: Some((End::Last, "--into")),
        ..ANY
    },
    Rule { name: &["balance"], ..WHOLE },
    Rule { name: &["cat"], ..ANY },
    Rule { name: &["check"], without: &["--list-passes", "--explain"], ..WHOLE },
    Rule { name: &["dedupe"], ..ANY },
    Rule { name: &["defrag"], ..ANY },
    Rule { name: &["diff"], ..TWO },
    Rule { name: &["du"], long_min: 1, ..ANY },
    Rule { name: &["fork", "create"], behind: Behind::Name, paths_max: 2, ..ANY },
    Rule { name: &["fork", "diff"], ..ONE },
    Rule { name: &["fork", "drop"], without: &["--expired"], ..ANY },
    Rule { name: &["fork", "list"], ..WHOLE },
    Rule { name: &["fork", "merge"], options: &["--into"], ..ONE },
    Rule { name: &["fork", "status"], ..ONE },
    Rule { name: &["get"], sides: Sides::From, ..ANY },
    Rule { name: &["info"], ..WHOLE },
    Rule { name: &["label"], ..WHOLE },
    Rule { name: &["ln"], ..TWO },
    Rule { name: &["ls"], ..OPTIONAL },
    Rule { name: &["map"], ..WHOLE },
    Rule { name: &["mkdir"], ..ANY },
    Rule { name: &["mv"], long_min: 3, ..ANY },
    Rule { name: &["put"], sides: Sides::To, without: &["--compress"], ..ANY },
    Rule { name: &["qgroup", "assign"], behind: Behind::Word, ..ONE },
    Rule { name: &["qgroup", "create"], ..WHOLE },
    Rule { name: &["qgroup", "destroy"], ..WHOLE },
    Rule { name: &["qgroup", "limit"], behind: Behind::Word, ..ONE },
    Rule { name: &["qgroup", "remove"], behind: Behind::Word, ..ONE },
    Rule { name: &["qgroup", "show"], ..WHOLE },
    Rule { name: &["quota"], ..WHOLE },
    Rule { name: &["receive"], without: &["--dump"], ..OPTIONAL },
    Rule { name: &["rescue", "get"], sides: Sides::From, opens_image: true, ..ANY },
    Rule { name: &["rescue", "ls"], opens_image: true, ..OPTIONAL },
    Rule { name: &["resize"], image_last: true, ..WHOLE },
    Rule {
        name: &["restore"],
        sides: Sides::To,
        with_option: Some((End::First, "--from-dir")),
        opens_image: true,
        ..ANY
    },
    Rule { name: &["rm"], ..ANY },
    Rule { name: &["scrub"], ..WHOLE },
    Rule { name: &["send"], options: &["-p", "--parent", "-c", "--clone-src"], ..ANY },
    Rule { name: &["stat"], ..ANY },
    Rule { name: &["subvolume", "create"], ..ONE },
    Rule { name: &["subvolume", "delete"], without: &["--id"], ..ANY },
    Rule { name: &["subvolume", "find"], ..ONE },
    Rule { name: &["subvolume", "get-default"], ..WHOLE },
    Rule { name: &["subvolume", "list"], options: &["--snapshots-of"], without: &["--deleted", "-d"], ..WHOLE },
    Rule { name: &["subvolume", "read-only"], behind: Behind::OneOf(&["on", "off"]), ..ONE },
    Rule { name: &["subvolume", "rename"], ..TWO },
    Rule { name: &["subvolume", "set-default"], ..ONE },
    Rule { name: &["subvolume", "show"], ..OPTIONAL },
    Rule { name: &["subvolume", "snapshot"], ..TWO },
    Rule { name: &["tree"], ..OPTIONAL },
    Rule { name: &["trim"], ..WHOLE },
    Rule { name: &["usage"], ..WHOLE },
];

/// Options that select a subvolume, superblock or state of an image; the selection of a mount is fixed.
pub(super) const OF_IMAGES: &[&str] =
    &["--subvolume", "--subvolume-id", "--super", "--nologreplay", "--norecovery", "--generation"];

/// Commands whose arguments are all read as host paths if all of them lead to one mount. For the other commands, a
/// directory followed by relative paths that exist in it is read as IMAGE PATH.
pub(super) const WITHOUT_DIRECTORY: &[&str] = &["cat", "mkdir", "mv", "rm", "stat"];

impl Rule {
    /// The rule of a command line.
    pub(super) fn of(words: &[OsString]) -> Option<Self> {
        RULES.iter().find(|rule| rule.is_of(words)).copied()
    }

    fn is_of(&self, words: &[OsString]) -> bool {
        let given = words.iter().skip(1).map(OsString::as_os_str);
        given.take(self.name.len()).eq(self.name.iter().map(OsStr::new))
    }
}
