//! The report of a run, for people and for programs, from the board's slots and from outside observation.
//!
//! Counts are sums over all processes that claimed a slot. Peaks and latencies are those of one process, because the
//! peaks of several processes do not coincide and percentiles cannot be added: the peak is the highest one, and the
//! latencies are those of the process with the most faults. The JSON form also lists each process, so that nothing has
//! to be guessed.

mod advice;
mod latency;
mod page;
mod text;

use crate::curve;
use crate::run::beside::Beside;
use crate::run::history::{Recorder, Series};
use crate::run::killed::{self, Killed};
use crate::run::supervise::Outcome;
use crate::run::unmanaged::Unmanaged;
use crate::ways::WAYS;
use latency::Latencies;
use millpond::OrderPolicy;
use millpond_board::{Field, SlotReading, State};
use millpond_replay::curve::Curve;
use serde::Serialize;
use serde_json::{Map, Value};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

/// Bytes in a page.
const PAGE: u64 = 4096;

/// Counters that add up over processes. Lazily freed memory is a gauge: its value is from the end of each process.
const SUMS: [Field; 39] = [
    Field::AskedMemory,
    Field::Touched,
    Field::MinorFaults,
    Field::MajorFaults,
    Field::BytesOut,
    Field::BytesIn,
    Field::BytesOutFree,
    Field::Rescued,
    Field::StoreLogicalPeak,
    Field::StoreStoredPeak,
    Field::RemotePeak,
    Field::RemoteLoads,
    Field::RemoteLost,
    Field::Reclaim,
    Field::Recompress,
    Field::RecompressBytes,
    Field::RecompressSaved,
    Field::StoreFailed,
    Field::LoadFailed,
    Field::OverLimit,
    Field::OverLimitBytes,
    Field::DirectReclaims,
    Field::PgScanKswapd,
    Field::PgScanDirect,
    Field::PgStealKswapd,
    Field::PgStealDirect,
    Field::LazyFree,
    Field::PgLazyFree,
    Field::PgLazyFreed,
    Field::PgLazyFreeReused,
    Field::FreeBatches,
    Field::FreeByWorkers,
    Field::FreeBytes,
    Field::FreeTime,
    Field::FirstTouchTime,
    Field::RescueTime,
    Field::LoadTime,
    Field::WaitedTime,
    Field::ReclaimedTime,
];

/// The settings of freeing, which are identical in all processes of a run.
const FREE_TUNING: [Field; 3] = [Field::FreeWorkers, Field::FreeThreshold, Field::FreeChunk];

/// The budget and the options of a run.
#[derive(Debug)]
pub struct Asked {
    /// The program as it was named.
    pub program: String,
    /// The budget.
    pub ram: u64,
    /// The store.
    pub store: String,
    /// Orders of the folios.
    pub order: OrderPolicy,
}

