//! Metrics in OpenMetrics' text format.
//!
//! | metric | labels in addition to the process's | from |
//! | --- | --- | --- |
//! | `millpond_NAME_total`, `millpond_NAME` | | each counter and gauge of `millpond stat`, times in seconds |
//! | `millpond_faults_total` | `class` | faults by the costliest step that they took |
//! | `millpond_fault_seconds` | `class`, `quantile` | how long half of them took at most, 99 of 100, and all |
//! | `millpond_pressure_ratio` | `kind`, `window` | part of the last seconds in which threads waited for memory |
//! | `millpond_avoided_ratio` | `more` | the share of major faults so far that this much more memory would have saved |
//!
//! A process is labelled with its number and name, and with the number of its `millpond run`, if it has one. Processes
//! that have ended are omitted: a reader that adds up over time has their last values from its previous request.

use crate::curve;
use crate::figures::{is_alive, kind};
use crate::ways::{WAYS, Way};
use millpond_board::counters::{self, Counter};
use millpond_board::watch::Watch;
use millpond_board::{Field, SlotReading};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

const QUANTILES: [&str; 3] = ["0.5", "0.99", "1"];
const PRESSURE: [(&str, &str, Field); 6] = [
    ("some", "10s", Field::PressureSome10),
    ("some", "60s", Field::PressureSome60),
    ("some", "300s", Field::PressureSome300),
    ("full", "10s", Field::PressureFull10),
    ("full", "60s", Field::PressureFull60),
    ("full", "300s", Field::PressureFull300),
];
/// The steps of the curve, each named after the additional memory.
const MORE: [&str; 4] = ["25%", "50%", "100%", "200%"];

/// Metrics of all processes that this user may inspect. `watch` is kept from one call to the next.
#[must_use]
pub fn of_all(watch: &mut Watch) -> String {
    let mut processes = Vec::new();
    watch.look();
    for board in watch.boards() {
        let slots = board.slots();
        let run = (kind(board.owner(), &slots) == "run").then(|| board.owner());
        let alive = slots.into_iter().filter(is_alive);
        processes.extend(alive.map(|slot| Process { slot, run }));
    }
    of(processes)
}

fn of(processes: Vec<Process>) -> String {
    let mut registry = Registry::with_prefix("millpond");
    registry.register_collector(Box::new(Processes(processes)));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Process {
    slot: SlotReading,
    /// The `millpond run` to which the process belongs.
    run: Option<u32>,
}

impl Process {
    /// The labels of the process, and those of a sample.
    fn labels(&self, more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        let mut labels = vec![
            ("pid", self.slot.pid.to_string()),
            ("name", self.slot.name.clone()),
        ];
        labels.extend(self.run.map(|run| ("run", run.to_string())));
        labels.extend(more.iter().map(|&(name, value)| (name, value.to_owned())));
        labels
    }

    fn seconds(&self, field: Field) -> f64 {
        self.slot.fields.get(field) as f64 / 1e9
    }
}

#[derive(Debug)]
struct Processes(Vec<Process>);

/// The values of a metric, each with its labels.
type Samples = Vec<(Vec<(&'static str, String)>, f64)>;

impl Processes {
    fn samples<'a>(
        &'a self,
        each: impl Fn(&'a Process) -> Vec<(Vec<(&'static str, &'static str)>, f64)>,
    ) -> Samples {
        let samples = |process: &'a Process| {
            let samples = each(process).into_iter();
            samples.map(|(labels, value)| (process.labels(&labels), value))
        };
        self.0.iter().flat_map(samples).collect()
    }

    fn counter(&self, counter: &'static Counter) -> Samples {
        let scale = if counter.name.ends_with("_ns") {
            1e9
        } else {
            1.0
        };
        self.samples(|process| vec![(vec![], counter.of(&process.slot.fields) as f64 / scale)])
    }

    fn faults(&self) -> Samples {
        self.samples(|process| {
            let count = |way @ (_, [count, ..]): Way| {
                let labels = vec![("class", class(way))];
                (labels, process.slot.fields.get(count) as f64)
            };
            WAYS.map(count).into()
        })
    }

    fn latencies(&self) -> Samples {
        self.samples(|process| {
            let of_way = |way @ (_, [_, quantiles @ ..]): Way| {
                QUANTILES
                    .into_iter()
                    .zip(quantiles)
                    .map(move |(name, field)| {
                        let labels = vec![("class", class(way)), ("quantile", name)];
                        (labels, process.seconds(field))
                    })
            };
            WAYS.into_iter().flat_map(of_way).collect()
        })
    }

    fn pressure(&self) -> Samples {
        self.samples(|process| {
            let average = |(kind, window, field)| {
                let hundredths = process.slot.fields.get(field) as f64;
                (vec![("kind", kind), ("window", window)], hundredths / 1e4)
            };
            PRESSURE.map(average).into()
        })
    }

    fn curve(&self) -> Samples {
        self.samples(|process| {
            let steps = curve::of([&process.slot].into_iter()).steps();
            let steps = MORE.into_iter().zip(steps);
            steps
                .map(|(more, step)| (vec![("more", more)], step.avoided))
                .collect()
        })
    }
}

/// The name of a way of faults, as it appears in the names of its counters.
fn class((_, [count, ..]): Way) -> &'static str {
    let name = count.key();
    let name = name.strip_prefix("fault_").unwrap_or(name);
    name.strip_suffix("_count").unwrap_or(name)
}

/// A counter's name without its unit, since the exported values are in seconds.
fn in_seconds(name: &str) -> String {
    match name.strip_suffix("_ns") {
        Some(time) => format!("{time}_seconds"),
        None => name.to_owned(),
    }
}

/// Whether another metric already has this counter, under a label.
fn is_elsewhere(name: &str) -> bool {
    name.starts_with("refaults_at_") || name.starts_with("fault_")
}

impl Collector for Processes {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for counter in counters::ALL.iter().filter(|one| !is_elsewhere(one.name)) {
            let grows = counter.grows;
            let about = counter.about.trim_end_matches('.');
            let about = match about.strip_suffix(", in nanoseconds") {
                Some(about) => about.to_owned(),
                None => about.replace(", in nanoseconds,", ","),
            };
            let name = in_seconds(counter.name);
            write(&mut encoder, &name, &about, grows, self.counter(counter))?;
        }
        let about = "Faults by the costliest step that they took";
        write(&mut encoder, "faults", about, true, self.faults())?;
        let about = "The time within which half, 99 of 100 and all faults of a class were served";
        write(
            &mut encoder,
            "fault_seconds",
            about,
            false,
            self.latencies(),
        )?;
        let about = "Part of the last seconds in which some thread, or every thread that used any, waited for memory";
        write(
            &mut encoder,
            "pressure_ratio",
            about,
            false,
            self.pressure(),
        )?;
        let about =
            "The share of major faults so far that so many more bytes of memory would have spared";
        write(&mut encoder, "avoided_ratio", about, false, self.curve())
    }
}

