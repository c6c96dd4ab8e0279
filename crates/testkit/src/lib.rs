//! Models, simulated devices and checks for the tests.
