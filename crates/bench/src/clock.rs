//! A clock for wall time and for the processor time of this process.

use std::time::{Duration, Instant};

/// A clock that runs from its creation.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall: Instant,
    cpu: Duration,
}

impl Clock {
    /// Starts a clock.
    pub fn start() -> Self {
        let cpu = cpu();
        let wall = Instant::now();
        Self { wall, cpu }
    }

    /// Microseconds that have passed.
    pub fn wall(&self) -> f64 {
        micros(self.wall.elapsed())
    }

    /// Processor time of all threads in microseconds, including threads that have ended and the kernel's work for
    /// them.
    pub fn cpu(&self) -> f64 {
        micros(cpu().saturating_sub(self.cpu))
    }
}

/// A time in microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_adds_wall_time_and_ended_threads_count_as_cpu_time() {
        let clock = Clock::start();
        std::thread::sleep(Duration::from_millis(30));
        assert!(clock.wall() >= 30_000.0);
        let before = clock.cpu();
        let work = || {
            let clock = Clock::start();
            while clock.cpu() < 20_000.0 {}
        };
        std::thread::spawn(work).join().unwrap();
        assert!(clock.cpu() >= before + 20_000.0);
    }
}
