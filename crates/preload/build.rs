//! Asks the linker to have this library initialised before all others.
//!
//! The constructors of other libraries allocate. Ours has to come first: what is allocated before it runs stays unmanaged
//! for good.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
