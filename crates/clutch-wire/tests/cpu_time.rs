//! CPU time of processes, as the kernel counts it: also of threads that have ended, and of a child until it is reaped.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clutch_wire::sys;

fn own() -> Duration {
    sys::cpu_time(std::process::id() as i32).expect("this process")
}

/// Uses a bit of CPU, whatever else runs on the machine.
fn compute() {
    let before = own();
    while own() < before + Duration::from_millis(20) {
        std::hint::black_box(Instant::now());
    }
}

#[test]
fn threads_that_have_ended_count() {
    let before = own();
    std::thread::spawn(compute).join().expect("it ends");
    assert!(own() >= before + Duration::from_millis(20));
}

#[test]
fn a_child_has_it_until_it_is_reaped() {
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    let mut child = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().expect("sh");
    let pid = child.id() as i32;
    let held = sys::pidfd(pid).expect("a child");
    let ended = sys::wait_readable(std::os::fd::AsFd::as_fd(&held), Some(Instant::now() + Duration::from_secs(60)));
    assert!(matches!(ended, Ok(true)), "it ends");
    let cpu = sys::cpu_time(pid).expect("it is not reaped");
    assert!(cpu > Duration::from_micros(100), "{cpu:?}");
    child.wait().expect("its status");
    assert_eq!(sys::cpu_time(pid), None);
}

#[test]
fn waiting_for_a_cpu_is_known_of_threads_that_live() {
    compute();
    assert!(sys::cpu_wait(std::process::id() as i32, 256).is_some());
    assert_eq!(sys::cpu_wait(i32::MAX, 256), None);
}
