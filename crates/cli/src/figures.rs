//! Figures made of the slots of a board at one moment, and of what changed since another.
//!
//! Each process writes its counters at its own times. A rate is therefore the difference between two of its updates,
//! divided by the time between *them*, which its slot records, and not by the time between two looks. The rates of
//! several processes add up. At the first look there is no earlier moment, so rates cover the process's whole life.
//!
//! The achievements of reclaim are named as the Linux developers name them: *efficiency* is pages freed for each page
//! scanned, *velocity* is pages scanned each second. Low efficiency at high velocity means that reclaim looks for
//! memory that does not exist. A direct velocity that is high compared with that of kswapd (the background thread)
//! means that programs wait because it is late.

use millpond_board::counters::ALL;
use millpond_board::{Field, SlotReading, State};
use serde_json::{Map, Value, json};
use std::fmt;

/// The kind of a board: that of a `millpond run`, which has no memory to manage itself, or a program's own.
#[must_use]
pub fn kind(owner: u32, slots: &[SlotReading]) -> &'static str {
    if slots.iter().any(|slot| slot.pid == owner) {
        "library"
    } else {
        "run"
    }
}

/// Whether a slot's process runs. A killed process cannot record that it has ended.
#[must_use]
pub fn is_alive(slot: &SlotReading) -> bool {
    slot.state == State::Running && std::fs::exists(format!("/proc/{}", slot.pid)).unwrap_or(false)
}

/// The slots at one moment, each with whether its process lives.
#[derive(Debug)]
pub struct Sample {
    slots: Vec<(SlotReading, bool)>,
}

impl Sample {
    /// Takes a sample of these slots, now.
    #[must_use]
    pub fn new(slots: Vec<SlotReading>) -> Self {
        let with_life = |slot: SlotReading| {
            let alive = is_alive(&slot);
            (slot, alive)
        };
        Self {
            slots: slots.into_iter().map(with_life).collect(),
        }
    }

    /// Makes a sample of one slot whose process is known to live, or to have ended.
    #[must_use]
    pub fn of_one(slot: SlotReading, alive: bool) -> Self {
        Self {
            slots: vec![(slot, alive)],
        }
    }

    fn same(&self, slot: &SlotReading) -> Option<&SlotReading> {
        let is_same = |other: &&SlotReading| {
            (other.number, other.claimed_ns) == (slot.number, slot.claimed_ns)
        };
        self.slots.iter().map(|(slot, _)| slot).find(is_same)
    }
}

/// The figures that one line shows.
#[derive(Debug)]
pub struct Figures {
    /// The values, by the numbers of [`ALL`].
    values: Vec<u64>,
    rates: Vec<f64>,
    /// Each slot, with whether its process lives.
    processes: Vec<(SlotReading, bool)>,
    /// The longest time over which rates are taken, in nanoseconds.
    over_ns: u64,
}

impl Figures {
    /// The figures of `now`, with rates since `before`, or since the start of each process.
    #[must_use]
    pub fn new(now: &Sample, before: Option<&Sample>) -> Self {
        let mut values = vec![0; ALL.len()];
        let mut rates = vec![0.0; ALL.len()];
        let mut longest = 0;
        for (slot, alive) in &now.slots {
            let earlier = before.and_then(|before| before.same(slot));
            let since = earlier.map_or(slot.claimed_ns, |slot| slot.published_ns);
            let over = slot.published_ns.saturating_sub(since);
            longest = longest.max(over);
            for ((counter, value), rate) in ALL.iter().zip(&mut values).zip(&mut rates) {
                let is = counter.of(&slot.fields);
                if counter.grows {
                    *value += is;
                    let was = earlier.map_or(0, |slot| counter.of(&slot.fields));
                    if over > 0 {
                        *rate += is.saturating_sub(was) as f64 * 1e9 / over as f64;
                    }
                } else if counter.is_highest() {
                    *value = is.max(*value);
                } else if *alive {
                    *value += is;
                }
            }
        }
        Self {
            values,
            rates,
            processes: now.slots.clone(),
            over_ns: longest,
        }
    }

    /// The value of the counter `name`.
    #[must_use]
    pub fn value(&self, name: &str) -> u64 {
        self.values[number(name)]
    }

