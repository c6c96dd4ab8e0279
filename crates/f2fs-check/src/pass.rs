//! Lists the passes of a check: the structures that each checks, and the passes that it needs. Used by `run` and the
//! command line.

use checking::{PassInfo, PassTable};

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
    /// Fsyncs after the checkpoint.
    Log,
}

const fn info(pass: Pass, id: &'static str, needs: &'static [Pass], about: &'static str) -> PassInfo<Pass> {
    PassInfo { pass, id, needs, about }
}

const TABLE: &[PassInfo<Pass>] = &[
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
    info(Pass::Log, "log", &[Pass::Checkpoint], "fsyncs after the checkpoint, left by a crash"),
];

impl PassTable for Pass {
    fn all() -> &'static [PassInfo<Self>] {
        TABLE
    }
}

impl Pass {
    /// These passes and all that they need; every pass if none is named.
    #[must_use]
    pub fn with_needs(named: &[Self]) -> Vec<Self> {
        Self::and_needs(match named {
            [] => TABLE.iter().map(|info| info.pass).collect(),
            named => named.to_vec(),
        })
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