fn write(
    encoder: &mut DescriptorEncoder,
    name: &str,
    about: &str,
    grows: bool,
    samples: Samples,
) -> fmt::Result {
    let kind = match grows {
        true => MetricType::Counter,
        false => MetricType::Gauge,
    };
    let mut metric = encoder.encode_descriptor(name, about, None, kind)?;
    for (labels, value) in samples {
        let mut sample = metric.encode_family(&labels)?;
        match grows {
            true => sample.encode_counter::<NoLabelSet, _, f64>(&value, None)?,
            false => sample.encode_gauge(&value)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_board::{Board, Fields, State};

    fn process(name: &str, run: Option<u32>, set: &[(Field, u64)]) -> Process {
        let (board, _file) = Board::create("test").unwrap();
        let mut fields = Fields::default();
        set.iter()
            .for_each(|&(field, value)| fields.set(field, value));
        let slot = board.claim(7, name).unwrap();
        assert!(slot.publish(State::Running, &fields));
        let slot = board.slots().next().unwrap();
        Process { slot, run }
    }

    #[test]
    fn counters_gauges_and_times_are_printed_in_their_units() {
        let fields = [
            (Field::MajorFaults, 5),
            (Field::Reclaim, 1_500_000_000),
            (Field::Budget, 16 << 20),
            (Field::LoadCount, 4),
            (Field::LoadP99, 5_000),
            (Field::PressureSome60, 1250),
            (Field::NrLimit, 4096),
            (Field::RefaultsAt100, 80),
            (Field::RefaultsAt125, 20),
            (Field::NrFilePages, 300),
            (Field::NrDirty, 2),
            (Field::NrWriteback, 64),
            (Field::WorkingsetRefaultFile, 9),
            (Field::PgPgIn, 400),
            (Field::PgPgOut, 70),
        ];
        let text = of(vec![process("index", Some(3), &fields)]);
        for line in [
            "# TYPE millpond_pgmajfault counter",
            "# HELP millpond_reclaim_seconds Time that threads spent in reclaim",
            r#"millpond_pgmajfault_total{pid="7",name="index",run="3"} 5.0"#,
            r#"millpond_reclaim_seconds_total{pid="7",name="index",run="3"} 1.5"#,
            r#"millpond_budget_bytes{pid="7",name="index",run="3"} 16777216.0"#,
            r#"millpond_faults_total{pid="7",name="index",run="3",class="load"} 4.0"#,
            r#"millpond_fault_seconds{pid="7",name="index",run="3",class="load",quantile="0.99"} 0.000005"#,
            r#"millpond_pressure_ratio{pid="7",name="index",run="3",kind="some",window="60s"} 0.125"#,
            r#"millpond_nr_file_pages{pid="7",name="index",run="3"} 300.0"#,
            r#"millpond_nr_dirty{pid="7",name="index",run="3"} 2.0"#,
            r#"millpond_nr_writeback{pid="7",name="index",run="3"} 64.0"#,
            r#"millpond_workingset_refault_file_total{pid="7",name="index",run="3"} 9.0"#,
            r#"millpond_pgpgin_total{pid="7",name="index",run="3"} 400.0"#,
            r#"millpond_pgpgout_total{pid="7",name="index",run="3"} 70.0"#,
            r#"millpond_avoided_ratio{pid="7",name="index",run="3",more="25%"} 0.75"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n") && !text.contains("_ns"), "{text}");
    }

    /// A program may have any name.
    #[test]
    fn names_are_escaped() {
        let text = of(vec![process("a\"b\\c\nd", None, &[])]);
        assert!(text.contains(r#"{pid="7",name="a\"b\\c\nd"}"#), "{text}");
    }

    #[test]
    fn without_managers_only_comments_are_printed() {
        let text = of(Vec::new());
        assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
    }
}
