//! How a volume is written, as its mount options say.

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
    /// To free segments, and where these are few to the holes of others.
    #[default]
    Adaptive,
    /// To free segments alone.
    Lfs,
}

/// Whether sections are emptied while nobody changes anything (the kernel's `background_gc`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BackgroundGc {
    /// They are; a checkpoint makes several of them free.
    #[default]
    On,
    /// Only where there is no other room.
    Off,
    /// They are, each with a checkpoint of its own.
    Sync,
}

/// What an fsync promises (the kernel's `fsync_mode`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FsyncMode {
    /// The file, and that its name leads to it.
    #[default]
    Posix,
    /// For a new file in a directory that lost names, those too: a checkpoint is made.
    Strict,
    /// What posix promises, once the device writes its cache: it is not asked to. A crash of programs alone loses
    /// nothing.
    Nobarrier,
}

/// How many logs blocks are kept apart in (the kernel's `active_logs`).
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
    /// The log that blocks go to which belong to one of six.
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

/// What a new inode keeps in its own block.
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
    /// The device is told what each checkpoint frees.
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
