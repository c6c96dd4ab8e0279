//! Does random operations on a volume and on the model, and compares them one by one and as whole trees.
//!
//! `generate` draws operations that are mostly possible in the present tree; `drive` does one on a [`vfs::Volume`];
//! `compare` walks both trees; `run` combines them with commits, re-opens and full volumes, and has another program
//! check the results. The format is a [`Subject`].
//!
//! Invariants: an operation that the model allows succeeds on the volume with the same effect, and one that it
//! forbids fails with the same number, without effect. The one exception is `ENOSPC`, accepted only when the
//! volume is nearly full, and only if nothing changed (of a write, a part may have been done: each byte is then the
//! old or the new one, and the model takes over what it finds).
//!
//! A failure names the seed and the operation, and gives the last operations. Called by the tests of each format.

mod compare;
mod drive;
mod generate;
mod run;
mod subject;
mod threads;

pub use compare::{compare_content, compare_trees};
pub use drive::drive;
pub use generate::Generator;
pub use run::{Report, Settings, run};
pub use subject::Subject;
pub use threads::run_threads;

/// True when the volume refused an operation, and goes on as if it had not been asked.
#[must_use]
pub fn is_refusal(error: &vfs::Error) -> bool {
    matches!(error.blame(), vfs::Blame::Caller | vfs::Blame::Program)
}

/// True when the volume had no room for an operation.
#[must_use]
pub fn is_full(error: &vfs::Error) -> bool {
    error.blame() == vfs::Blame::Space
}
