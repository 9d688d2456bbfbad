//! What operators can have done: to one call, a worker, a pool, all pools, or the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clutch_host::{NamedPool, Plane};
use clutch_pool::pool::{Command, Denied, Pool};
use clutch_pool::work::WorkId;
use clutch_wire::sys;
use hyper::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, oneshot};

use super::pages::{document, facts};
use super::routes::{Target, Verb};
use crate::body::Body;
use crate::body::problem::Problem;
use crate::names::{quoted, suggestion};

type Answer = Result<Response<Body>, Box<Problem>>;

/// How many actions of a kind are waited for at a time; each needs a thread.
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

/// Of stops there are few, and they return at once. They find a place whatever else hangs.
static STOPS: Places = Places::new(4);

/// How often it is looked whether whoever waits is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// For a worker to show its stacks.
const STACKS_WAIT: Duration = Duration::from_secs(1);

pub(super) async fn act(plane: &Arc<Plane>, verb: Verb, target: Target, body: &[u8]) -> Answer {
    match (verb, target) {
        (Verb::Stop, _) => stop(plane, given(body)?).await,
        (Verb::Cancel, Target::Call(call)) => cancel(plane, call, given::<OfPool>(body)?.pool.as_deref()),
        (Verb::Scale, target) => {
            let Bounds { min, max } = given(body)?;
            scale(chosen(plane, &target)?, min, max).await
        }
        (verb, target) => {
            given::<Nothing>(body)?;
            let pools = chosen(plane, &target)?;
            match verb {
                Verb::Drain | Verb::Resume => Ok(quiet(&pools, verb == Verb::Drain)),
                Verb::Reload => reload(plane, &pools).await,
                _ => replace(verb, pools, &target).await,
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "no body, or {}")]
struct Nothing {}

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

/// The body, a JSON object; an empty one stands for no body.
fn given<T: DeserializeOwned>(body: &[u8]) -> Result<T, Box<Problem>> {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        Problem::bad_request(format!("the body is not the JSON object that is expected here: {error}"))
    })
}

/// The pools that are meant.
fn chosen(plane: &Plane, target: &Target) -> Result<Vec<NamedPool>, Box<Problem>> {
    let all = plane.pools.all();
    let (Target::Pool(name) | Target::Worker(name, _)) = target else { return Ok(all) };
    let found = all.iter().find(|(known, _)| **known == **name).cloned();
    found.map(|one| vec![one]).ok_or_else(|| no_such_pool(name, &all))
}

fn no_such_pool(name: &str, all: &[NamedPool]) -> Box<Problem> {
    let names = all.iter().map(|(name, _)| &**name);
    Problem::no_such_pool(format!("no pool '{}'{}", quoted(name), suggestion(name, names)))
}

fn done(pools: &[NamedPool]) -> Response<Body> {
    let names: Vec<&str> = pools.iter().map(|(name, _)| &**name).collect();
    document(&json!({ "pools": names }))
}

fn quiet(pools: &[NamedPool], quiet: bool) -> Response<Body> {
    for (_, pool) in pools {
        pool.set_quiet(quiet);
        pool.note_action(if quiet { "takes no more work" } else { "takes work again" });
    }
    done(pools)
}

async fn scale(pools: Vec<NamedPool>, min: usize, max: usize) -> Answer {
    let workers = if min == max { format!("{max} workers") } else { format!("{min} to {max} workers") };
    for (_, pool) in pools.clone() {
        let scaled = pool.clone();
        blocking(move |waits| carried(&scaled, Command::Scale { min, max }, &waits)).await??;
        pool.note_action(&*workers);
    }
    Ok(done(&pools))
}

fn cancel(plane: &Plane, call: WorkId, pool: Option<&str>) -> Answer {
    let target = pool.map_or(Target::All, |name| Target::Pool(name.to_owned()));
    let mut having = chosen(plane, &target)?;
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

async fn reload(plane: &Arc<Plane>, pools: &[NamedPool]) -> Answer {
    let names: Vec<String> = pools.iter().map(|(name, _)| name.to_string()).collect();
    let (plane, asked) = (plane.clone(), names.clone());
    let of_process = facts(&plane);
    let failed = blocking(move |_| plane.program.reload(asked)).await?.map_err(Problem::refused)?;
    Ok(document(&with(of_process, [("pools", json!(names)), ("failed", json!(failed))])))
}

async fn stop(plane: &Arc<Plane>, Stop { now }: Stop) -> Answer {
    let page = facts(plane);
    let plane = plane.clone();
    blocking_in(&STOPS, move |_| plane.program.stop(now)).await?.map_err(Problem::refused)?;
    Ok(document(&page.into()))
}

/// `with_tokens`: for those who could read them in the configuration, too.
pub(super) async fn fronts(plane: &Arc<Plane>, with_tokens: bool) -> Answer {
    let plane = plane.clone();
    let mut fronts = blocking(move |_| plane.program.fronts()).await?.map_err(Problem::refused)?;
    for front in fronts.as_object_mut().into_iter().flat_map(|fronts| fronts.values_mut()) {
        if !with_tokens && let Some(front) = front.as_object_mut() {
            front.remove("token");
        }
    }
    Ok(document(&json!({ "fronts": fronts })))
}

/// Recycles or kills, and waits until that is done.
async fn replace(verb: Verb, pools: Vec<NamedPool>, target: &Target) -> Answer {
    let nr = if let Target::Worker(_, nr) = target { Some(*nr) } else { None };
    let command = match (verb, nr) {
        (Verb::Kill, Some(nr)) => Command::Kill { nr },
        _ => Command::Recycle { nr },
    };
    for (_, pool) in &pools {
        let pool = pool.clone();
        blocking(move |waits| carried(&pool, command, &waits)).await??;
    }
    Ok(done(&pools))
}

/// What came of an order to the supervisor, for as long as somebody waits.
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

/// By the worker's name, `pool/0`.
pub(super) async fn stacks(plane: &Arc<Plane>, target: Target, query: &str) -> Answer {
    let only = match query {
        "" => None,
        _ => Some(query.strip_prefix("pool=").ok_or_else(|| Problem::bad_request("the query can only be ?pool=NAME"))?),
    };
    let of_pool = only.map(|name| Target::Pool(name.to_owned()));
    let pools = chosen(plane, of_pool.as_ref().unwrap_or(&target))?;
    let (nr, call) = match target {
        Target::Worker(_, nr) => (Some(nr), None),
        Target::Call(call) => (None, Some(call)),
        _ => (None, None),
    };
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

/// Why each of the others has no stacks.
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
async fn blocking<T: Send + 'static>(
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
