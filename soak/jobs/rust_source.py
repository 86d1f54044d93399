"""Prints a Rust program of many small generic functions: rust_source.py FUNCTIONS."""
import sys

count = int(sys.argv[1])
print("use std::collections::{BTreeMap, HashMap};")
for n in range(count):
    print(f"#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)] pub struct S{n} {{ a: u32, b: String, c: Vec<u8> }}")
    print(f"fn f{n}(x: u32) -> u32 {{ let mut m = BTreeMap::new(); for i in 0..x % 7 {{ m.insert(S{n} {{ a: i * {n + 1}, b: format!(\"{{i}}\"), c: vec![1; 3] }}, i); }}")
    print(f"  let h: HashMap<u32, S{n}> = m.keys().cloned().map(|s| (s.a, s)).collect(); x.wrapping_mul(31).wrapping_add(h.len() as u32) }}")
print("fn main() { let mut x = 1u32;", " ".join(f"x = f{n}(x);" for n in range(count)), 'println!("{x}"); }')
