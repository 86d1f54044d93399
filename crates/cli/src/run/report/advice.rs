//! What to do next, in one line: the first applicable advice, in the order of how much it would change.
//!
//! More memory could save the faults that waited for the store or for room. If their time is short, changing the budget
//! is not worth it, however many faults there were. The time is the sum over all threads and is compared with the time
//! of the run, so it is overestimated if many threads fault. It excludes the time in which a fault is handed to a
//! thread of Millpond's. Both errors are small compared with the uncertainty of what another run does.

use super::{ProcessReport, Report, number};
use crate::numbers::{Thousands, Time};
use crate::size::Human;
use millpond_board::Field;

/// Bytes in a page.
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
/// The least budget.
const LEAST: u64 = 16 * MIB;
/// Faults that take less than this share of the run's time are not worth a change.
const LITTLE: f64 = 0.03;
/// The share of major faults that a larger budget should save.
const HALF: f64 = 0.5;
/// A peak that exceeds the budget by no more than this counts as within it: memory in flight is not known to the byte.
const NEAR: u64 = MIB;

/// The line for a report.
#[must_use]
pub fn next(report: &Report) -> String {
    format!("{}{}", first(report), told(report))
}

/// The addition for a program that failed and was told its budget as the machine's memory: some programs end when they
/// have used that.
fn told(report: &Report) -> String {
    if report.exit_code == Some(0) || report.sum(Field::AskedMemory) == 0 {
        return String::new();
    }
    format!(
        ". The program asked how much memory there is, and was told {}: if it has ended for want of more, --tell machine \
         lets the kernel answer",
        Human(report.budget_bytes)
    )
}

/// The first applicable advice.
fn first(report: &Report) -> String {
    if report.processes.is_empty() {
        return "start the program itself, without what clears its environment".to_owned();
    }
    if report.sum(Field::StoreFailed) > 0 {
        return "give the store more room: --store file:DIRECTORY on a disk with space".to_owned();
    }
    if report.own_bytes > report.budget_bytes / 2 {
        let ram = mebibytes(2 * report.own_bytes);
        let wanted = format!("--ram {ram}M leaves room beside the program's own code and data");
        return within_room(report, 2 * report.own_bytes, wanted);
    }
    if report.sum(Field::MajorFaults) == 0 {
        let is_over = report.over_budget_bytes > NEAR.max(report.budget_bytes / 100);
        return if is_over { holds(report) } else { fits(report) };
    }
    let waited = [Field::LoadTime, Field::WaitedTime, Field::ReclaimedTime];
    let waited = waited.map(|field| report.sum(field)).iter().sum::<u64>();
    if (waited as f64) < LITTLE * report.wall_ns as f64 {
        return format!(
            "nothing: the budget cost {} of {}",
            Time(waited),
            Time(report.wall_ns)
        );
    }
    larger(report)
}

/// The peak was over the budget, and nothing had gone to the store: the memory in use could not be evicted.
fn holds(report: &Report) -> String {
    let peak = report.peak_resident_bytes;
    let ram = mebibytes(peak);
    let wanted = format!("--ram {ram}M would have held the peak: nothing of it could leave RAM");
    within_room(report, peak, wanted)
}

/// The advice to use a budget of `bytes`, or what applies instead if there is no such room.
fn within_room(report: &Report, bytes: u64, wanted: String) -> String {
    match report.room_bytes {
        Some(room) if !report.has_room(bytes) => format!(
            "a budget of {}M would be wanted, and all that there is here are {}M: give the container or the machine \
             more, or the program less to do",
            mebibytes(bytes),
            room / MIB
        ),
        _ => wanted,
    }
}

/// All memory stayed in RAM.
fn fits(report: &Report) -> String {
    // A tenth more, as no two runs are the same.
    let enough = (report.peak_resident_bytes + report.peak_resident_bytes / 10).max(LEAST);
    if enough + enough / 4 < report.budget_bytes {
        let ram = mebibytes(enough);
        format!("nothing: all memory fit into the budget, and --ram {ram}M would have held it")
    } else {
        "nothing: all memory fit into the budget".to_owned()
    }
}

/// The budget that would have halved the major faults, by the curve.
fn larger(report: &Report) -> String {
    let curve = &report.plot;
    let faults = Thousands(curve.faults());
    let Some(most) = curve.steps().last().copied() else {
        return format!("try twice the budget: {faults} major faults are too few to say more");
    };
    let guess = if curve.is_guess() {
        ", by a guess from few of them"
    } else {
        ""
    };
    let budget = |pages: u64| mebibytes(report.budget_bytes + pages * PAGE);
    if most.avoided < HALF {
        let known = report.budget_bytes + most.pages * PAGE;
        let saved = match most.avoided * 100.0 {
            share if share < 0.5 => "none".to_owned(),
            share => format!("{share:.0} %"),
        };
        let wanted = format!(
            "--ram {}M would have saved {saved} of the {faults} major faults{guess}, and the curve goes no further{}",
            budget(most.pages),
            all(report, known),
        );
        return within_room(report, known, wanted);
    }
    // The least number of pages that saves this much: the curve never falls.
    let (mut less, mut enough) = (0, most.pages);
    while less + 1 < enough {
        let middle = less + (enough - less) / 2;
        if curve.avoided(middle) < HALF {
            less = middle;
        } else {
            enough = middle;
        }
    }
    let wanted = format!(
        "--ram {}M would have halved the {faults} major faults{guess}",
        budget(enough)
    );
    within_room(report, report.budget_bytes + enough * PAGE, wanted)
}

