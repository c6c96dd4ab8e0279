//! The contents of a new image: one directory of the host, or a tree in memory that several sources fill. `job` copies
//! them; `mkfs` of btrfs looks at them.

use anyhow::Result;
use spinney::transfer::{HostSource, Observer, Options, Totals, Transfer, Tree, VolumeSink, measure};

/// Where the contents come from.
pub(crate) enum Contents {
    /// A directory, which is read while it is copied.
    Directory(HostSource),
    /// Anything else.
    Tree(Tree),
}

/// Calls something generic over sources with the source that there is.
macro_rules! with_source {
    ($contents:expr, $source:ident => $body:expr) => {
        match $contents {
            crate::contents::Contents::Directory($source) => $body,
            crate::contents::Contents::Tree($source) => $body,
        }
    };
}
pub(crate) use with_source;

impl Contents {
    /// Counts them.
    pub(crate) fn measure(&self, options: &Options) -> Result<Totals> {
        Ok(with_source!(self, source => measure(source, options, &()))?)
    }

    /// Copies them.
    pub(crate) fn copy(&self, sink: &VolumeSink<'_>, options: &Options, watch: &dyn Observer) -> Result<()> {
        Ok(with_source!(self, source => Transfer::new(source, sink, options, watch).contents())?)
    }
}
