//! Actions of operators: on one call, a worker, a pool, all pools, or the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clutch_host::body::Nothing;
use clutch_host::{NamedPool, Plane};
use clutch_pool::pool::{Command, Denied, Pool};
use clutch_pool::work::WorkId;
use clutch_wire::sys;
use hyper::Response;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, oneshot};

use super::asked::{Answer, Asked};
use super::pages::{document, facts};
use crate::body::Body;
use crate::body::problem::Problem;
use crate::names::{quoted, suggestion};

/// Limit of the actions of a kind that are waited for at a time; each needs a thread.
struct Places {
    most: usize,
    free: Semaphore,
}

impl Places {
    const fn new(most: usize) -> Places {
        Places { most, free: Semaphore::const_new(most) }
    }
}

static WAITED_FOR: Places = Places::new(32);

/// Places of stops, which are few and return at once: they find one whatever else hangs.
static STOPS: Places = Places::new(4);

/// Interval of the looks whether whoever waits is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Time that a worker has to show its stacks.
const STACKS_WAIT: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object such as {\"min\": 2, \"max\": 8}")]
struct Bounds {
    min: usize,
    max: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object such as {\"pool\": \"api\"}")]
struct OfPool {
    pool: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object such as {\"now\": true}")]
struct Stop {
    #[serde(default)]
    now: bool,
}

/// Returns the pools that are meant: the one of that name, or all.
fn chosen(plane: &Plane, name: Option<&str>) -> Result<Vec<NamedPool>, Box<Problem>> {
    let all = plane.pools.all();
    let Some(name) = name else { return Ok(all) };
    let found = all.iter().find(|(known, _)| **known == *name).cloned();
    found.map(|one| vec![one]).ok_or_else(|| no_such_pool(name, &all))
}

/// The same for an action that is told nothing beside its path.
fn chosen_alone(asked: &Asked) -> Result<Vec<NamedPool>, Box<Problem>> {
    let Nothing {} = asked.given()?;
    chosen(&asked.plane, asked.names.get("pool"))
}

fn no_such_pool(name: &str, all: &[NamedPool]) -> Box<Problem> {
    let names = all.iter().map(|(name, _)| &**name);
    Problem::no_such_pool(format!("no pool '{}'{}", quoted(name), suggestion(name, names)))
}

fn done(pools: &[NamedPool]) -> Response<Body> {
    let names: Vec<&str> = pools.iter().map(|(name, _)| &**name).collect();
    document(&json!({ "pools": names }))
}

pub(super) async fn drain(asked: Asked) -> Answer {
    Ok(quiet(&chosen_alone(&asked)?, true))
}

pub(super) async fn resume(asked: Asked) -> Answer {
    Ok(quiet(&chosen_alone(&asked)?, false))
}

fn quiet(pools: &[NamedPool], quiet: bool) -> Response<Body> {
    for (_, pool) in pools {
        pool.set_quiet(quiet);
        pool.note_action(if quiet { "takes no more work" } else { "takes work again" });
    }
    done(pools)
}

pub(super) async fn scale(asked: Asked) -> Answer {
    let Bounds { min, max } = asked.given()?;
    let pools = chosen(&asked.plane, asked.names.get("pool"))?;
    let workers = if min == max { format!("{max} workers") } else { format!("{min} to {max} workers") };
    order(&pools, Command::Scale { min, max }).await?;
    pools.iter().for_each(|(_, pool)| pool.note_action(&*workers));
    Ok(done(&pools))
}

pub(super) async fn cancel(asked: Asked) -> Answer {
    let (Some(call), OfPool { pool }) = (asked.names.number::<WorkId>("call"), asked.given()?) else {
        return Err(Problem::no_such_call("the id of a call is a number"));
    };
    let mut having = chosen(&asked.plane, pool.as_deref())?;
    // Numbers of calls are their pool's own: two pools may have the same.
    having.retain(|(_, pool)| pool.is_awaited(call));
    if having.len() > 1 {
        let names: Vec<&str> = having.iter().map(|(name, _)| &**name).collect();
        let names = names.join(" and ");
        return Err(Problem::refused(format!("pools {names} both have a call {call}: name one of them with --pool")));
    }
    match having.first().filter(|(_, pool)| pool.cancel(call)) {
        Some((_, pool)) => {
            pool.note_action(format!("call {call} cancelled"));
            Ok(done(&having))
        }
        None => Err(Problem::no_such_call(format!(
            "no call {call} waits or runs, or it was told to stop before; `clutch ps` lists those that run"
        ))),
    }
}

pub(super) async fn reload(asked: Asked) -> Answer {
    let pools = chosen_alone(&asked)?;
    let names: Vec<String> = pools.iter().map(|(name, _)| name.to_string()).collect();
    let (plane, reloaded) = (asked.plane, names.clone());
    let of_process = facts(&plane);
    let failed = blocking(move |_| plane.program.reload(reloaded)).await?.map_err(Problem::refused)?;
    Ok(document(&with(of_process, [("pools", json!(names)), ("failed", json!(failed))])))
}

pub(super) async fn stop(asked: Asked) -> Answer {
    let (Stop { now }, plane) = (asked.given()?, asked.plane);
    let page = facts(&plane);
    blocking_in(&STOPS, move |_| plane.program.stop(now)).await?.map_err(Problem::refused)?;
    Ok(document(&page.into()))
}

/// Shows tokens to those who could read them in the configuration, too.
pub(super) async fn fronts(asked: Asked) -> Answer {
    let (plane, with_tokens) = (asked.plane, asked.access_control.is_unix());
    let mut fronts = blocking(move |_| plane.program.fronts()).await?.map_err(Problem::refused)?;
    for front in fronts.as_object_mut().into_iter().flat_map(|fronts| fronts.values_mut()) {
        if !with_tokens && let Some(front) = front.as_object_mut() {
            front.remove("token");
        }
    }
    Ok(document(&json!({ "fronts": fronts })))
}

