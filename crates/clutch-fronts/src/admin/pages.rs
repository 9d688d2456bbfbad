//! Pages of the plane: health, readiness, counts, and for operators what runs on each worker.

use std::fs;
use std::ops::RangeInclusive;

use clutch_host::Plane;
use clutch_host::figures::CONTENT_TYPE;
use clutch_pool::config::PoolConfig;
use clutch_pool::pool::{Health, Pool};
use clutch_wire::sys::{self, ProcessStat};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::asked::{Answer, Asked};
use crate::body::{Body, with_type};

/// Maximum number of threads of a worker that are asked for how long they have waited for a CPU.
const THREADS_MAX: usize = 256;

pub(super) async fn health(_asked: Asked) -> Answer {
    Ok(document(&json!({ "alive": true })))
}

pub(super) async fn readiness(asked: Asked) -> Answer {
    let plane = &asked.plane;
    let stopping = plane.is_stopping();
    let mut waiting: Vec<Value> = plane.pools.all().iter().filter_map(|(name, pool)| unready(name, pool)).collect();
    waiting.extend(plane.members().iter().filter_map(|member| member.unready()));
    let ready = !stopping && waiting.is_empty();
    let mut response = document(&json!({ "ready": ready, "stopping": stopping, "waiting": waiting }));
    if !ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

/// Says why a pool that readiness waits for is not ready.
fn unready(name: &str, pool: &Pool) -> Option<Value> {
    let status = pool.status();
    let PoolConfig { required, .. } = *pool.config;
    (required && status.health != Health::Ready)
        .then(|| json!({ "pool": name, "state": status.health, "reason": status.reason }))
}

pub(super) async fn metrics(asked: Asked) -> Answer {
    Ok(with_type(CONTENT_TYPE, Body::from(asked.plane.metrics().into_bytes())))
}

/// Shows pools and members; to operators also the process, and what each worker runs.
pub(super) async fn pools(asked: Asked) -> Answer {
    let Asked { plane, is_operator, .. } = &asked;
    let is_operator = *is_operator;
    let pools = plane.pools.all();
    let shown: Vec<Value> = pools.iter().map(|(name, pool)| shown(name, pool, is_operator)).collect();
    let mut page = if is_operator { facts(plane) } else { Map::new() };
    page.insert("pools".to_owned(), shown.into());
    for (key, member) in plane.members().iter().filter_map(|member| member.shown()) {
        let shown = page.entry(key).or_insert_with(|| json!([]));
        shown.as_array_mut().into_iter().for_each(|shown| shown.push(member.clone()));
    }
    Ok(document(&page.into()))
}

pub(super) async fn process(asked: Asked) -> Answer {
    Ok(document(&facts(&asked.plane).into()))
}

/// Returns what the process says of itself.
pub(super) fn facts(plane: &Plane) -> Map<String, Value> {
    let mut facts = plane.identity.as_object().cloned().unwrap_or_default();
    let pid = std::process::id() as i32;
    facts.insert("pid".to_owned(), pid.into());
    facts.insert("age_s".to_owned(), ProcessStat::of(pid).as_ref().and_then(age_s).into());
    facts.insert("stopping".to_owned(), plane.is_stopping().into());
    facts
}

fn shown(name: &str, pool: &Pool, is_operator: bool) -> Value {
    let mut running = if is_operator { pool.running_by_nr() } else { Default::default() };
    let mut stats = pool.stats();
    name.clone_into(&mut stats.name);
    if !is_operator {
        // Paths of requests are among the names.
        stats.company.clear();
    }
    let mut shown = json!(stats);
    for worker in shown["workers"].as_array_mut().into_iter().flatten() {
        let pid = worker["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let stat = pid.and_then(ProcessStat::of);
        worker["age_s"] = stat.as_ref().and_then(age_s).into();
        worker["cpu_s"] = stat.as_ref().and_then(cpu_s).into();
        let wait = pid.filter(|_| is_operator).and_then(|pid| sys::cpu_wait(pid, THREADS_MAX));
        worker["cpu_wait_s"] = wait.map(|wait| wait.as_secs_f64()).into();
        if worker["rss"].is_null() {
            worker["rss"] = pid.and_then(resident_bytes).into();
        }
        if is_operator {
            let of_number = worker["nr"].as_u64().and_then(|nr| running.get_mut(&(nr as u32)));
            let own = of_number.into_iter().flatten().filter(|one| one.pid == pid);
            worker["running"] = own.map(|one| json!(one)).collect();
        }
    }
    shown
}

/// Seconds since a process was started.
fn age_s(stat: &ProcessStat) -> Option<f64> {
    const START_TIME: usize = 22;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now_s = now.tv_sec as f64 + now.tv_nsec as f64 / 1e9;
    Some((now_s - ticks_s(stat, START_TIME)?).max(0.0))
}

/// Seconds of CPU time that a process has used, and those of its children that it has waited for.
fn cpu_s(stat: &ProcessStat) -> Option<f64> {
    /// utime, stime, cutime and cstime.
    const TIMES: RangeInclusive<usize> = 14..=17;
    TIMES.map(|nr| ticks_s(stat, nr)).sum()
}

fn ticks_s(stat: &ProcessStat, nr: usize) -> Option<f64> {
    Some(stat.field::<f64>(nr)? / rustix::param::clock_ticks_per_second() as f64)
}

fn resident_bytes(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    Some(statm.split(' ').nth(1)?.parse::<u64>().ok()? * rustix::param::page_size() as u64)
}

pub(super) fn document(value: &Value) -> Response<Body> {
    with_type("application/json", Body::from(value.to_string().into_bytes()))
}
