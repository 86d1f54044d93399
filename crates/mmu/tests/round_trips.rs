//! Tests of the contract of `Mmu` on real memory, one operation after the other.

mod common;

use std::sync::atomic::Ordering::Relaxed;

use common::{State, Tiny, config, each_kind, protect, usable};
use millpond_core::{
    FillOrInstallError, Frame, InstallError, LoadError, Mmu, Order, PageCount, PageIndex,
    PageRange, Placed, TakeOutError,
};
use millpond_mmu::{Delivery, Memory, MmuError, RealMemory, TakeOutMethod, capabilities};

fn present(mmu: &RealMemory, range: PageRange) -> u32 {
    let mut pages = 0;
    mmu.present_pages(range, &mut |run| pages += run.len.0);
    pages
}

#[test]
fn folios_of_every_order_go_out_and_come_back() {
    each_kind(|delivery, method| {
        for order in [0, 2, 4, 9] {
            let tiny = Tiny::new(delivery, method, 4, order);
            let last = tiny.order.bytes() / 8 - 1;
            for round in 0..70 {
                for folio in 0..4 {
                    tiny.counter(folio, 0).fetch_add(folio as u64 + 1, Relaxed);
                    tiny.counter(folio, last).fetch_add(7, Relaxed);
                    assert!(
                        tiny.evict(folio),
                        "{delivery:?} {method:?} {order} round {round}"
                    );
                    assert_eq!(present(&tiny.mmu, tiny.range(folio)), 0);
                }
            }
            for folio in 0..4 {
                assert_eq!(
                    tiny.counter(folio, 0).load(Relaxed),
                    70 * (folio as u64 + 1)
                );
                assert_eq!(tiny.counter(folio, last).load(Relaxed), 70 * 7);
                tiny.settle(folio);
                assert_eq!(present(&tiny.mmu, tiny.range(folio)), tiny.order.pages().0);
            }
            assert_eq!(tiny.faults.load(Relaxed), 4 * 71);
            tiny.end();
        }
    });
}

#[test]
fn neighbours_go_out_in_one_call() {
    each_kind(|delivery, method| {
        let tiny = Tiny::new(delivery, method, 2, 4);
        for folio in 0..32 {
            tiny.counter(folio, 0).store(folio as u64 + 1, Relaxed);
        }
        assert!(tiny.evict(5));
        tiny.settle(31);
        assert_eq!(tiny.evict_all(0, 32), 31);
        assert_eq!(
            present(&tiny.mmu, PageRange::new(PageIndex(0), PageCount(1024))),
            0
        );
        for folio in 0..32 {
            assert_eq!(tiny.counter(folio, 0).load(Relaxed), folio as u64 + 1);
        }
        tiny.end();
    });
}

/// Checks the folios of a window: with frames that have contents, with new pages, and with both alternately. If the
/// program unmaps a page in the middle, the folio that contained it is refused. The folios before and after it are
/// mapped, and keep the bytes that have since been written to them.
#[test]
fn neighbours_are_zeroed_together() {
    each_kind(|delivery, method| {
        for order in [0, 2, 4] {
            let tiny = Tiny::new(delivery, method, 2, order);
            for folio in 0..12 {
                tiny.counter(folio, 1).store(7, Relaxed);
                assert!(tiny.evict(folio));
            }
            let install = |work: &[(PageRange, Option<Frame>)]| {
                let mut results = vec![Err(InstallError::Gone); work.len()];
                tiny.mmu.install_zero_all(work, &mut results);
                results
            };
            let with =
                |folio: usize, frame: bool| (tiny.range(folio), frame.then(|| tiny.frame(folio)));
            // Folios 0 to 3 come from frames, 4 to 7 from new pages, 8 to 11 from both alternately.
            let work: Vec<_> = (0..12)
                .map(|n| with(n, n < 4 || n >= 8 && n % 2 == 0))
                .collect();
            for (result, (at, frame)) in install(&work).into_iter().zip(&work) {
                let placed = result.unwrap_or_else(|error| panic!("{at:?} {frame:?}: {error:?}"));
                assert!(frame.is_some() || placed == Placed::Copied, "{at:?}");
                assert_eq!(present(&tiny.mmu, *at), at.len.0);
            }
            for folio in 0..12 {
                tiny.states.lock().unwrap()[folio] = State::Mapped;
                assert_eq!(tiny.counter(folio, 1).load(Relaxed), 0, "{order} {folio}");
            }

            let hole = tiny.mmu.addr_of(tiny.range(18).start);
            // SAFETY: this is an empty page of the arena that no thread touches.
            assert_eq!(unsafe { libc::munmap(hole.cast(), 4096) }, 0);
            let work: Vec<_> = (16..20).map(|n| with(n, false)).collect();
            let results = install(&work);
            assert_eq!([0, 1, 3].map(|n| results[n]), [Ok(Placed::Copied); 3]);
            assert!(results[2].is_err(), "{:?}", results[2]);
            assert_eq!(present(&tiny.mmu, tiny.range(18)), 0);
            tiny.end();
        }
    });
}

