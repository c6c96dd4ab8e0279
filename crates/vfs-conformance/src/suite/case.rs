//! Defines a case of the suite, and the macro that lists the cases of a file. Every file with cases uses it.

use super::outcome::Outcome;
use super::subject::Subject;

/// A case: its name, and the function that goes through it on a fresh file system.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) run: fn(&Subject) -> Outcome,
}

/// The cases of a group: functions of that name, in the order in which they run.
macro_rules! cases {
    ($group:literal: $($case:ident),* $(,)?) => {
        pub(super) const CASES: &[super::case::Case] = &[
            $(super::case::Case {
                name: concat!($group, "::", stringify!($case)),
                run: $case,
            }),*
        ];
    };
}
pub(super) use cases;
