//! The passes: what is looked at, in which order, and what each needs.

/// One part of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// Both superblocks.
    Super,
    /// The checkpoint packs.
    Checkpoint,
    /// NAT and SIT.
    Tables,
    /// Nodes, inodes and names.
    Files,
    /// Which blocks are in use, and the counters.
    Space,
    /// What was fsynced after the checkpoint.
    Log,
}

/// What is said of a pass.
#[derive(Clone, Copy, Debug)]
pub struct PassInfo {
    /// The pass.
    pub pass: Pass,
    /// Its name, which does not change from version to version.
    pub id: &'static str,
    /// Passes that run before it.
    pub needs: &'static [Pass],
    /// What it looks at, one line.
    pub about: &'static str,
}

const fn info(pass: Pass, id: &'static str, needs: &'static [Pass], about: &'static str) -> PassInfo {
    PassInfo { pass, id, needs, about }
}

const TABLE: &[PassInfo] = &[
    info(Pass::Super, "super", &[], "both superblocks, and the size of the device"),
    info(
        Pass::Checkpoint,
        "checkpoint",
        &[Pass::Super],
        "the newest whole checkpoint: its flags, summaries, journals, orphans and current segments",
    ),
    info(Pass::Tables, "tables", &[Pass::Checkpoint], "every entry of the NAT and the SIT, with their journals"),
    info(
        Pass::Files,
        "files",
        &[Pass::Tables],
        "nodes, inodes, attributes, names, link counts, orphans, and nodes that nothing leads to",
    ),
    info(
        Pass::Space,
        "space",
        &[Pass::Files],
        "blocks in use against the SIT, their owners against the summaries, and the counters of the checkpoint",
    ),
    info(Pass::Log, "log", &[Pass::Checkpoint], "what was fsynced after the checkpoint, if a crash left something"),
];

impl Pass {
    /// Every pass, in the order in which they report.
    #[must_use]
    pub fn all() -> &'static [PassInfo] {
        TABLE
    }

    /// The pass with this name.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        TABLE.iter().find(|info| info.id == id).map(|info| info.pass)
    }

    /// Its name.
    #[must_use]
    pub fn id(self) -> &'static str {
        TABLE.iter().find(|info| info.pass == self).map_or("", |info| info.id)
    }

    /// These passes and all that they need; every pass where none is named.
    #[must_use]
    pub fn with_needs(named: &[Self]) -> Vec<Self> {
        let mut wanted: Vec<Self> =
            if named.is_empty() { TABLE.iter().map(|info| info.pass).collect() } else { named.to_vec() };
        // A need may have needs of its own: those of later passes are looked at first.
        for info in TABLE.iter().rev() {
            if wanted.contains(&info.pass) {
                wanted.extend(info.needs);
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_come_along() {
        assert_eq!(Pass::with_needs(&[Pass::Super]), [Pass::Super]);
        let all = [Pass::Super, Pass::Checkpoint, Pass::Tables, Pass::Files, Pass::Space];
        assert_eq!(Pass::with_needs(&[Pass::Space]), all);
        assert_eq!(Pass::with_needs(&[]).len(), TABLE.len());
        assert_eq!(Pass::from_id("log"), Some(Pass::Log));
    }
}
