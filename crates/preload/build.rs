//! Linker options: this library is initialised before all others, and calls its own functions directly.
//!
//! The constructors of other libraries allocate. Ours has to run first: memory allocated before it runs stays
//! unmanaged for good.
//!
//! A program that defines `malloc` itself takes precedence over this library wherever a name is looked up. Without
//! the second option, memory that the standard library takes from the system's allocator (thread handles) would come
//! from the program's. That memory may be absent when it is needed to bring memory in, and be behind locks that are
//! held across a fork.
//!
//! The third option does the same for `getenv`, which programs also define: `settings.rs` describes what happened
//! without it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=getenv");
}
