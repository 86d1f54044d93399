//! Settings of the library for the dynamic linker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs that are linked against the library look for it by the major version of its interface.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmillpond.so.0");
    // The library's handlers of SIGBUS and of fork, and its threads, cannot be taken back by a `dlclose`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
