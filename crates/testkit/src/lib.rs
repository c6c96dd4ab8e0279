//! Models, simulated devices and checks for the tests.

pub mod random;

pub use random::Random;
