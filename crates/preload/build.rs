//! Asks the linker to have this library initialised before all others, and to keep its calls of its own functions.
//!
//! The constructors of other libraries allocate. Ours has to come first: what is allocated before it runs stays
//! unmanaged for good.
//!
//! A program that defines `malloc` itself comes before this library wherever a name is looked up. Without the second
//! option what the standard library takes for the system's allocator (thread handles) would be the program's: memory
//! that may be out when it is wanted to bring memory in, behind locks that are held over a fork.
//!
//! The third does the same for `getenv`, which programs define, too: `settings.rs` says what became of that.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=getenv");
}
