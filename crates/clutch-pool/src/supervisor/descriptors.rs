//! Counts the descriptors that a pool needs, and makes room for them.

use clutch_wire::frame::FORK_DESCRIPTORS;
use clutch_wire::region::WRITTEN_MAX;
use clutch_wire::sys;

use super::state::FORKS_MAX;

/// The link, the alarm, stdout, stderr and the process of a worker.
const DESCRIPTORS_OF_A_WORKER: u64 = 5;
/// Poller and wake-up; of each of two zygotes (a reload) control socket, process, stdout and stderr; what it takes for a
/// moment to start one; the reader of all output.
const DESCRIPTORS_OF_A_POOL: u64 = 16;

/// Descriptors that this many workers need in the dispatcher, with those on their way to zygotes.
pub fn descriptors_of(workers: usize) -> u64 {
    let on_the_way = workers.min(FORKS_MAX) * FORK_DESCRIPTORS;
    workers as u64 * DESCRIPTORS_OF_A_WORKER + on_the_way as u64 + DESCRIPTORS_OF_A_POOL
}

/// Raises this process's limit of descriptors for what so many workers of a pool need. Returns how many are left beside; an
/// error says what to do.
pub fn make_room(name: &str, workers: usize, needed: u64) -> Result<u64, String> {
    sys::make_room_for_descriptors(needed, 2 * WRITTEN_MAX as u64).map_err(|hard| {
        format!(
            "pool '{name}' of {workers} workers needs {needed} more descriptors and the hard limit is {hard}: raise it \
             (ulimit -Hn, LimitNOFILE=)"
        )
    })
}
