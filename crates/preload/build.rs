//! Asks the linker to have this library initialised before all others.
//!
//! The constructors of other libraries register fork handlers and allocate. Ours has to come first: its fork handler
//! must be the innermost one (see `src/fork.rs`), and what is allocated before it runs stays unmanaged for good.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
