//! A harness that runs a program once as it is, and once under `millpond run` at a quarter of the memory that it took:
//! the output and the status must be the same, and the budget must be kept as the report and the kernel see it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;
/// A program that is not done after this long hangs.
const PATIENCE: Duration = Duration::from_secs(180);

/// A lock for one program at a time: the programs are measured, and the machine may be small.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The executable, with the real library next to it. The library is built now, because no dependency of a test can be a
/// shared library. It is built as a part of the workspace, as `./test` has done already. Built by itself, its
/// dependencies would have other features, and would be built again for 80 s.
pub fn millpond() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let own = option_env!("CARGO_BIN_EXE_millpond").map(PathBuf::from);
        let bench = option_env!("CARGO_BIN_EXE_millpond-bench").map(Path::new);
        let program = own.or(bench.map(|bench| bench.with_file_name("millpond")));
        let program = program.expect("these are tests of a program");
        let directory = program.parent().unwrap();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--workspace"]);
        cargo.args(["--exclude", "millpond-remote"]);
        cargo.arg("--target-dir").arg(directory.parent().unwrap());
        if directory.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.status().unwrap();
        assert!(built.success(), "the library does not build");
        program
    })
}

/// Whether these tests can run here; prints the reason when not. `programs` are files and the Debian packages that they
/// are in.
pub fn can_run(programs: &[(&str, &str)]) -> bool {
    for (program, package) in programs {
        if !Path::new(program).exists() {
            println!("skipped: no {program}; apt-get install {package}");
            return false;
        }
    }
    let mut doctor = Command::new(millpond());
    doctor.arg("doctor").env_remove("MILLPOND_PRELOAD");
    let can = doctor.output().unwrap().status.success();
    if !can {
        println!("skipped: userfaultfd is refused here (see `millpond doctor`)");
    }
    can
}

/// A command `millpond run --ram RAM OPTIONS -- COMMAND`, with its report in `report`.
pub fn under(ram: u64, options: &[&str], report: &Path, command: &[&str]) -> Command {
    let mut run = Command::new(millpond());
    run.arg("run").args(["--ram", &ram.to_string()]);
    run.arg("--report").arg(report).args(options);
    run.arg("--").args(command).env_remove("MILLPOND_PRELOAD");
    run
}

pub fn read_report(path: &Path) -> serde_json::Value {
    let text = fs::read(path).expect("a report");
    serde_json::from_slice(&text).unwrap()
}

/// The outcome of a program.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    /// The largest resident set of the program and of the children that it waited for.
    pub peak: u64,
    pub wall: Duration,
    /// The program's standard output.
    pub output: PathBuf,
    /// The largest `VmRSS` that the program's descendants showed from outside.
    pub sampled: u64,
}

/// Waits for `child`, and kills it when it takes too long.
fn wait(child: &Child) -> (ExitStatus, u64) {
    let (start, pid) = (Instant::now(), child.id().cast_signed());
    loop {
        let mut status = 0;
        // SAFETY: all zeros is a value of this plain structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both results are writable, and nothing else waits for this child of ours.
        let answer = unsafe { libc::wait4(pid, &mut status, libc::WNOHANG, &mut usage) };
        if answer == pid {
            let peak = usage.ru_maxrss.cast_unsigned() * 1024;
            return (ExitStatus::from_raw(status), peak);
        }
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
        if start.elapsed() > PATIENCE {
            // SAFETY: the child has not been waited for, so the number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("process {pid} is not done after {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn descendants(pid: u32, found: &mut BTreeSet<u32>) {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return;
    };
    for task in tasks.flatten() {
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|c| c.parse().ok()) {
            if found.insert(child) {
                descendants(child, found);
            }
        }
    }
}

/// Resident memory of one process by the kernel's counter. A walk over its mappings (`smaps_rollup`) counts pages twice
/// if they move during the walk: its highest sample was 97 MB in a budget of 85, when the counter never exceeded that.
pub fn rss(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Runs `command`, with its output in `output`.
#[expect(
    clippy::zombie_processes,
    reason = "`wait` waits by wait4, which tells the peak too"
)]
pub fn watch(mut command: Command, output: &Path) -> Ran {
    let start = Instant::now();
    let child = command
        .stdout(File::create(output).unwrap())
        .spawn()
        .unwrap();
    let done = AtomicBool::new(false);
    let ((status, peak), sampled) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut largest = 0;
            while !done.load(Ordering::Relaxed) {
                let mut all = BTreeSet::new();
                descendants(child.id(), &mut all);
                largest = all.into_iter().filter_map(rss).fold(largest, u64::max);
                std::thread::sleep(Duration::from_millis(25));
            }
            largest
        });
        let ended = wait(&child);
        done.store(true, Ordering::Relaxed);
        (ended, sampler.join().unwrap())
    });
    Ran {
        status,
        peak,
        wall: start.elapsed(),
        output: output.to_owned(),
        sampled,
    }
}

pub fn same(a: &Path, b: &Path) -> bool {
    fs::read(a).unwrap() == fs::read(b).unwrap()
}

/// The budget for a program that took `peak` without one.
pub fn quarter(peak: u64) -> u64 {
    (peak / 4).max(16 * MIB)
}

/// Resident memory of a process that is in a file: program text and libraries, which no budget can manage.
const UNMANAGED: u64 = MIB;

/// Checks that the budget was kept, by the report and from outside, and that it was needed.
pub fn check_budget(name: &str, ram: u64, report: &serde_json::Value, sampled: u64) {
    let number = |key: &str| report[key].as_u64().unwrap();
    let peak = number("peak_resident_bytes");
    assert!(number("major_faults") > 0, "{name}: nothing was swapped");
    assert!(
        peak <= ram + UNMANAGED,
        "{name}: {peak} bytes resident in a budget of {ram}: {report:#}"
    );
    assert!(
        sampled <= ram + UNMANAGED,
        "{name}: {sampled} bytes seen from outside in a budget of {ram}"
    );
}

/// Runs `command` in `directory` without a budget and with a quarter of the memory that it took, compares the two, and
/// prints the figures.
pub fn same_at_a_quarter(name: &str, command: &[&str], directory: &TempDir, options: &[&str]) {
    let at = |file: &str| directory.path().join(format!("{name}.{file}"));
    let mut plain = Command::new(command[0]);
    plain.args(&command[1..]).current_dir(directory);
    let free = watch(plain, &at("free"));
    let ram = quarter(free.peak);
    let mut limited = under(ram, options, &at("json"), command);
    limited.current_dir(directory);
    let tight = watch(limited, &at("tight"));
    let report = read_report(&at("json"));
    println!(
        "{name}: {:.1} s and {} MiB without a budget, {:.1} s and {} MiB with {} MiB; {} MiB from outside; \
         {} major faults, half within {} µs, {} MiB out",
        free.wall.as_secs_f64(),
        free.peak / MIB,
        tight.wall.as_secs_f64(),
        report["peak_resident_bytes"].as_u64().unwrap() / MIB,
        ram / MIB,
        tight.sampled / MIB,
        report["major_faults"],
        report["fault_p50_ns"].as_u64().unwrap() / 1000,
        report["out_bytes"].as_u64().unwrap() / MIB,
    );
    assert_eq!(free.status, tight.status, "{name}");
    assert!(
        same(&free.output, &tight.output),
        "{name}: the outputs differ"
    );
    check_budget(name, ram, &report, tight.sampled);
}