    /// The rate of `name` per second.
    #[must_use]
    pub fn rate(&self, name: &str) -> f64 {
        self.rates[number(name)]
    }

    /// Whether a process has pages of files, or has read or written any.
    #[must_use]
    pub fn has_files(&self) -> bool {
        ["nr_file_pages", "pgpgin", "pgpgout"]
            .iter()
            .any(|name| self.value(name) > 0)
    }

    /// The number of processes that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.processes.iter().filter(|(_, alive)| *alive).count()
    }

    /// Pages scanned each second by all threads that reclaim.
    #[must_use]
    pub fn velocity(&self) -> f64 {
        self.rate("pgscan_kswapd") + self.rate("pgscan_direct")
    }

    /// Pages freed each second.
    #[must_use]
    pub fn stolen(&self) -> f64 {
        self.rate("pgsteal_kswapd") + self.rate("pgsteal_direct")
    }

    /// Pages freed for each page scanned; `None` when no page was scanned.
    #[must_use]
    pub fn efficiency(&self) -> Option<f64> {
        ratio(self.stolen(), self.velocity())
    }

    /// The average of pressure `field` of the process that has the highest; `None` when no process runs.
    fn percent(&self, field: Field) -> Option<f64> {
        let alive = self.processes.iter().filter(|(_, alive)| *alive);
        let highest = alive.map(|(slot, _)| slot.fields.get(field)).max();
        highest.map(|hundredths| hundredths as f64 / 100.0)
    }

    /// The figures that follow from the counters, by name.
    fn derived(&self) -> [(&'static str, Option<f64>); 14] {
        let rate = |name| self.rate(name);
        let seconds = |name| rate(name) / 1e9;
        [
            ("efficiency", self.efficiency()),
            (
                "kswapd_efficiency",
                ratio(rate("pgsteal_kswapd"), rate("pgscan_kswapd")),
            ),
            (
                "direct_efficiency",
                ratio(rate("pgsteal_direct"), rate("pgscan_direct")),
            ),
            ("kswapd_velocity", Some(rate("pgscan_kswapd"))),
            ("direct_velocity", Some(rate("pgscan_direct"))),
            (
                "direct_scans",
                ratio(rate("pgscan_direct"), self.velocity()),
            ),
            ("stalls", Some(rate("allocstall"))),
            ("stalled", Some(seconds("reclaim_direct_ns"))),
            ("some_avg10", self.percent(Field::PressureSome10)),
            ("some_avg60", self.percent(Field::PressureSome60)),
            ("some_avg300", self.percent(Field::PressureSome300)),
            ("full_avg10", self.percent(Field::PressureFull10)),
            ("full_avg60", self.percent(Field::PressureFull60)),
            ("full_avg300", self.percent(Field::PressureFull300)),
        ]
    }

    /// The line for programs: `schema` = `millpond-stat/1`; later versions only add fields.
    ///
    /// | field | meaning |
    /// | --- | --- |
    /// | `pid`, `name` | the requested process, and the board's name |
    /// | `over_ns` | the time that rates cover: the first time, since the start |
    /// | `counters` | sums over the processes, of those that have ended too; what there is now (`nr_…`, `…_bytes`) of those that run; latencies and peaks of the one that has the highest |
    /// | `rates` | counts per second |
    /// | `derived` | `…efficiency`: pages freed for each looked at; `…velocity`: looked at each second; `direct_scans`: the share of these by threads in need; `stalls`: times a second that a fault reclaimed, `stalled`: seconds of each second that threads spent there; `some_avg10` and so on: the per cent of the last 10, 60 and 300 seconds in which some thread waited for memory, or all that used any, of the process with the highest; null where nothing happened |
    /// | `processes` | `pid`, `name`, `state` |
    #[must_use]
    pub fn to_json(&self, pid: i32, name: &str) -> Value {
        let counters = ALL.iter().zip(&self.values);
        let counters = counters.map(|(counter, &value)| (counter.name.to_owned(), value.into()));
        let rates = ALL.iter().zip(&self.rates);
        let rates = rates.filter(|(counter, _)| counter.grows);
        let rates = rates.map(|(counter, &rate)| (counter.name.to_owned(), rate.into()));
        let derived = self
            .derived()
            .map(|(name, value)| (name.to_owned(), json!(value)));
        json!({
            "schema": "millpond-stat/1",
            "pid": pid,
            "name": name,
            "over_ns": self.over_ns,
            "counters": counters.collect::<Map<_, _>>(),
            "rates": rates.collect::<Map<_, _>>(),
            "derived": Map::from_iter(derived),
            "processes": self.processes.iter().map(|(slot, _)| process(slot)).collect::<Vec<_>>(),
        })
    }
}

