//! The backends of a device: files, memory, overlays.
//!
//! - [`FileDevice`]: a regular file (an image), through positioned system calls on the page cache, or a block
//!   device, which is written past the page cache, several requests at a time. It owns the lock that keeps a
//!   second writer away.
//!   On other systems than Linux it is a regular file, and what the standard library can do with it.
//! - [`MemoryDevice`]: bytes in memory, allocated where they are written. For tests, for images
//!   that are built and streamed out, and as the base of the simulated disk.
//! - [`OverlayDevice`]: changes in memory over a device that is only read.
//!
//! Invariants that all backends keep: a request is checked against the device's size before any byte is written,
//! so a refused write has changed nothing; a change of a read-only device is refused here even
//! when the operating system would have let it through; `size_bytes` never shrinks.
//!
//! How they fail: with an [`Error`](crate::Error) that names the device, the operation and the
//! range. There is no retry, except for interrupted and short system calls.
//!
//! Callers: [`crate::open`] opens files for the library and the command line; the engines, repairs and tests make
//! overlays and memory devices. They are passed on as `Arc<dyn Device>`.

#[cfg(target_os = "linux")]
mod direct_io;
#[cfg(target_os = "linux")]
pub mod file;
mod file_length;
mod file_options;
#[cfg(target_os = "linux")]
mod holders;
pub mod memory;
pub mod overlay;
#[cfg(any(not(target_os = "linux"), test))]
pub mod portable_file;
#[cfg(target_os = "linux")]
mod raw;
#[cfg(target_os = "linux")]
mod read_ahead;
#[cfg(target_os = "linux")]
mod ring;

#[cfg(target_os = "linux")]
pub use file::FileDevice;
pub use file_options::FileOptions;
pub use memory::MemoryDevice;
pub use overlay::OverlayDevice;
#[cfg(not(target_os = "linux"))]
pub use portable_file::FileDevice;