#[test]
fn a_frame_is_filled_installed_and_read() {
    each_kind(|delivery, method| {
        let mmu = RealMemory::new(config(delivery, method, 1)).unwrap();
        let at = PageRange::new(PageIndex(16), PageCount(16));
        mmu.open(at).unwrap();
        let frame = Frame::new(Order::new(4).unwrap(), 3);
        for round in 0..4 {
            // The pool's place is a hole at first, and again whenever it was moved from or freed.
            mmu.fill(frame, true, &mut |bytes| {
                assert!(bytes.iter().all(|&byte| byte == 0));
                bytes.fill(round + 1);
                Ok(())
            })
            .unwrap();
            let placed = mmu.install(frame, at).unwrap();
            // SAFETY: the page was just mapped, and nobody else uses it.
            let last = unsafe { mmu.addr_of(PageIndex(31)).add(4095).read() };
            assert_eq!(last, round + 1);
            if placed == Placed::Copied {
                mmu.read_frame(frame, &mut |bytes| {
                    assert!(bytes.iter().all(|&byte| byte == round + 1))
                });
                mmu.free_frames(&[frame]);
            }
            mmu.zap(&[at]);
            assert_eq!(present(&mmu, at), 0);
        }
        mmu.fill(frame, true, &mut |_| Err(LoadError::Corrupt))
            .unwrap_err();
        assert!(mmu.install_zero(at, Some(frame)).is_ok());
        // SAFETY: the page was just mapped, and nobody else uses it.
        assert_eq!(unsafe { mmu.addr_of(PageIndex(16)).read() }, 0);
    });
}

#[test]
fn many_ranges_are_dropped_at_once_and_frames_too() {
    let mmu = RealMemory::new(config(Delivery::InThread, TakeOutMethod::Auto, 2)).unwrap();
    let all = PageRange::new(PageIndex(0), PageCount(1024));
    mmu.open(all).unwrap();
    let ranges: Vec<_> = (0..300)
        .map(|n| PageRange::new(PageIndex(n * 3), PageCount(2)))
        .collect();
    for range in &ranges {
        for page in range.pages() {
            mmu.install_zero(PageRange::new(page, PageCount(1)), None)
                .unwrap();
        }
    }
    assert_eq!(present(&mmu, all), 600);
    mmu.zap(&ranges[..299]);
    assert_eq!(present(&mmu, all), 2);
    mmu.zap(&[PageRange::default(), all]);
    assert_eq!(present(&mmu, all), 0);

    let frames: Vec<_> = (0..200).map(|n| Frame::new(Order::ZERO, n * 2)).collect();
    for round in 0..2 {
        for &frame in &frames {
            mmu.fill(frame, true, &mut |bytes| {
                assert_eq!(bytes[0], 0, "round {round}: the place was not a hole");
                bytes[0] = 1;
                Ok(())
            })
            .unwrap();
        }
        mmu.free_frames(&frames);
    }
}

