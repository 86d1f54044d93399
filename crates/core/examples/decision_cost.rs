//! The cost of a decision of the core: nanoseconds for a fault and for its completion, with reclaim running.
//!
//! `cargo run --release -p millpond-core --example decision_cost`

use millpond_core::{
    Command, Commands, Config, Core, Event, Kind, Order, Outcome, PageCount, PageIndex, PageRange,
    Reclaimer, Reply,
};
use std::time::{Duration, Instant};

/// The step is odd, so that each folio has its turn, and far from any small step.
const SCATTER: u32 = 0x9e37_79b1;

fn main() {
    for order in [0, 4] {
        let order = Order::new(order).expect("an order");
        let arena = PageCount(1 << 18);
        let mut core =
            Core::new(Config::new(arena, PageCount(1 << 16))).expect("a valid configuration");
        let mut out = Commands::new();
        core.handle(
            Event::CreateRegion {
                pages: arena,
                order: order.into(),
                kind: Kind::Anonymous,
            },
            &mut out,
        );
        let (mut deciding, mut completing, mut faults) = (Duration::ZERO, Duration::ZERO, 0_u32);
        let folios = arena.0 >> order.get();
        for n in 0..4 * folios {
            // The pages come in no order that continues a run, which would bring in more than one folio.
            let page = PageIndex((n.wrapping_mul(SCATTER) % folios) << order.get());
            loop {
                let before = Instant::now();
                let fault = Event::Fault {
                    page,
                    max_order: Order::MAX,
                    within: PageRange::ALL,
                };
                let reply = core.handle(fault, &mut out);
                deciding += before.elapsed();
                faults += 1;
                completing += settle(&mut core, &mut out);
                if let Reply::Reclaim { pages } = reply {
                    core.handle(
                        Event::Reclaim {
                            pages,
                            by: Reclaimer::Direct,
                        },
                        &mut out,
                    );
                    settle(&mut core, &mut out);
                } else {
                    break;
                }
            }
        }
        let each = |sum: Duration| sum.as_nanos() / u128::from(faults);
        println!(
            "order {}: fault {} ns, completions {} ns",
            order.get(),
            each(deciding),
            each(completing)
        );
    }
}

/// Answers all commands as in a world where everything works. Returns how long the core took for that.
fn settle(core: &mut Core, out: &mut Commands) -> Duration {
    let mut took = Duration::ZERO;
    while !out.is_empty() {
        let commands: Vec<Command> = out.iter().collect();
        out.clear();
        let before = Instant::now();
        for command in commands {
            let event = match command {
                Command::Zero { folio, .. }
                | Command::Load { folio, .. }
                | Command::Fold { folio, .. }
                | Command::Copy { folio, .. }
                | Command::Read { folio, .. }
                | Command::Rescue { folio, .. } => Event::Completed {
                    folio,
                    outcome: Outcome::Installed { frame_kept: false },
                },
                Command::TakeOutLeaf { .. } => unreachable!("nobody has allowed it"),
                Command::TakeOut { folio, .. } => Event::Completed {
                    folio,
                    outcome: Outcome::TakenOut,
                },
                Command::Save { folio, .. } | Command::WriteBack { folio, .. } => {
                    Event::Completed {
                        folio,
                        outcome: Outcome::Stored,
                    }
                }
                Command::ZeroInPlace { folio, .. } => Event::Completed {
                    folio,
                    outcome: Outcome::Zeroed,
                },
                Command::Look { folio, .. } => Event::Completed {
                    folio,
                    outcome: Outcome::Blank,
                },
                Command::TakeOutIfBlank { folio, .. } => Event::Completed {
                    folio,
                    outcome: Outcome::TakenOutBlank,
                },
                Command::Zap { folio, .. } => Event::Completed {
                    folio,
                    outcome: Outcome::Zapped,
                },
                Command::FreeFrame { frame } => Event::FrameFreed { frame },
                Command::Release { slot } => Event::SlotReleased { slot },
                Command::Wake { .. } | Command::Poison { .. } => continue,
            };
            core.handle(event, out);
        }
        took += before.elapsed();
    }
    took
}