/// The entry of a process in a list.
pub fn process(slot: &SlotReading) -> Value {
    let state = match slot.state {
        State::Running if is_alive(slot) => "running",
        State::Running => "killed",
        State::Exited => "exited",
        State::Execed => "became another program",
        State::Failed => "stopped by millpond",
    };
    json!({ "pid": slot.pid, "name": slot.name, "state": state })
}

fn number(name: &str) -> usize {
    let found = ALL.iter().position(|counter| counter.name == name);
    found.unwrap_or_else(|| unreachable!("{name} is no counter"))
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// All counters, a line each, as in `/proc/vmstat`, followed by the figures derived from them, over the time since the
/// start.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (counter, value) in ALL.iter().zip(&self.values) {
            writeln!(f, "{} {value}", counter.name)?;
        }
        for (name, value) in self.derived() {
            match value {
                Some(value) => writeln!(f, "{name} {value:.3}")?,
                None => writeln!(f, "{name} -")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_board::Fields;

    fn slot(number: usize, pid: u32, published_ns: u64, values: &[(Field, u64)]) -> SlotReading {
        let mut fields = Fields::default();
        for &(field, value) in values {
            fields.set(field, value);
        }
        SlotReading {
            number,
            pid,
            parent: None,
            name: "work".to_owned(),
            state: State::Running,
            claimed_ns: 1_000_000_000,
            published_ns,
            fields,
            torn: false,
        }
    }

    #[test]
    fn rates_use_the_time_between_updates_and_add_up() {
        let me = std::process::id();
        let scans = |n| [(Field::PgScanDirect, n), (Field::PgStealDirect, n / 4)];
        let first = Sample::new(vec![
            slot(0, me, 2_000_000_000, &scans(100)),
            slot(1, me, 1_500_000_000, &scans(50)),
        ]);
        let figures = Figures::new(&first, None);
        assert_eq!(figures.rate("pgscan_direct"), 200.0, "100 a second each");
        let later = Sample::new(vec![
            slot(0, me, 2_500_000_000, &scans(300)),
            slot(1, me, 1_500_000_000, &scans(50)),
        ]);
        let figures = Figures::new(&later, Some(&first));
        assert_eq!(figures.rate("pgscan_direct"), 400.0);
        assert_eq!(figures.efficiency(), Some(0.25));
        assert_eq!(figures.value("pgscan_direct"), 350);
        let json = figures.to_json(7, "x");
        assert_eq!(json["derived"]["direct_velocity"], 400.0);
        assert_eq!(json["derived"]["kswapd_efficiency"], Value::Null);
        assert_eq!(json["over_ns"], 500_000_000);
    }

    #[test]
    fn ended_processes_are_counted_but_have_no_memory() {
        // No process has such a number.
        let gone = u32::MAX;
        let values = [
            (Field::PressureFull60, 1234),
            (Field::MajorFaults, 3),
            (Field::NrMapped, 10),
            (Field::FaultMax, 5),
        ];
        let sample = Sample::new(vec![
            slot(0, std::process::id(), 2_000_000_000, &values),
            slot(1, gone, 2_000_000_000, &values),
        ]);
        let figures = Figures::new(&sample, None);
        let of = |name| figures.value(name);
        assert_eq!(
            (of("pgmajfault"), of("nr_mapped"), of("fault_max_ns")),
            (6, 10, 5)
        );
        assert_eq!(figures.running(), 1);
        assert_eq!(figures.to_json(7, "x")["derived"]["full_avg60"], 12.34);
        assert_eq!(process(&sample.slots[1].0)["state"], "killed");
        assert!(figures.to_string().contains("pgmajfault 6\n"), "{figures}");
    }
}