#[test]
fn contents_cross_protections_and_an_unmapped_page_takes_the_folio_back() {
    let mmu = RealMemory::new(config(Delivery::InThread, TakeOutMethod::Auto, 1)).unwrap();
    let order = Order::new(2).unwrap();
    let at = PageRange::new(PageIndex(4), order.pages());
    mmu.open(PageRange::new(PageIndex(0), PageCount(512)))
        .unwrap();
    let hole = PageRange::new(PageIndex(6), PageCount(1));
    let second = mmu.addr_of(hole.start).cast();
    protect(&mmu, hole, libc::PROT_READ);
    let frame = Frame::new(order, 0);
    mmu.fill(frame, true, &mut |bytes| {
        bytes.fill(9);
        Ok(())
    })
    .unwrap();
    // userfaultfd puts zeros only where a whole mapping takes them; contents go wherever their pages are.
    if mmu.is_watched_by_protections() {
        assert_eq!(mmu.install_zero(at, None), Ok(Placed::Copied));
        mmu.zap(&[at]);
    } else {
        assert_eq!(mmu.install_zero(at, None), Err(InstallError::Split));
    }
    assert_eq!(present(&mmu, at), 0);
    assert_eq!(mmu.install(frame, at), Ok(Placed::Copied));
    assert_eq!(present(&mmu, at), 4);
    mmu.zap(&[at]);

    // SAFETY: the page is in the arena and nobody uses it; `renew` fills the hole again.
    assert_eq!(unsafe { libc::munmap(second, 4096) }, 0);
    assert_eq!(mmu.install_zero(hole, None), Err(InstallError::Gone));
    // Two pages can be mapped before the third is found missing: they are taken back, including their contents.
    assert_eq!(mmu.install(frame, at), Err(InstallError::Split));
    assert_eq!(present(&mmu, at), 0);
    mmu.read_frame(frame, &mut |bytes| {
        assert!(bytes.iter().all(|&byte| byte == 9));
    });
    mmu.renew(hole).unwrap();
    mmu.open(hole).unwrap();
    assert!(mmu.install(frame, at).is_ok());
}

/// Covers memory that was made read-only: it could not be moved and filled the budget permanently, and a program that
/// protected more than the budget and read it never ended. Now such memory is taken out by a copy. A folio across a
/// border is not: the core splits it.
#[test]
fn a_folio_that_is_not_writable_leaves_and_one_across_a_border_stays() {
    if !usable(Delivery::Handler, TakeOutMethod::Move) {
        return;
    }
    let tiny = Tiny::new(Delivery::Handler, TakeOutMethod::Move, 1, 2);
    let protect = |len: usize, protection| {
        let at = tiny.mmu.addr_of(PageIndex(0)).cast();
        // SAFETY: the pages are in the arena, and only this thread uses them.
        assert_eq!(unsafe { libc::mprotect(at, len, protection) }, 0);
    };
    let (closed, open) = (libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE);
    tiny.counter(0, 0).store(42, Relaxed);
    for protection in [libc::PROT_READ, closed] {
        tiny.counter(0, 3 * 512).store(7, Relaxed);
        tiny.settle(0);
        protect(4 * 4096, protection);
        assert!(tiny.evict(0));
        assert_eq!(present(&tiny.mmu, tiny.range(0)), 0);
        tiny.mmu.read_frame(tiny.frame(0), &mut |bytes| {
            assert_eq!((bytes[0], bytes[3 * 4096]), (42, 7));
        });
        protect(4 * 4096, open);
        assert_eq!(tiny.counter(0, 0).load(Relaxed), 42);
        // Nothing of the write protection is left.
        tiny.counter(0, 3 * 512).store(8, Relaxed);
        tiny.settle(0);
        protect(4096, protection);
        assert_eq!(
            tiny.mmu.take_out(tiny.range(0), tiny.frame(0)),
            Err(TakeOutError::Immovable)
        );
        assert_eq!(present(&tiny.mmu, tiny.range(0)), 4);
        protect(4096, open);
        assert_eq!(tiny.counter(0, 0).load(Relaxed), 42);
    }
    tiny.end();
}

/// Checks that the copy loses no write if the program opens the memory at the wrong moment. A thread makes the page
/// writable, counts, and closes it again, while another continuously takes it out.
#[test]
fn a_page_that_is_opened_while_it_is_taken_out_loses_no_write() {
    if !usable(Delivery::Handler, TakeOutMethod::Move) {
        return;
    }
    const ROUNDS: u64 = 3000;
    let tiny = Tiny::new(Delivery::Handler, TakeOutMethod::Move, 1, 0);
    tiny.counter(0, 0).store(0, Relaxed);
    let writing = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = tiny.mmu.addr_of(PageIndex(0)).cast();
            for round in 0..ROUNDS {
                // SAFETY: the page is in the arena, and only this thread uses it.
                unsafe { libc::mprotect(at, 4096, libc::PROT_READ | libc::PROT_WRITE) };
                assert_eq!(tiny.counter(0, 0).fetch_add(1, Relaxed), round);
                let protection = [libc::PROT_READ, libc::PROT_NONE][round as usize % 2];
                // SAFETY: the page is in the arena, and only this thread uses it.
                unsafe { libc::mprotect(at, 4096, protection) };
            }
            writing.store(false, Relaxed);
        });
        while writing.load(Relaxed) {
            tiny.evict(0);
        }
    });
    let at = tiny.mmu.addr_of(PageIndex(0)).cast();
    // SAFETY: the page is in the arena, and only this thread uses it.
    unsafe { libc::mprotect(at, 4096, libc::PROT_READ) };
    assert_eq!(tiny.counter(0, 0).load(Relaxed), ROUNDS);
    tiny.end();
}

