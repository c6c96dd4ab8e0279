//! Lists the accepted differences between our mount and the kernel's btrfs, with reasons. The trial (`attack`) judges
//! each difference by this list.

use super::super::checks::Mode;
use super::outcome::{Compared, Difference};
use super::sides::Phase;
use Verdict::{Fuse, GivenAway, OtherError, Stricter};

/// Verdict on an attempt, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// Equal outcomes.
    Equal,
    /// Both refuse, for different reasons.
    OtherError,
    /// Ours refuses what the kernel's btrfs allows, or takes more rights away.
    Stricter,
    /// Ours allows an operation that the manual lists for the option `user_subvol_ioctls`.
    GivenAway,
    /// The kernel's FUSE client allows it, and does not tell the server enough to refuse it.
    Fuse,
    /// A difference without a row in the list.
    Failed,
}

impl Verdict {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::OtherError => "equal but for the error",
            Self::Stricter => "stricter",
            Self::GivenAway => "given away by option",
            Self::Fuse => "decided by FUSE",
            Self::Failed => "FAILED",
        }
    }
}

/// An accepted difference: in all patterns `*` stands for anything, and `|` is between choices.
struct Row {
    attempt: &'static str,
    identity: &'static str,
    /// Pattern for [`Difference::what`].
    what: &'static str,
    verdict: Verdict,
    reason: &'static str,
}

const fn row(
    attempt: &'static str,
    identity: &'static str,
    what: &'static str,
    verdict: Verdict,
    reason: &'static str,
) -> Row {
    Row { attempt, identity, what, verdict, reason }
}

const OLDER: &str = "an immutable or append-only file is not changed by older handles either (as on ext4)";
const NO_GROUPS: &str = "FUSE tells the caller's own group, but none of the others";
const NO_OPTION: &str = "without `user_subvol_ioctls` no program changes subvolumes";
const NO_PRIVILEGES: &str = "FUSE tells no capabilities: every caller of these is taken for one without";
const ROOT_ADMINISTERS: &str = "FUSE tells no capabilities: root is taken to have CAP_SYS_ADMIN where it only reads";
const ROOT_HAS: &str = "FUSE tells no capabilities: root is taken to have CAP_FOWNER and CAP_FSETID";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("set-user-after-*", "member", "* bare mode", Stricter, NO_GROUPS),

    row("change-owners", "root|root-*|cap:chown+fowner", "* bare6 mode|* other-group mode|step other group", Stricter,
        "a change of nothing takes a bare set-group bit from root's as from any other's file"),
    row("change-owners", "cap:fowner|cap:chown+fowner", "step f6 -1 -1|step bare6 -1 -1|step other group|* mode",
        Stricter, NO_PRIVILEGES),
    row("change-owners", "nocaps|userns-zero|root-fowner",
        "step f6 -1 -1|step bare6 -1 -1|step other group|* f6 *|* bare6 *|* other-group mode", Fuse, ROOT_HAS),
    row("change-owners", "root-fowner|cap:chown",
        "step f*|* f* *|step bare*|* bare* *|* shifted*|* own-group *|step own group|step run", Fuse,
        "the kernel allows it with CAP_CHOWN alone, and leaves the bits to the server, which clears them"),
    row("change-owners", "root-fsetid", "* bare* mode|* own-group mode", Fuse, ROOT_HAS),
    row("change-owners", "stranger|member|userns|userns-range|nocaps|userns-zero|cap:chown|root-*|cap:chown+fowner",
        "after f* xattrs|step run", Fuse,
        "the kernel removes security.capability before it asks the server, as it does on btrfs where no bit is set"),

    row("change-flags", "cap:fowner", "*", Stricter, NO_PRIVILEGES),
    row("immutable-file-by-*|append-only-file-by-*", "*", "step *|after f *", Stricter, OLDER),
    row("immutable-file*|append-only-file*", "*", "step collapse", OtherError,
        "unsupported operations are refused first"),
    row("listing-and-versions", "*", "step trim", OtherError, "a server has no such call"),

    row("control-operations-*", "nocaps", "step search|step path", Fuse, ROOT_ADMINISTERS),
    row("read-only-bind-mount|volume-made-read-only|control-operations-*", "*",
        "step subvolume|step snapshot|step search|step default|step path", OtherError, NO_OPTION),
    row("volume-made-read-only-and-writable-again", "*", "step subvolume|step snapshot|after d/subvolume",
        Stricter, NO_OPTION),
    row("control-operations-*", "*",
        "step make|step snapshot|step delete|step search|step path|after d mtime|after d/new",
        Stricter, NO_OPTION),

    row("make-subvolumes", "member", "step *|after *", Stricter, NO_GROUPS),
    row("delete-subvolumes", "member", "step *|after *", Stricter, NO_GROUPS),
    row("make-subvolumes|make-snapshots|delete-subvolumes|freeze-subvolumes", "root", "step *|after *",
        Stricter, NO_PRIVILEGES),
    row("delete-subvolumes|delete-by-list|freeze-subvolumes", "cap:*", "step *|after *", Stricter, NO_PRIVILEGES),
    row("make-snapshots", "nocaps|userns-zero", "step hidden*|after open/of-hidden*|after closed/of-hidden*", Stricter,
        "a user who snapshots a subvolume that he cannot read has a handle of it, which FUSE does not pass on"),
    row("changes-in-a-frozen-subvolume", "*", "step *", OtherError,
        "the kernel checks permissions before it asks the server, which knows that the subvolume is read-only"),
    row("changes-in-a-frozen-subvolume", "owner|root", "step list|after d/inner/f *", Stricter,
        "Linux sets access control lists in a read-only subvolume, which nothing else may change"),
    row("subvolumes-through-a-read-only-bind-mount", "*", "*", GivenAway,
        "FUSE passes no mount flags on; `user_subvol_ioctls` in `spinney mount --help` has the consequences"),
    row("subvolumes-through-a-read-only-bind-mount", "root", "*", OtherError, NO_PRIVILEGES),
];

