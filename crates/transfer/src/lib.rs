//! Copies trees of files from one place to another: directories of the host, and directories of volumes.
//!
//! ```text
//!  Source (host, volume, tree) --walk--> rules --> Sink (host, volume)
//!                                    |
//!                              Observer (progress, failures, cancellation)
//! ```
//!
//! A [`Transfer`] walks a [`Source`] with a few threads. For each name [`Rules`] decide whether it is copied, and with
//! which owner, permissions and attributes; a [`Sink`] makes it. Kept are: kind, owner, mode with its special bits,
//! access and modification time to the nanosecond, attributes (access control lists are attributes), hard links, holes,
//! device numbers, symbolic links as they are.
//!
//! Invariants
//! * Symbolic links of a source are copied, never followed, except the path of the source itself.
//! * Nothing is written outside a [`HostSink`], whatever an image says.
//! * A directory gets its times after its last name was made, since every name changes them.
//! * With one thread the sink sees the same calls in the same order for the same source.
//!
//! Directories of the host are read and written on Linux alone: on other systems [`HostSource`] and [`HostSink`] refuse
//! to open one ([`Cause::OtherSystem`]).
//!
//! Failure: [`Observer::failed`] decides for each file and directory whether the others are copied; without it the
//! first failure ends the transfer. Complete files stay. Callers: commands, and programs that fill or read images.
//!
//! ```no_run
//! # fn copy(volume: &vfs::Volume) -> transfer::Result<()> {
//! use transfer::{HostSource, Options, Transfer, Sharing, VolumeSinkOptions, VolumeSink};
//!
//! let source = HostSource::open("/srv/www")?;
//! let sink = VolumeSink::new(volume, "/", VolumeSinkOptions::default());
//! Transfer::new(&source, &sink, &Options::default(), &()).contents()
//! # }
//! ```

mod contents;
mod emulation;
mod error;
mod estimate;
mod observer;
mod queue;
#[cfg(target_os = "linux")]
mod root_dirs;
mod rules;
mod sink;
mod source;
mod tree;
mod walk;

pub use contents::{Contents, CopyEnd, HostContents, copy_data, data_bytes};
pub use emulation::{Emulator, is_there as is_emulated, unloaded_emulator};
pub use error::{Cause, Error, Result};
pub use estimate::{Totals, measure, measure_host};
pub use observer::{Loss, Observer};
pub use queue::default_threads;
#[cfg(target_os = "linux")]
pub use root_dirs::path_of;
pub use rules::{FileId, Rules, SET_ID, file_id};
pub use sink::{Existing, HostOptions, HostSink, Item, Made, Origin, Sharing, Sink, VolumeSink, VolumeSinkOptions};
pub use source::{Found, HostSource, Name, Source, VolumeFile, VolumeSource};
pub use tree::{NODE_COUNT_MAX, NewNode, NodeNumber, Stored, Tree, TreeContents, Walk, plain_metadata, read_source};
pub use walk::{Options, Transfer};