#[test]
fn a_hole_in_a_folio_is_taken_out_as_zeros() {
    each_kind(|delivery, method| {
        let tiny = Tiny::new(delivery, method, 1, 2);
        tiny.counter(0, 0).store(1, Relaxed);
        tiny.counter(0, 3 * 512).store(3, Relaxed);
        tiny.settle(0);
        tiny.mmu.zap(&[PageRange::new(PageIndex(1), PageCount(2))]);
        assert!(tiny.evict(0));
        tiny.mmu.read_frame(tiny.frame(0), &mut |bytes| {
            assert_eq!((bytes[0], bytes[3 * 4096]), (1, 3));
            assert!(bytes[4096..3 * 4096].iter().all(|&byte| byte == 0));
        });
        assert_eq!(tiny.counter(0, 3 * 512).load(Relaxed), 3);
        tiny.end();
    });
}

/// Checks pages that are spliced into a pipe, which refers to each until it is read: the kernel's form of "in use for
/// I/O". Only a real pin makes MOVE refuse; a plain reference moves with the page.
#[test]
fn pages_that_a_pipe_holds_move_or_are_busy_but_never_change() {
    if !usable(Delivery::Handler, TakeOutMethod::Auto) {
        return;
    }
    let tiny = Tiny::new(Delivery::Handler, TakeOutMethod::Auto, 1, 2);
    tiny.counter(0, 0).store(77, Relaxed);
    tiny.settle(0);
    let mut pipe = [0; 2];
    // SAFETY: the array has room for both ends.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let part = libc::iovec {
        iov_base: tiny.mmu.addr_of(PageIndex(0)).cast(),
        iov_len: 4096,
    };
    // SAFETY: the page is mapped, and the vector outlives the call.
    assert_eq!(unsafe { libc::vmsplice(pipe[1], &part, 1, 0) }, 4096);
    let result = tiny.mmu.take_out(tiny.range(0), tiny.frame(0));
    match result {
        Ok(()) => tiny.states.lock().unwrap()[0] = State::Out,
        Err(error) => assert_eq!(error, TakeOutError::Busy),
    }
    let mut seen = [0u64; 512];
    // SAFETY: the buffer has 4096 bytes.
    let got = unsafe { libc::read(pipe[0], seen.as_mut_ptr().cast(), 4096) };
    assert_eq!(got, 4096);
    assert_eq!(seen[0], 77);
    assert_eq!(tiny.counter(0, 0).load(Relaxed), 77);
    for end in pipe {
        // SAFETY: the descriptors were made above.
        unsafe { libc::close(end) };
    }
    tiny.end();
}

#[test]
fn system_calls_reach_absent_memory_with_a_handler() {
    for method in [TakeOutMethod::Move, TakeOutMethod::Copy] {
        if !usable(Delivery::Handler, method) {
            continue;
        }
        let tiny = Tiny::new(Delivery::Handler, method, 1, 0);
        let mut pipe = [0; 2];
        // SAFETY: the array has room for both ends.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        tiny.counter(0, 3).store(0x1234, Relaxed);
        assert!(tiny.evict(0));
        let (from, to) = (
            tiny.mmu.addr_of(PageIndex(0)),
            tiny.mmu.addr_of(PageIndex(7)),
        );
        // SAFETY: both pages are in the arena; the handler maps them when the kernel touches them.
        unsafe {
            assert_eq!(libc::write(pipe[1], from.cast(), 4096), 4096);
            assert_eq!(libc::read(pipe[0], to.cast(), 4096), 4096);
        }
        assert_eq!(tiny.counter(7, 3).load(Relaxed), 0x1234);
        for end in pipe {
            // SAFETY: the descriptors were made above.
            unsafe { libc::close(end) };
        }
        tiny.end();
    }
}

