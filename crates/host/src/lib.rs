//! Services that an engine takes from its host: locks with an asserted order ([`locks`]), tables spread over several of
//! them ([`Shards`]), and a clock and randomness that can be simulated ([`Env`]). The use of locks can be counted
//! ([`statistics`]).
//!
//! It knows no file system. An engine lists its own ranks with [`ranks!`]. Callers: the engines.

pub mod env;
pub mod locks;
pub mod shards;
mod spinning;
pub mod statistics;

pub use env::{Env, EnvSource};
pub use shards::Shards;
