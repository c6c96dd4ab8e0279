//! Denies the server access to all files and ports, by Landlock. The files that the server needs are open already.
//! Called by `sandbox`.

use anyhow::Result;
use landlock::{ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetStatus, Scope};

/// Newest known version of the rules; an older kernel applies those that it knows.
const RULES: ABI = ABI::V7;

/// Denies all rights on files, on TCP ports, and on the sockets and processes of others.
pub(super) fn restrict() -> Result<Option<&'static str>> {
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?
        .restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => None,
        RulesetStatus::PartiallyEnforced => {
            Some("this kernel's Landlock is old: ports and signals are left to seccomp")
        }
        RulesetStatus::NotEnforced => Some("this kernel has no Landlock: files are left to seccomp"),
    })
}