#[test]
fn a_handler_stops_and_starts_again() {
    if !usable(Delivery::Handler, TakeOutMethod::Auto) {
        return;
    }
    let tiny = Tiny::new(Delivery::Handler, TakeOutMethod::Auto, 1, 0);
    struct Again(std::sync::Arc<Tiny>);
    impl millpond_mmu::FaultSink for Again {
        fn fault(&self, page: PageIndex) -> millpond_mmu::Resolution {
            self.0.resolve(page)
        }
    }
    for round in 0..5 {
        tiny.counter(round, 0).store(1, Relaxed);
        let again = std::sync::Arc::new(Again(tiny.clone()));
        assert!(matches!(
            tiny.mmu.attach(again.clone()),
            Err(MmuError::AlreadyAttached)
        ));
        tiny.mmu.detach();
        tiny.mmu.detach();
        tiny.mmu.attach(again).unwrap();
    }
    tiny.end();
}

#[test]
fn bad_input_is_answered_with_the_value() {
    for pages in [0, 100, u32::MAX] {
        let mut bad = config(Delivery::InThread, TakeOutMethod::Auto, 1);
        bad.arena = PageCount(pages);
        let error = RealMemory::new(bad).err().unwrap();
        assert!(
            error.to_string().contains(&format!("{pages} pages")),
            "{error}"
        );
    }
    let mmu = RealMemory::new(config(Delivery::InThread, TakeOutMethod::Auto, 1)).unwrap();
    for range in [
        PageRange::new(PageIndex(500), PageCount(13)),
        PageRange::new(PageIndex(u32::MAX), PageCount(2)),
    ] {
        assert!(matches!(
            mmu.open(range),
            Err(MmuError::OutsideArena { .. })
        ));
        assert!(matches!(
            mmu.close(range),
            Err(MmuError::OutsideArena { .. })
        ));
        assert!(matches!(
            mmu.renew(range),
            Err(MmuError::OutsideArena { .. })
        ));
    }
    let base = mmu.base() as usize;
    assert_eq!(base % (2 << 20), 0);
    assert_eq!(mmu.page_of(base + 4097), Some(PageIndex(1)));
    assert_eq!(
        (mmu.page_of(base - 1), mmu.page_of(base + mmu.len())),
        (None, None)
    );
}

#[test]
fn capabilities_say_what_is_missing_and_what_it_costs() {
    let found = capabilities();
    assert!(found.list.len() >= 8);
    for one in &found.list {
        assert!(
            !one.detail.is_empty() && !one.cost_if_missing.is_empty(),
            "{one:?}"
        );
    }
    assert_eq!(
        found.has("UFFDIO_MOVE"),
        RealMemory::new(config(Delivery::InThread, TakeOutMethod::Move, 1)).is_ok()
    );
}

/// Checks contents that are brought into a hole of the pool, through a buffer or the frame. Either way the program
/// sees them whole, and the result says what happened to the frame.
#[test]
fn contents_brought_in_are_mapped_and_the_frame_is_as_reported() {
    each_kind(|delivery, method| {
        let mmu = RealMemory::new(config(delivery, method, 1)).unwrap();
        mmu.open(PageRange::new(PageIndex(0), PageCount(512)))
            .unwrap();
        for (order, fresh) in [0, 2, 4, 5, 9].map(|o| [(o, true), (o, false)]).concat() {
            let order = Order::new(order).unwrap();
            let at = PageRange::new(PageIndex(0), order.pages());
            let frame = Frame::new(order, 1);
            if !fresh {
                mmu.fill(frame, true, &mut |_| Ok(())).unwrap();
            }
            let failed = mmu.fill_and_install(frame, fresh, at, &mut |_| Err(LoadError::Corrupt));
            assert_eq!(
                failed.outcome,
                Err(FillOrInstallError::Fill(LoadError::Corrupt)),
                "{order:?}"
            );
            assert_eq!(present(&mmu, at), 0);
            let mut filled = 0;
            let brought =
                mmu.fill_and_install(frame, fresh && !failed.populated, at, &mut |bytes| {
                    filled = bytes.len();
                    for (page, bytes) in (1..).zip(bytes.chunks_mut(4096)) {
                        bytes.fill(page as u8);
                    }
                    Ok(())
                });
            assert_eq!((brought.outcome, filled), (Ok(()), order.bytes()));
            for (page, byte) in at.pages().zip(1..) {
                // SAFETY: the page was just mapped, and nobody else uses it.
                let last = unsafe { mmu.addr_of(page).add(4095).read() };
                assert_eq!(last, byte as u8, "{order:?}");
            }
            if brought.populated {
                mmu.free_frames(&[frame]);
            }
            // The frame must be a hole again, or this would fail.
            mmu.take_out(at, frame).unwrap();
            mmu.free_frames(&[frame]);
        }
    });
}