/// The report of one `millpond run`. Field names are those of the JSON form.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `millpond-run/1`. Later versions only add fields.
    schema: &'static str,
    /// The program as it was named.
    program: String,
    /// The program's exit status, if it exited.
    exit_code: Option<i32>,
    /// The signal that ended the program.
    signal: Option<i32>,
    /// The time from start to end.
    wall_ns: u64,
    /// Processor time of the program and the children for which it waited.
    cpu_ns: u64,
    /// The budget.
    budget_bytes: u64,
    /// Highest resident set of one process: the higher of the kernel's own mark for the program and of the figures that
    /// processes published. Samples are excluded: a look at a process counts pages twice if they move during the look.
    peak_resident_bytes: u64,
    /// The bytes by which the peak exceeds the budget.
    over_budget_bytes: u64,
    /// The memory that kept the peak over the budget, as far as is known; null if it is not over.
    over_budget_held_by: Option<&'static str>,
    /// Code, static variables, stacks and mapped files of the process with the most of them: they stay in RAM.
    own_bytes: u64,
    /// The memory of the control group or of the machine, whichever is less, if it is known.
    room_bytes: Option<u64>,
    /// The share of `own_bytes` that is pages of files.
    own_files_bytes: u64,
    /// The share of `own_bytes` that is shared memory.
    own_shared_bytes: u64,
    /// The rest of the budget, available for memory that can be taken out.
    own_left_bytes: u64,
    /// Highest `Rss` of the program's first process in `/proc/PID/smaps_rollup`, looked at ten times a
    /// second, or less often if a look takes more than a millisecond.
    sampled_rss_bytes: u64,
    /// `ru_maxrss` of the program and of the children for which it waited, including children without the library.
    kernel_max_rss_bytes: u64,
    /// The requested store.
    store: String,
    /// Orders of the folios, as `--order` takes them: `2`, `adaptive`, `adaptive:4`.
    order: String,
    /// Bytes in the store, divided by the bytes that they took there, at its fullest moment.
    compression_ratio: Option<f64>,
    /// Latencies of the process with the most faults.
    fault_p50_ns: u64,
    fault_p99_ns: u64,
    fault_max_ns: u64,
    /// Latencies of that process for each way that its faults went.
    #[serde(flatten)]
    ways: Map<String, Value>,
    /// The number of workers that give freed memory back, the size from which they are used, and the size of one piece.
    #[serde(flatten)]
    free_tuning: Map<String, Value>,
    /// Sums over all processes.
    #[serde(flatten)]
    sums: Map<String, Value>,
    /// The time that all faults of all threads took, in all processes, from when Millpond received them.
    fault_ns: u64,
    /// How many faults took how long; see [`Latencies`].
    latency: Latencies,
    /// What to do next, as a line.
    next: String,
    /// The length of the steps in which `processes` have points in `series`; only for a report in a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    series_step_ns: Option<u64>,
    /// The major faults that more memory would have saved; see [`curve::to_json`].
    curve: Value,
    #[serde(skip)]
    plot: Curve,
    /// Programs that were started below the run and did not load the library, the largest first. Programs that ended
    /// within half a second are not known.
    unmanaged: Vec<Unmanaged>,
    /// Processes that a signal ended, except for the program itself: they are gone without having published their end.
    killed: Vec<Killed>,
    /// The number of processes that the kernel killed for lack of memory during the run, in the run's control groups.
    oom_kills: u64,
    /// Every process that loaded the library; a process that executed another program has two entries.
    processes: Vec<ProcessReport>,
}

#[derive(Debug, Serialize)]
struct ProcessReport {
    pid: u32,
    name: String,
    state: &'static str,
    #[serde(skip)]
    became_another: bool,
    /// Index in this list of the process from which it was forked.
    parent: Option<usize>,
    /// The process was stopped while it published: the counters may mix two moments.
    torn: bool,
    #[serde(flatten)]
    fields: Map<String, Value>,
    latency: Latencies,
    /// What the process published over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<Series>,
}

impl Report {
    /// Assembles the report. `recorder` has observed the processes while they ran.
    #[must_use]
    pub fn new(
        asked: Asked,
        outcome: &Outcome,
        slots: &[SlotReading],
        recorder: Option<Recorder>,
    ) -> Self {
        let mut report = Self::of_the_end(asked, outcome, slots);
        if let Some(recorder) = recorder {
            report.series_step_ns = Some(recorder.step_ns());
            let histories = recorder.finish(slots);
            for (process, history) in report.processes.iter_mut().zip(histories) {
                process.series = Some(history);
            }
        }
        report.next = advice::next(&report);
        report
    }

    fn of_the_end(asked: Asked, outcome: &Outcome, slots: &[SlotReading]) -> Self {
        let Asked {
            program,
            ram,
            store,
            order,
        } = asked;
        let total = |field| slots.iter().map(|slot| slot.fields.get(field)).sum::<u64>();
        let faults = |slot: &SlotReading| {
            slot.fields.get(Field::MinorFaults) + slot.fields.get(Field::MajorFaults)
        };
        let busiest = slots.iter().max_by_key(|slot| faults(slot));
        let of_busiest = |field| busiest.map_or(0, |slot| slot.fields.get(field));
        let published = slots
            .iter()
            .map(|slot| slot.fields.get(Field::PeakRss))
            .max()
            .unwrap_or(0);
        let peak = published.max(outcome.kernel_max_rss);
        let beside = Beside::of(slots);
        let plot = curve::of(slots.iter());
        let stored = total(Field::StoreStoredPeak);
        let ratio = total(Field::StoreLogicalPeak) as f64 / stored as f64;
        Self {
            schema: "millpond-run/1",
            program,
            exit_code: outcome.status.code(),
            signal: outcome.status.signal(),
            wall_ns: nanos(outcome.wall),
            cpu_ns: nanos(outcome.cpu),
            budget_bytes: ram,
            peak_resident_bytes: peak,
            over_budget_bytes: peak.saturating_sub(ram),
            over_budget_held_by: (peak > ram).then(|| beside.held(slots, ram, peak, published)),
            own_bytes: beside.own,
            room_bytes: outcome.room,
            own_files_bytes: beside.files,
            own_shared_bytes: beside.shared,
            own_left_bytes: beside.left,
            sampled_rss_bytes: outcome.sampled_rss,
            kernel_max_rss_bytes: outcome.kernel_max_rss,
            store,
            order: order.to_string(),
            compression_ratio: (stored > 0).then_some(ratio),
            fault_p50_ns: of_busiest(Field::FaultP50),
            fault_p99_ns: of_busiest(Field::FaultP99),
            fault_max_ns: of_busiest(Field::FaultMax),
            ways: by_key(
                WAYS.into_iter()
                    .flat_map(|(_, [figures @ .., _time])| figures),
                of_busiest,
            ),
            free_tuning: by_key(FREE_TUNING, of_busiest),
            sums: by_key(SUMS, total),
            fault_ns: WAYS.iter().map(|&(_, [.., time])| total(time)).sum(),
            latency: Latencies::of(slots),
            next: String::new(),
            series_step_ns: None,
            curve: curve::to_json(&plot),
            plot,
            unmanaged: outcome.unmanaged.clone(),
            killed: killed::among(slots, outcome.pid),
            oom_kills: outcome.oom_kills,
            processes: slots.iter().map(ProcessReport::new).collect(),
        }
    }

