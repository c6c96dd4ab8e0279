//! Defines the mount options that decide how a volume is written. `open_volume` takes them; `space` and `change` read
//! them.

/// Logs: data hot, warm and cold, then nodes.
pub(crate) const LOGS: usize = 6;
pub(crate) const HOT_DATA: usize = 0;
pub(crate) const WARM_DATA: usize = 1;
pub(crate) const COLD_DATA: usize = 2;
pub(crate) const HOT_NODE: usize = 3;
pub(crate) const WARM_NODE: usize = 4;
pub(crate) const COLD_NODE: usize = 5;

/// Where blocks are written (the kernel's `mode`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// To free segments, and to the holes of others when few are free.
    #[default]
    Adaptive,
    /// Only to free segments.
    Lfs,
}

/// Whether sections are cleaned while the volume is idle (the kernel's `background_gc`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BackgroundGc {
    /// Yes; one checkpoint frees several of them.
    #[default]
    On,
    /// Only when space is short.
    Off,
    /// Yes, each with a checkpoint of its own.
    Sync,
}

/// Promise of an fsync (the kernel's `fsync_mode`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FsyncMode {
    /// The file, and its name.
    #[default]
    Posix,
    /// For a new file in a directory with removed names, their removal too: a checkpoint is made.
    Strict,
    /// That of posix, once the device writes its cache, which is not flushed. A crash of programs alone loses nothing.
    Nobarrier,
}

/// Number of logs among which blocks are divided (the kernel's `active_logs`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ActiveLogs {
    /// Data and nodes. Each fsync makes a checkpoint.
    Two,
    /// Data of directories and of others; direct nodes of files, and other nodes.
    Four,
    /// All of them.
    #[default]
    Six,
}

impl ActiveLogs {
    /// The log for blocks that belong to one of six.
    pub(crate) const fn log(self, of_six: usize) -> usize {
        match (self, of_six) {
            (Self::Six, log) | (Self::Four, log @ (HOT_DATA | WARM_NODE)) => log,
            (Self::Four, WARM_DATA | COLD_DATA) => COLD_DATA,
            (Self::Four, _) => COLD_NODE,
            (Self::Two, HOT_DATA | WARM_DATA | COLD_DATA) => HOT_DATA,
            (Self::Two, _) => HOT_NODE,
        }
    }
}

/// Contents that a new inode keeps in its own block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inline {
    pub(crate) data: bool,
    pub(crate) dentry: bool,
    pub(crate) xattr: bool,
}

impl Default for Inline {
    fn default() -> Self {
        Self { data: true, dentry: true, xattr: true }
    }
}

/// How a volume is written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Policy {
    /// Blocks freed by a checkpoint are discarded.
    pub(crate) discard: bool,
    pub(crate) mode: Mode,
    pub(crate) background_gc: BackgroundGc,
    pub(crate) fsync_mode: FsyncMode,
    pub(crate) active_logs: ActiveLogs,
    pub(crate) inline: Inline,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_to_the_logs_that_the_kernel_chooses() {
        let logs = |active: ActiveLogs| [0, 1, 2, 3, 4, 5].map(|log| active.log(log));
        assert_eq!(logs(ActiveLogs::Six), [0, 1, 2, 3, 4, 5]);
        assert_eq!(logs(ActiveLogs::Four), [0, 2, 2, 5, 4, 5]);
        assert_eq!(logs(ActiveLogs::Two), [0, 0, 0, 3, 3, 3]);
    }
}
