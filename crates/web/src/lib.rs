//! Images on web servers and in S3 as devices (`https://`, `http://`, `s3://`), and a server that shows a file system
//! to browsers.
//!
//! [`register`] makes [`blockdev::open`] know the schemes. [`client`] has the device, which can only be read;
//! [`server`] answers requests for files and directories.
//!
//! Failure: [`Error`] says what, expected and found. Callers: `spinney`, for locators, and the command `serve http`.

pub mod client;
mod date;
mod error;
mod number;
mod percent;
mod polled;
pub mod range;
mod s3;
pub mod server;

pub use error::Error;
pub use s3::credentials::{Profile, parse_profile};

/// The schemes of locators.
pub const SCHEMES: [&str; 3] = ["http", "https", s3::SCHEME];

/// Makes [`blockdev::open`] open locators of the schemes `http`, `https` and `s3`, in the whole process.
pub fn register() {
    for scheme in SCHEMES {
        blockdev::locator::register(scheme, client::open);
    }
}
