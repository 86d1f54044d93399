//! Options for the linker: this library is initialised before all others, and keeps its calls of its own functions.
//!
//! The constructors of other libraries allocate. Ours has to come first: memory that is allocated before it runs
//! stays unmanaged for good.
//!
//! A program that defines `malloc` itself comes before this library wherever a name is looked up. Without the second
//! option the allocations that the standard library makes from the system's allocator (thread handles) would come
//! from the program's. That is memory that may be out when it is needed to bring memory in, behind locks that are
//! held over a fork.
//!
//! The third option does the same for `getenv`, which programs define, too: `settings.rs` describes what happened
//! without it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=getenv");
}