/// Recycles one worker or all, and waits until that is done.
pub(super) async fn recycle(asked: Asked) -> Answer {
    let pools = chosen_alone(&asked)?;
    order(&pools, Command::Recycle { nr: asked.names.number("nr") }).await?;
    Ok(done(&pools))
}

/// Kills a worker, and waits until it is gone.
pub(super) async fn kill(asked: Asked) -> Answer {
    let pools = chosen_alone(&asked)?;
    let nr = asked.names.number("nr").ok_or_else(|| Problem::no_such_worker("the number of a worker is small"))?;
    order(&pools, Command::Kill { nr }).await?;
    Ok(done(&pools))
}

/// Has a command carried out in these pools, one after the other.
async fn order(pools: &[NamedPool], command: Command) -> Result<(), Box<Problem>> {
    for (_, pool) in pools {
        let pool = pool.clone();
        blocking(move |waits| carried(&pool, command, &waits)).await??;
    }
    Ok(())
}

/// Waits for what comes of an order to the supervisor, for as long as somebody asks for it.
fn carried(pool: &Pool, command: Command, waits: &AtomicBool) -> Result<(), Box<Problem>> {
    let order = pool.order(command).map_err(|denied| denial(pool, denied))?;
    while waits.load(Ordering::Relaxed) {
        if let Some(carried) = order.wait(Instant::now() + LOOK_INTERVAL) {
            return carried.map_err(|denied| denial(pool, denied));
        }
    }
    Ok(())
}

fn denial(pool: &Pool, denied: Denied) -> Box<Problem> {
    match denied {
        Denied::Closed => Problem::refused(format!("pool '{}' is closed", pool.config.name)),
        Denied::NoSuchWorker(detail) => Problem::no_such_worker(detail),
        Denied::NotAllowed(detail) => Problem::bad_request(detail),
        Denied::Failed(reason) => Problem::refused(reason),
    }
}

/// Shows stacks by the worker's name, `pool/0`.
pub(super) async fn stacks(asked: Asked) -> Answer {
    let only = match asked.query() {
        "" => asked.names.get("pool"),
        query => {
            Some(query.strip_prefix("pool=").ok_or_else(|| Problem::bad_request("the query can only be ?pool=NAME"))?)
        }
    };
    let pools = chosen(&asked.plane, only)?;
    let (nr, call) = (asked.names.number("nr"), asked.names.number("call"));
    if let (Some(nr), [(_, pool)]) = (nr, &pools[..]) {
        pool.check_worker(nr).map_err(|denied| denial(pool, denied))?;
    }
    let found = blocking(move |_| {
        let found = pools.iter().flat_map(|(name, pool)| {
            let stacks = pool.stacks_by_nr(nr, call, STACKS_WAIT);
            let silent = if call.is_none() { silent(name, pool, nr, &stacks) } else { Vec::new() };
            stacks.into_iter().chain(silent).map(move |(nr, text)| (format!("{name}/{nr}"), Value::from(text)))
        });
        found.collect::<Map<String, Value>>()
    });
    let found = found.await?;
    match call.filter(|_| found.is_empty()) {
        None => Ok(document(&found.into())),
        Some(call) => Err(Problem::no_such_call(format!("no call {call} runs; `clutch ps` lists those that do"))),
    }
}

/// Says why each of the others has no stacks.
fn silent(name: &str, pool: &Pool, only: Option<u32>, shown: &[(u32, String)]) -> Vec<(u32, String)> {
    let workers = pool.status().workers.into_iter().map(|(_, view)| view);
    let is_meant = |nr: u32| only.is_none_or(|only| only == nr) && shown.iter().all(|(known, _)| *known != nr);
    let told = workers.filter(|view| is_meant(view.nr)).map(|view| {
        let why = match (view.state, view.pid) {
            ("stopped", Some(pid)) => format!("stopped by a signal and cannot answer: kill -CONT {pid}"),
            (state, _) => format!("does not answer ({state})"),
        };
        (view.nr, format!("worker {name}/{} {why}", view.nr))
    });
    told.collect()
}

fn with<const N: usize>(mut page: Map<String, Value>, members: [(&str, Value); N]) -> Value {
    page.extend(members.map(|(name, value)| (name.to_owned(), value)));
    page.into()
}

/// Runs what may block beside the plane's own thread. It is told by the flag when nobody waits for it any more.
pub(super) async fn blocking<T: Send + 'static>(
    run: impl FnOnce(Arc<AtomicBool>) -> T + Send + 'static,
) -> Result<T, Box<Problem>> {
    blocking_in(&WAITED_FOR, run).await
}

async fn blocking_in<T: Send + 'static>(
    places: &'static Places,
    run: impl FnOnce(Arc<AtomicBool>) -> T + Send + 'static,
) -> Result<T, Box<Problem>> {
    struct Waits(Arc<AtomicBool>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }
    let permit = places.free.try_acquire().map_err(|_| Problem::too_many_actions(places.most))?;
    let waits = Waits(Arc::new(AtomicBool::new(true)));
    let flag = waits.0.clone();
    let (tell, told) = oneshot::channel();
    let act = move || {
        sys::block_signals();
        let _permit = permit;
        // Whoever asked may have left.
        let _ = tell.send(run(flag));
    };
    // Not in the runtime's own, which panics where no thread can be had.
    let spawned = std::thread::Builder::new().name("clutch-command".to_owned()).spawn(act);
    spawned.map_err(|error| Problem::refused(format!("it needs a thread, and none can be had: {error}")))?;
    told.await.map_err(|_| Problem::refused("it was broken off"))
}