    /// The machine-readable form: one JSON object and a line end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // The serialisation of a map of strings and numbers cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Whether there is room here for a budget of `bytes`, as far as is known.
    fn has_room(&self, bytes: u64) -> bool {
        self.room_bytes.is_none_or(|room| bytes <= room)
    }

    fn sum(&self, field: Field) -> u64 {
        debug_assert!(SUMS.contains(&field), "{field:?} is not summed up");
        number(&self.sums, field)
    }
}

impl ProcessReport {
    fn new(slot: &SlotReading) -> Self {
        let state = match slot.state {
            // The report is made when the program has ended. A process still recorded as running was killed, or was
            // left behind in the background.
            State::Running => "killed or running",
            State::Exited => "exited",
            State::Execed => "became another program",
            State::Failed => "stopped by millpond",
        };
        Self {
            pid: slot.pid,
            name: slot.name.clone(),
            state,
            became_another: slot.state == State::Execed,
            parent: slot.parent,
            torn: slot.torn,
            fields: by_key(Field::ALL, |field| slot.fields.get(field)),
            latency: Latencies::of(std::slice::from_ref(slot)),
            series: None,
        }
    }
}

/// The values of these fields, by their names.
fn by_key(
    fields: impl IntoIterator<Item = Field>,
    value: impl Fn(Field) -> u64,
) -> Map<String, Value> {
    let named = |field: Field| (field.key().to_owned(), value(field).into());
    fields.into_iter().map(named).collect()
}

