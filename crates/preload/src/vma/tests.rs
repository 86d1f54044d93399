//! Compares the map with a naive one: an array with the kind of each page.

use super::map::{Map, Piece};
use super::{Kind, LEAF, PAGE, Range};
use proptest::prelude::*;

const PAGES: usize = 3 * LEAF / PAGE;
const BASE: usize = 1 << 40;

fn at(page: usize) -> usize {
    BASE + page * PAGE
}

fn range(first: usize, len: usize) -> Range {
    at(first)..at((first + len).min(PAGES))
}

fn kind(n: u8) -> Kind {
    match n {
        0 => Kind::Foreign,
        1 => Kind::managed(3, true),
        2 => Kind::managed(0, false),
        _ => Kind::managed(1, true),
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(usize, usize, u8),
    Remove(usize, usize),
    Find(usize, u32),
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![1usize..20, 1usize..PAGES];
    prop_oneof![
        (0..PAGES, len.clone(), 0u8..4).prop_map(|(first, len, kind)| Op::Insert(first, len, kind)),
        (0..PAGES, len.clone()).prop_map(|(first, len)| Op::Remove(first, len)),
        (len, 0u32..10).prop_map(|(len, shift)| Op::Find(len, shift)),
    ]
}

/// Returns the naive answer to [`Map::pieces`].
fn pieces(model: &[Option<Kind>], wanted: &Range) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for addr in wanted.clone().step_by(PAGE) {
        let kind = model[(addr - BASE) / PAGE];
        match out.last_mut() {
            Some(last) if last.kind == kind => last.range.end = addr + PAGE,
            _ => out.push(Piece {
                range: addr..addr + PAGE,
                kind,
            }),
        }
    }
    out
}

fn exists(model: &[Option<Kind>], len: usize, align: usize) -> bool {
    let align = if len * PAGE >= LEAF {
        align.max(LEAF)
    } else {
        align
    };
    (0..PAGES).any(|first| {
        at(first).is_multiple_of(align)
            && first + len <= PAGES
            && model[first..first + len].iter().all(Option::is_none)
    })
}

proptest! {
    #[test]
    fn the_map_is_an_array_of_pages(ops in prop::collection::vec(op(), 1..120)) {
        let mut map = Map::new(at(0)..at(PAGES));
        let mut model = vec![None; PAGES];
        for op in ops {
            match op {
                Op::Insert(first, len, n) => {
                    map.insert(range(first, len), kind(n));
                    model[first..(first + len).min(PAGES)].fill(Some(kind(n)));
                }
                Op::Remove(first, len) => {
                    map.remove(range(first, len));
                    model[first..(first + len).min(PAGES)].fill(None);
                }
                Op::Find(len, shift) => {
                    let align = PAGE << shift;
                    match map.find(len * PAGE, align) {
                        Some(place) => {
                            prop_assert_eq!(place % align, 0);
                            let first = (place - BASE) / PAGE;
                            prop_assert!(model[first..first + len].iter().all(Option::is_none));
                            prop_assert!(map.is_free(&range(first, len)));
                        }
                        None => prop_assert!(!exists(&model, len, align)),
                    }
                }
            }
            map.check();
        }
        let all = at(0)..at(PAGES);
        prop_assert_eq!(map.pieces(all.clone()), pieces(&model, &all));
        let middle = range(PAGES / 3, PAGES / 3);
        prop_assert_eq!(map.pieces(middle.clone()), pieces(&model, &middle));
    }
}

#[test]
fn small_mappings_fill_holes_and_large_ones_start_on_leaves() {
    let mut map = Map::new(at(0)..at(PAGES));
    map.insert(range(0, 10), kind(1));
    map.remove(range(4, 2));
    assert_eq!(map.find(PAGE, PAGE), Some(at(4)));
    assert_eq!(map.find(3 * PAGE, PAGE), Some(at(10)));
    assert_eq!(map.find(LEAF, PAGE), Some(BASE + LEAF));
    assert_eq!(map.find(PAGES * PAGE, PAGE), None);
    assert_eq!(map.find(usize::MAX - PAGE + 1, PAGE), None);
}

#[test]
fn outside_the_bounds_nothing_is_free() {
    let map = Map::new(at(0)..at(PAGES));
    assert!(!map.is_free(&(at(0) - PAGE..at(1))));
    assert!(!map.is_free(&(at(PAGES - 1)..at(PAGES + 1))));
}

#[test]
fn gigabyte_mappings_are_aligned_and_can_match_an_offset() {
    let gigabyte = super::GIGABYTE;
    let mut map = Map::new(BASE..BASE + 4 * gigabyte);
    map.insert(BASE..BASE + 5 * LEAF, kind(1));
    assert_eq!(map.find(gigabyte, PAGE), Some(BASE + gigabyte));
    assert_eq!(map.find(LEAF, PAGE), Some(BASE + 5 * LEAF));
    let odd = BASE + 3 * LEAF + 7 * PAGE;
    assert_eq!(map.find_like(LEAF, odd), Some(BASE + 5 * LEAF + 7 * PAGE));
    assert_eq!(map.find_like(gigabyte, odd), Some(odd + gigabyte));
    // If there is no such place, any other will do.
    let most = 4 * gigabyte - 6 * LEAF;
    assert_eq!(map.find_like(most, odd), Some(BASE + 5 * LEAF + 7 * PAGE));
    assert_eq!(
        map.find(4 * gigabyte - 5 * LEAF, PAGE),
        Some(BASE + 5 * LEAF)
    );
    assert_eq!(
        map.find_like(4 * gigabyte - 5 * LEAF, odd),
        Some(BASE + 5 * LEAF)
    );
}
