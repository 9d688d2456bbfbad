//! Memory of workers: read from /proc, by a thread beside the driver and by the worker itself.
//!
//! Private memory counts: Private_Clean + Private_Dirty + Swap of smaps_rollup. Resident memory contains what
//! forked workers share with their zygote, and PSS grows in innocent workers when their siblings leave. The kernel walks
//! all of a process's pages for smaps_rollup (milliseconds for a gigabyte), so it is read only where resident memory and
//! swap together say that private memory may be large enough, and never by the driver: a process that is stuck in the
//! kernel could hold up its reader.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use serde::Serialize;

use crate::pool::state::WorkerKey;
use crate::pool::{Health, Memory, Pool, Status};

/// Interval at which the memory of every worker is read.
pub const PERIOD: Duration = Duration::from_secs(1);

/// Resident bytes and swap of `/proc/PID/status`; none when it is not such a page (a process that has ended has neither).
pub fn parse_status(text: &str) -> Option<(u64, u64)> {
    Some((field(text, "VmRSS:")?, field(text, "VmSwap:").unwrap_or(0)))
}

/// Resident and private bytes of `/proc/PID/smaps_rollup`.
pub fn parse_rollup(text: &str) -> Option<(u64, u64)> {
    let private = field(text, "Private_Clean:")? + field(text, "Private_Dirty:")?;
    Some((field(text, "Rss:")?, private + field(text, "Swap:").unwrap_or(0)))
}

/// The value of a line such as `VmRSS:      1784 kB`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()? * 1024)
}

/// A process's memory; its private part only where it may be `floor` or more. None: there is no such process.
pub fn read(pid: &str, floor: u64) -> Option<Memory> {
    // The name in it is any bytes that the process has chosen.
    let (rss, swap) = parse_status(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/status")).ok()?))?;
    let private = if rss + swap < floor { None } else { read_rollup(pid).map(|(_, private)| private) };
    Some(Memory { rss, private })
}

fn read_rollup(pid: &str) -> Option<(u64, u64)> {
    parse_rollup(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

// ---- in the dispatcher

/// Starts the thread that looks at a pool's workers, each [`PERIOD`] and at new ones at once. It ends with the pool.
pub fn start(pool: Arc<Pool>, floor: u64) -> io::Result<()> {
    let name = "clutch-memory".to_owned();
    std::thread::Builder::new().name(name).spawn(move || look_until_closed(&pool, floor))?;
    Ok(())
}

fn look_until_closed(pool: &Pool, floor: u64) {
    sys::block_signals();
    let mut known = BTreeSet::new();
    let mut all_at = Instant::now() + PERIOD;
    loop {
        pool.wait_status(Some(all_at), |status| {
            status.health == Health::Closed || ready(status).any(|(key, _)| !known.contains(&key))
        });
        let status = pool.status();
        if status.health == Health::Closed {
            return;
        }
        let all = all_at <= Instant::now();
        let wanted = ready(&status).filter(|(key, _)| all || !known.contains(key));
        let figures: Vec<_> = wanted.filter_map(|(key, pid)| Some((key, read(&pid.to_string(), floor)?))).collect();
        known = ready(&status).map(|(key, _)| key).collect();
        if all {
            all_at = Instant::now() + PERIOD;
        }
        if !figures.is_empty() {
            pool.weigh(&figures);
        }
    }
}

fn ready(status: &Status) -> impl Iterator<Item = (WorkerKey, i32)> + '_ {
    let living = status.workers.iter().filter(|(_, worker)| worker.state != "starting");
    living.filter_map(|(key, worker)| Some((*key, worker.pid?)))
}

// ---- in the worker

/// A worker's own look at its memory, after calls that raised its peak.
#[derive(Debug)]
pub struct OwnMemory {
    floor: u64,
    seen: Mutex<Seen>,
}

/// A worker's report of its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    pub peak_rss: u64,
    pub rss: u64,
    pub private: u64,
}

/// Peak so far; resident and private memory when they were read last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub peak: u64,
    pub rss: u64,
    pub private: u64,
}

impl Seen {
    /// Takes note of the peak. True when it rose, and so far that private memory may have reached `floor` since.
    pub fn may_have_reached(&mut self, floor: u64, peak: u64) -> bool {
        let rose = peak > self.peak;
        self.peak = self.peak.max(peak);
        rose && self.private + peak.saturating_sub(self.rss) >= floor
    }
}

impl OwnMemory {
    pub fn new(floor: u64) -> OwnMemory {
        OwnMemory { floor, seen: Mutex::default() }
    }

    /// Returns whether [`OwnMemory::look`] has something to see: to be asked after each call, a system call.
    pub fn is_due(&self) -> bool {
        self.seen.lock().may_have_reached(self.floor, sys::peak_rss())
    }

    /// Returns what is to be told, if anything.
    pub fn look(&self) -> Option<MemoryReport> {
        let (rss, private) = read_rollup("self")?;
        let mut seen = self.seen.lock();
        (seen.rss, seen.private) = (rss, private);
        (private >= self.floor).then_some(MemoryReport { peak_rss: seen.peak, rss, private })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLLUP: &str = "\
5583a6d9e000-7ffc69b7a000 ---p 00000000 00:00 0                          [rollup]
Rss:                1784 kB
Pss:                 515 kB
Pss_Dirty:           112 kB
Shared_Clean:       1592 kB
Shared_Dirty:          0 kB
Private_Clean:        80 kB
Private_Dirty:       112 kB
Private_Hugetlb:       0 kB
Swap:                  8 kB
SwapPss:               4 kB
";

    #[test]
    fn private_memory_is_clean_dirty_and_swap() {
        assert_eq!(parse_rollup(ROLLUP), Some((1784 << 10, (80 + 112 + 8) << 10)));
        let without_swap = ROLLUP.replace("Swap:                  8 kB\n", "");
        assert_eq!(parse_rollup(&without_swap), Some((1784 << 10, (80 + 112) << 10)));
    }

    #[test]
    fn pages_that_say_something_else_are_not_taken_for_figures() {
        for text in ["", "Rss: 10 kB", "Rss: many kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 1 kB", "Private_Clean: 1"] {
            assert_eq!(parse_rollup(text), None, "{text}");
        }
        assert_eq!(parse_status("Name:\tzombie\nState:\tZ (zombie)\n"), None);
        assert_eq!(parse_status("VmHWM:\t  99 kB\nVmRSS:\t  12 kB\nVmSwap:\t  3 kB\n"), Some((12 << 10, 3 << 10)));
    }

    #[test]
    fn this_process_is_read_as_the_kernel_counts_it() {
        let memory = read("self", 0).expect("figures");
        let private = memory.private.expect("private memory");
        assert!(0 < private && private <= memory.rss + (64 << 20), "{memory:?}");
        assert_eq!(read("self", u64::MAX).expect("figures").private, None, "not read below the floor");
        assert_eq!(read("0", 0), None);
    }

    #[test]
    fn a_worker_looks_only_when_its_peak_rose_far_enough() {
        let mut seen = Seen { peak: 1000, rss: 900, private: 100 };
        assert!(!seen.may_have_reached(500, 1000), "the peak did not rise");
        assert!(!seen.may_have_reached(500, 1299), "what it can have grown by is not enough");
        assert_eq!(seen.peak, 1299);
        assert!(seen.may_have_reached(500, 1300));
        assert!(!seen.may_have_reached(500, 1300), "once");
    }
}
