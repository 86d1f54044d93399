//! How the library presents itself to the dynamic linker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs that are linked against it look for it by the major version of its interface.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmillpond.so.0");
    // Its handlers of SIGBUS and of fork, and its threads, have no way back from a `dlclose`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