/// The budget that would have held everything, if there is such room and it is beyond the range of the curve: programs
/// that use their memory in random order gain little until everything fits.
fn all(report: &Report, known: u64) -> String {
    let of_one = |process: &ProcessReport| {
        let get = |field| number(&process.fields, field);
        let held = get(Field::PeakRss) + get(Field::StoreLogicalPeak);
        held.min(get(Field::Touched) + get(Field::PeakOwn))
    };
    let all = report.processes.iter().map(of_one).max().unwrap_or(0);
    // A tenth more, as no two runs are the same.
    let all = all + all / 10;
    match all > known && report.has_room(all) {
        true => format!("; {}M would have held all of it", mebibytes(all)),
        false => String::new(),
    }
}

/// Whole MiB, rounded up.
fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(MIB)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{report, slots};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn next(values: &[(Field, u64)]) -> String {
        report("auto", "2", 0, &slots(&[values])).next
    }

    /// The test's runs take 2.5 s under 64 MiB, and the kernel has seen 61 MiB.
    fn thrashing(counts: [u64; 5]) -> Vec<(Field, u64)> {
        let mut values = vec![
            (Field::MajorFaults, 8000),
            (Field::LoadTime, SECOND),
            (Field::NrLimit, (48 << 20) / PAGE),
        ];
        values.extend(crate::curve::FIELDS.into_iter().zip(counts));
        values
    }

    #[test]
    fn a_budget_that_halves_the_faults_is_named() {
        let line = next(&thrashing([800, 600, 200, 100, 0]));
        // A quarter saves 25 %, a half saves 75 %: half of them is half way between 12 and 24 MiB.
        assert_eq!(line, "--ram 82M would have halved the 8,000 major faults");
        let line = next(&thrashing([80, 60, 20, 10, 0]));
        assert!(line.ends_with(", by a guess from few of them"), "{line}");
    }

    #[test]
    fn advice_says_when_no_step_of_the_curve_helps() {
        let line = next(&thrashing([800, 800, 800, 700, 600]));
        let wanted = "--ram 160M would have saved 25 % of the 8,000 major faults, and the curve goes no further";
        assert_eq!(line, wanted);
        let line = next(&thrashing([800, 800, 800, 800, 799]));
        assert!(
            line.contains("M would have saved none of the 8,000 major"),
            "{line}"
        );
        let mut values = thrashing([800, 800, 800, 700, 600]);
        let held = [
            (Field::PeakRss, 64),
            (Field::StoreLogicalPeak, 136),
            (Field::Touched, 400),
            (Field::PeakOwn, 4),
        ];
        values.extend(held.map(|(field, mib)| (field, mib << 20)));
        assert_eq!(
            next(&values),
            format!("{wanted}; 220M would have held all of it")
        );
        let line = next(&thrashing([0; 5]));
        assert!(line.starts_with("try twice the budget: 8,000"), "{line}");
    }

    #[test]
    fn a_budget_that_costs_little_needs_no_change() {
        let values = [(Field::MajorFaults, 90), (Field::LoadTime, SECOND / 100)];
        assert_eq!(next(&values), "nothing: the budget cost 10.0 ms of 2.50 s");
        assert_eq!(next(&[]), "nothing: all memory fit into the budget");
    }

    #[test]
    fn a_much_too_large_budget_is_reported() {
        let mut large = report("auto", "2", 0, &slots(&[&[]]));
        large.budget_bytes = 1 << 30;
        let line = super::next(&large);
        assert!(line.ends_with("--ram 68M would have held it"), "{line}");
    }

    #[test]
    fn advice_never_exceeds_available_memory() {
        let mut small = report(
            "auto",
            "2",
            0,
            &slots(&[&thrashing([800, 600, 200, 100, 0])]),
        );
        small.room_bytes = Some(70 << 20);
        let line = super::next(&small);
        let wanted = "a budget of 82M would be wanted, and all that there is here are 70M";
        assert!(line.starts_with(wanted), "{line}");
        small.room_bytes = Some(82 << 20);
        assert!(super::next(&small).starts_with("--ram 82M"));
    }

    /// Covers advice that said all memory had fit, below a line that said by how much it had not.
    #[test]
    fn a_peak_over_the_budget_did_not_fit() {
        let line = next(&[(Field::PeakRss, 92 << 20), (Field::PeakOwn, 70 << 20)]);
        let wanted = "--ram 92M would have held the peak: nothing of it could leave RAM";
        assert_eq!(line, wanted);
    }

    #[test]
    fn troubles_come_first() {
        let mut values = thrashing([800, 600, 200, 100, 0]);
        values.push((Field::Rss, 60 << 20));
        assert!(next(&values).starts_with("--ram 120M leaves room"));
        values.push((Field::StoreFailed, 1));
        assert!(next(&values).starts_with("give the store more room"));
        let none = report("auto", "2", 0, &[]).next;
        assert!(none.starts_with("start the program itself"), "{none}");
    }
}
