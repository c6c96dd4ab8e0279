//! What an engine takes from the program and the system it runs in: locks whose order is asserted ([`locks`]), tables
//! spread over several of them ([`Shards`]), and a clock and randomness that can be simulated ([`Env`]). How locks are
//! used can be counted ([`statistics`]).
//!
//! It knows no file system. An engine lists its own ranks with [`ranks!`].

pub mod env;
pub mod locks;
pub mod shards;
pub mod statistics;

pub use env::{Env, EnvSource};
pub use shards::Shards;
