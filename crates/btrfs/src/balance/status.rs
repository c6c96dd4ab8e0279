//! Formats the state of a balance as text, in which a mount's server reports it, and parses it. Used by
//! `vfs_impl/balancing` and the command line.

use std::fmt;
use std::str::FromStr;

use super::{BalanceProgress, BalanceSpec};

/// The state of a volume's balance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BalanceStatus {
    /// Its parameters, where one has not ended.
    pub spec: Option<BalanceSpec>,
    /// It is running.
    pub is_running: bool,
    /// Its progress, or that of the last one in this process.
    pub progress: BalanceProgress,
    /// Why the last one in this process failed.
    pub failure: Option<String>,
}

/// Not the text of a [`BalanceStatus`].
///
/// To do: use the same version of the program as the server of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected lines of a name and a value")]
pub struct NotStatus;

impl BalanceStatus {
    /// The extended attribute of any file in which a mount's server reports this text. It is stored nowhere. Writing it
    /// gives a command: `start` and a [`BalanceSpec`], `resume`, `pause` or `cancel`.
    pub const XATTR: &str = "btrfs.balance";
}

impl fmt::Display for BalanceStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { spec, is_running, progress, failure } = self;
        let state = match (is_running, spec) {
            (true, _) => "running",
            (false, Some(_)) => "paused",
            (false, None) => "none",
        };
        writeln!(f, "state {state}")?;
        if let Some(spec) = spec {
            writeln!(f, "spec {spec}")?;
        }
        let BalanceProgress { expected, considered, completed, without_room, bytes, moved_bytes } = progress;
        writeln!(f, "progress {expected} {considered} {completed} {without_room} {bytes} {moved_bytes}")?;
        match failure {
            Some(text) => writeln!(f, "failure {}", text.replace('\n', " ")),
            None => Ok(()),
        }
    }
}

impl FromStr for BalanceStatus {
    type Err = NotStatus;

    /// Lines with unknown names are skipped: a later version may report more.
    fn from_str(text: &str) -> Result<Self, NotStatus> {
        let mut status = Self::default();
        let mut has_state = false;
        for line in text.lines() {
            match line.split_once(' ').ok_or(NotStatus)? {
                ("state", state) => {
                    has_state = true;
                    status.is_running = state == "running";
                }
                ("spec", spec) => status.spec = Some(spec.parse().map_err(|_| NotStatus)?),
                ("progress", numbers) => {
                    let numbers: Vec<u64> =
                        numbers.split(' ').map(str::parse).collect::<Result<_, _>>().map_err(|_| NotStatus)?;
                    let [expected, considered, completed, without_room, bytes, moved_bytes] =
                        *numbers.first_chunk().ok_or(NotStatus)?;
                    status.progress =
                        BalanceProgress { expected, considered, completed, without_room, bytes, moved_bytes };
                }
                ("failure", text) => status.failure = Some(text.to_owned()),
                _ => {}
            }
        }
        if has_state { Ok(status) } else { Err(NotStatus) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_all_of_it() {
        let progress =
            BalanceProgress { expected: 1, considered: 2, completed: 3, without_room: 4, bytes: 5, moved_bytes: 6 };
        let spec = "data:usage=50 metadata force".parse().ok();
        let status = BalanceStatus { spec, is_running: true, progress, failure: Some("no room".to_owned()) };
        assert_eq!(status.to_string().parse(), Ok(status.clone()));
        assert_eq!(format!("{status}news 1 2\n").parse(), Ok(status));
        assert_eq!(BalanceStatus::default().to_string().parse(), Ok(BalanceStatus::default()));
        for wrong in ["", "state", "spec data\n", "state none\nprogress 1 2\n", "state paused\nspec files\n"] {
            assert_eq!(wrong.parse::<BalanceStatus>(), Err(NotStatus), "{wrong:?}");
        }
    }
}