fn number(of: &Map<String, Value>, field: Field) -> u64 {
    of.get(field.key()).and_then(Value::as_u64).unwrap_or(0)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use millpond_board::{Board, Fields};
    use std::process::ExitStatus;

    fn outcome(raw: i32) -> Outcome {
        Outcome {
            status: ExitStatus::from_raw(raw),
            wall: Duration::from_millis(2500),
            cpu: Duration::from_millis(2000),
            sampled_rss: 60 << 20,
            kernel_max_rss: 61 << 20,
            unmanaged: Vec::new(),
            pid: 1,
            oom_kills: 0,
            room: None,
        }
    }

    pub fn report(store: &str, order: &str, raw: i32, slots: &[SlotReading]) -> Report {
        let order = order.parse().unwrap();
        let outcome = outcome(raw);
        let asked = Asked {
            program: "work".into(),
            ram: 64 << 20,
            store: store.into(),
            order,
        };
        Report::new(asked, &outcome, slots, None)
    }

    pub fn slots(all: &[&[(Field, u64)]]) -> Vec<SlotReading> {
        let (board, _file) = Board::create("work").unwrap();
        for (pid, values) in (1..).zip(all) {
            let mut fields = Fields::default();
            for &(field, value) in *values {
                fields.set(field, value);
            }
            assert!(
                board
                    .claim(pid, "work")
                    .unwrap()
                    .publish(State::Exited, &fields)
            );
        }
        board.slots().collect()
    }

    #[test]
    fn counts_add_up_and_peaks_do_not() {
        let slots = slots(&[
            &[
                (Field::PeakRss, 63 << 20),
                (Field::MajorFaults, 7),
                (Field::PgScanDirect, 300),
                (Field::PgStealDirect, 100),
                (Field::FaultP50, 9),
                (Field::LoadCount, 7),
                (Field::LoadP50, 4000),
                (Field::LoadP99, 9100),
                (Field::FirstTouchCount, 3),
                (Field::FirstTouchP99, 5000),
                (Field::FirstTouchTime, 50_000_000),
                (Field::LoadTime, 500_000_000),
                (Field::LazyFree, 3 << 20),
                (Field::PgLazyFree, 1024),
                (Field::PgLazyFreed, 256),
                (Field::FreeWorkers, 1),
                (Field::FreeThreshold, 256 << 10),
                (Field::FreeChunk, 8 << 20),
                (Field::FreeBatches, 1000),
                (Field::FreeByWorkers, 900),
                (Field::FreeBytes, 6 << 30),
                (Field::FreeTime, 500_000_000),
            ],
            &[
                (Field::PeakRss, 20 << 20),
                (Field::MajorFaults, 1),
                (Field::PgScanKswapd, 100),
                (Field::PgStealKswapd, 100),
                (Field::FaultP50, 1_000_000),
                (Field::LoadTime, 250_000_000),
                (Field::LazyFree, 1 << 20),
                (Field::PgLazyFree, 512),
                (Field::PgLazyFreeReused, 128),
                (Field::FreeWorkers, 1),
                (Field::FreeBatches, 234),
                (Field::FreeBytes, 1 << 30),
            ],
        ]);
        let report = report("zram", "adaptive:4", 0, &slots);
        let json: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["peak_resident_bytes"], 63 << 20);
        assert_eq!(json["major_faults"], 8);
        assert_eq!(json["fault_p50_ns"], 9);
        assert_eq!(json["fault_load_count"], 7);
        assert_eq!(json["fault_load_p50_ns"], 4000);
        assert_eq!(json["fault_waited_max_ns"], 0);
        let line = "    99 % within   first touch 5.0 µs, load 9.1 µs\n";
        assert!(report.to_string().contains(line), "{report}");
        let line =
            "  time in faults  800.0 ms of all threads: first touch 50.0 ms, load 750.0 ms\n";
        assert!(report.to_string().contains(line), "{report}");
        assert_eq!(json["fault_ns"], 800_000_000);
        assert_eq!(json["fault_load_ns"], 750_000_000);
        assert_eq!(
            (&json["pgscan_direct"], &json["pgsteal_kswapd"]),
            (&300.into(), &100.into())
        );
        let line = "0 direct; freed 50 % of what it looked at\n";
        assert!(report.to_string().contains(line), "{report}");
        assert_eq!(json["compression_ratio"], Value::Null);
        assert_eq!(json["processes"][1]["major_faults"], 1);
        assert_eq!(json["exit_code"], 0);
        assert_eq!(json["order"], "adaptive:4");
        assert_eq!(json["lazyfree_bytes"], 4 << 20);
        assert_eq!(
            (&json["pglazyfree"], &json["pglazyfreed"]),
            (&1536.into(), &256.into())
        );
        assert_eq!(json["processes"][0]["lazyfree_bytes"], 3 << 20);
        let line = "lazily freed    6 MiB, 1 MiB of it dropped when memory was short; 4 MiB resident at the end";
        assert!(report.to_string().contains(line), "{report}");
        assert_eq!(
            [
                "free_workers",
                "free_threshold_pages",
                "free_chunk_bytes",
                "free_batches",
                "free_batches_by_workers",
                "free_bytes",
                "free_ns"
            ]
            .map(|name| json[name].as_u64().unwrap()),
            [1, 256 << 10, 8 << 20, 1234, 900, 7 << 30, 500_000_000]
        );
        let line = "given back      7 GiB in 500.0 ms, 1,234 batches, 900 by workers (1; from 1 GiB on, 8 MiB at once)\n";
        assert!(report.to_string().contains(line), "{report}");
        assert!(
            report.to_string().contains("order adaptive:4\n"),
            "{report}"
        );
    }

    #[test]
    fn the_text_stays_short_even_with_every_line() {
        let everything: Vec<_> = Field::ALL.iter().map(|&field| (field, 1 << 40)).collect();
        let report = report("file", "2", 9, &slots(&[&everything]));
        let text = report.to_string();
        let curve = text.lines().position(|line| line.contains("more memory"));
        assert!(curve.unwrap() <= 15, "{text}");
        assert_eq!(text.lines().count() - curve.unwrap(), 6, "{text}");
        assert!(
            text.lines().last().unwrap().starts_with("  next "),
            "{text}"
        );
        let mut told = report;
        told.unmanaged = vec![Unmanaged {
            pid: 8,
            name: "other".to_owned(),
            peak_resident_bytes: 1 << 20,
        }];
        assert!(told.to_string().lines().count() <= 24, "{told}");
        assert!(
            text.starts_with("millpond: work: killed by signal 9 after 2.50 s"),
            "{text}"
        );
    }

    /// Poly/ML ends with "Run out of store" when it has used the memory that it was told about, and the user could not
    /// know why.
    #[test]
    fn failed_program_that_was_told_its_budget_gets_a_remedy() {
        let asked = slots(&[&[(Field::AskedMemory, 2)]]);
        let text = |raw, slots: &[SlotReading]| report("zram", "2", raw, slots).to_string();
        let line = "was told 64 MiB: if it has ended for want of more, --tell machine";
        assert!(text(1 << 8, &asked).contains(line));
        assert!(text(9, &asked).contains(line));
        assert!(!text(0, &asked).contains("told"));
        assert!(!text(1 << 8, &slots(&[&[]])).contains("told"));
    }

    /// `rustc` under 64 MiB worked with the 2 MiB that its own code had left, and thrashed without any message.
    #[test]
    fn budget_taken_up_by_the_programs_own_code_is_reported() {
        let compiler = slots(&[&[
            (Field::Budget, 64 << 20),
            (Field::PeakRss, 70 << 20),
            (Field::Rss, 66 << 20),
            (Field::NrMapped, 512),
            (Field::NrLimit, 512),
            (Field::RssFiles, 40 << 20),
            (Field::RssShared, 3 << 20),
        ]]);
        let told = report("zram", "2", 0, &compiler);
        let text = told.to_string();
        let json: Value = serde_json::from_str(&told.to_json()).unwrap();
        assert_eq!(json["over_budget_bytes"], 6 << 20);
        assert_eq!(
            (&json["own_bytes"], &json["own_left_bytes"]),
            (&(64 << 20).into(), &(2 << 20).into())
        );
        let over = "(109 %); 6 MiB over it: the program's own code and data (static arrays, \
                    stacks and what it maps past the C library too), which stay\n";
        assert!(text.contains(over), "{text}");
        let line = "take 64 MiB of the budget; 2 MiB were left for the rest: try --ram 128M. They are 40 MiB of \
                    files (code, libraries), 3 MiB of shared memory, 21 MiB of other memory (static data, ";
        assert!(text.contains(line), "{text}");
        let heap = [(Field::Rss, 20 << 20), (Field::RssShared, 13 << 20)];
        let told = report("zram", "2", 0, &slots(&[&heap])).to_string();
        let line = "  not managed     20 MiB: 0 B of files (code, libraries), 13 MiB of shared memory, 7 MiB of other";
        assert!(told.contains(line), "{told}");
        let little = report("zram", "2", 0, &slots(&[&[(Field::Rss, 6 << 20)]]));
        assert!(!little.to_string().contains("not managed"), "{little}");
        let within = report("zram", "2", 0, &slots(&[&[(Field::Rss, 20 << 20)]]));
        assert!(!within.to_string().contains("over it"), "{within}");
        assert!(!within.to_string().contains("trouble"), "{within}");
    }

    #[test]
    fn a_program_without_a_budget_is_named() {
        let small = Unmanaged {
            pid: 8,
            name: "small".to_owned(),
            peak_resident_bytes: 1 << 20,
        };
        let large = Unmanaged {
            pid: 7,
            name: "large".to_owned(),
            peak_resident_bytes: 200 << 20,
        };
        let mut told = report("auto", "2", 0, &slots(&[&[]]));
        told.unmanaged = vec![large, small];
        let line = "without budget  large (process 7) did not load the library; resident 200 MiB at most; 1 more, smaller\n";
        assert!(told.to_string().contains(line), "{told}");
        let json: Value = serde_json::from_str(&told.to_json()).unwrap();
        assert_eq!(json["unmanaged"][0]["name"], "large");
        assert_eq!(json["unmanaged"][1]["peak_resident_bytes"], 1 << 20);
    }

    #[test]
    fn program_that_never_loaded_the_library_is_reported() {
        let report = report("auto", "2", 0, &[]);
        assert!(report.to_string().contains("not in force"), "{report}");
    }
}