/// Accepted differences of one mode.
#[rustfmt::skip]
const MODE_ROWS: &[(Mode, Row)] = &[
    (Mode::Writeback, row("set-user-after-direct", "*", "* mtime", Fuse,
        "the kernel keeps the times of files itself, and does not change them for direct writes; the server does")),
    (Mode::Writeback, row("change-times|append-only-files", "*", "step append now|step now", Stricter,
        "the kernel sends its own time, which the server takes for one that the caller chose")),
    (Mode::Writeback, row("immutable-file-by-older-*", "*", "step *|after f *", Fuse,
        "the kernel takes the write before the server can refuse it")),
    (Mode::ZeroOpen, row("immutable-files|append-only-files|changes-in-a-frozen-subvolume", "*",
        "step open*|step reopen", Fuse,
        "the server is not told of openings; it refuses operations on the opened files")),
    (Mode::ZeroOpen, row("immutable-files|append-only-files", "*", "step copy_range|step insert", OtherError,
        "the file could be opened, so that the next check refuses")),
    (Mode::ZeroOpen, row("append-only-files", "*", "step allocate|step keep_size|after f content|after f size", Fuse,
        "the file could be opened, and may be extended, as by a program that opens it to append")),
];

/// The worst verdict of all differences of an attempt.
pub(super) fn judge(compared: &Compared<'_>, phase: Phase, mode: Mode) -> (Verdict, &'static str) {
    let verdicts = compared.differences.iter().map(|difference| one(compared, difference, phase, mode));
    verdicts.max().unwrap_or((Verdict::Equal, ""))
}

/// The verdict on one difference, and the reason in the list.
pub(super) fn one(
    compared: &Compared<'_>,
    difference: &Difference,
    phase: Phase,
    mode: Mode,
) -> (Verdict, &'static str) {
    let of_mode = MODE_ROWS.iter().filter(|(of, _)| *of == mode).map(|(_, row)| row);
    let rows = ROWS.iter().chain(of_mode).filter(|row| {
        matches(row.attempt, &compared.kernel.attempt)
            && matches(row.identity, &compared.kernel.identity)
            && matches(row.what, difference.what())
    });
    let holds = |row: &&Row| match row.verdict {
        Verdict::OtherError => difference.is_refused_by_both(),
        Verdict::Stricter => difference.is_stricter(),
        Verdict::GivenAway => phase == Phase::Subvolumes,
        Verdict::Equal | Verdict::Fuse | Verdict::Failed => true,
    };
    rows.filter(holds).map(|row| (row.verdict, row.reason)).min().unwrap_or((Verdict::Failed, ""))
}

/// Whether the kernel's view of the image may differ from the view of the mount.
pub(super) fn may_differ_on_disk(attempt: &str, what: &str, mode: Mode) -> bool {
    let of_mode = MODE_ROWS.iter().filter(|(of, _)| *of == mode).map(|(_, row)| row);
    let is_on_disk = |row: &Row| row.verdict == Fuse && matches(row.attempt, attempt) && matches(row.what, what);
    of_mode.filter(|row| row.what.starts_with("* ")).any(is_on_disk)
}

/// Whether one of the choices of a pattern matches `text`.
fn matches(pattern: &str, text: &str) -> bool {
    pattern.split('|').any(|choice| is_like(choice, text))
}

fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            ends.filter_map(|at| text.get(at..)).any(|text| is_like(rest, text))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, is_match) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("x|a*", "abc", true),
            ("after * mode", "after bare mode", true),
            ("after * mode", "after bare owner", false),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        }
    }
}
