//! Settings of the library for the dynamic linker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs linked against the library look for it by the major version of its interface.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmillpond.so.0");
    // A `dlclose` cannot undo the library's handlers of SIGBUS and of fork, or its threads.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