#[test]
fn contents_that_cannot_be_installed_whole_stay_in_their_frame() {
    let mmu = RealMemory::new(config(Delivery::InThread, TakeOutMethod::Auto, 1)).unwrap();
    let order = Order::new(2).unwrap();
    let at = PageRange::new(PageIndex(4), order.pages());
    mmu.open(PageRange::new(PageIndex(0), PageCount(512)))
        .unwrap();
    let second = mmu.addr_of(PageIndex(6)).cast();
    let frame = Frame::new(order, 0);
    let nines = &mut |bytes: &mut [u8]| {
        bytes.fill(9);
        Ok(())
    };
    // SAFETY: the page is in the arena and nobody uses it.
    assert_eq!(unsafe { libc::mprotect(second, 4096, libc::PROT_READ) }, 0);
    let brought = mmu.fill_and_install(frame, true, at, nines);
    assert_eq!((brought.outcome, present(&mmu, at)), (Ok(()), 4));
    if brought.populated {
        mmu.free_frames(&[frame]);
    }
    mmu.zap(&[at]);
    // SAFETY: the page is in the arena and nobody uses it; `renew` fills the hole again.
    assert_eq!(unsafe { libc::munmap(second, 4096) }, 0);
    let brought = mmu.fill_and_install(frame, true, at, nines);
    let split = Err(FillOrInstallError::Install(InstallError::Split));
    assert_eq!((brought.outcome, brought.populated), (split, true));
    assert_eq!(present(&mmu, at), 0);
    mmu.read_frame(frame, &mut |bytes| {
        assert!(bytes.iter().all(|&byte| byte == 9));
    });
    let hole = PageRange::new(PageIndex(6), PageCount(1));
    mmu.renew(hole).unwrap();
}

#[test]
fn an_unwatched_range_reports_no_faults_until_it_is_renewed() {
    each_kind(|delivery, method| {
        let tiny = Tiny::new(delivery, method, 1, 4);
        let all = PageRange::new(PageIndex(0), PageCount(512));
        tiny.counter(0, 0).store(7, Relaxed);
        tiny.settle(0);
        tiny.mmu.unwatch(all).unwrap();
        tiny.mmu.zap(&[all]);
        assert_eq!(present(&tiny.mmu, all), 0);
        if tiny.mmu.takes_out_by_move() {
            assert_eq!(tiny.counter(3, 0).load(Relaxed), 0);
            assert_eq!(tiny.faults.load(Relaxed), 1, "{delivery:?}: nobody is told");
        }
        tiny.mmu.renew(all).unwrap();
        tiny.mmu.open(all).unwrap();
        tiny.counter(5, 0).store(9, Relaxed);
        tiny.settle(5);
        assert_eq!(tiny.faults.load(Relaxed), 2, "{delivery:?} {method:?}");
        let beyond = PageRange::new(PageIndex(512), PageCount(1));
        let refused = tiny.mmu.unwatch(beyond);
        assert!(matches!(refused, Err(MmuError::OutsideArena { .. })));
        tiny.end();
    });
}

#[test]
fn pages_before_a_moved_range_are_back_afterwards() {
    each_kind(|delivery, method| {
        let tiny = Tiny::new(delivery, method, 2, 0);
        // Pages 0 and 4 stay, page 5 goes to the next leaf.
        for page in [0, 4, 5] {
            tiny.counter(page, 0).store(page as u64 + 1, Relaxed);
            tiny.settle(page);
        }
        let range = |start| PageRange::new(PageIndex(start), PageCount(7));
        // SAFETY: there is no other thread, and the second leaf is empty.
        unsafe {
            tiny.mmu
                .hand_over(range(5), range(512 + 5), (PageCount(5), PageCount(0)))
        }
        .unwrap();
        let there = |page| present(&tiny.mmu, PageRange::new(PageIndex(page), PageCount(1)));
        let pages = [0, 4, 5, 512, 512 + 4, 512 + 5].map(there);
        assert_eq!(pages, [1, 1, 0, 0, 0, 1], "{delivery:?} {method:?}");
        let held = [0, 4].map(|page| tiny.counter(page, 0).load(Relaxed));
        assert_eq!(held, [1, 5]);
        // All pages are watched as before.
        let before = tiny.faults.load(Relaxed);
        for page in [1, 6, 512, 512 + 6] {
            assert_eq!(tiny.counter(page, 0).load(Relaxed), 0);
            tiny.settle(page);
        }
        assert_eq!(tiny.faults.load(Relaxed), before + 4);
        tiny.end();
    });
}
