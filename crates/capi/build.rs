//! Gives the shared library its name for programs that are linked with it. `install.sh`, which links the library that
//! is installed, gives its symbols their version too: the linker takes one version script, and rustc has its own.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libspinney.so.0");
}
