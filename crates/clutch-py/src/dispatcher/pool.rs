//! `clutch.Pool`'s native half: functions to numbers, arguments to payloads, and the door of the core's pool.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clutch_pool::config::{Overflow, PoolConfig};
use clutch_pool::pool::{Answer, Command, Denied, Health, Pool};
use clutch_pool::supervisor::{self, Identity, descriptors_of, make_room};
use clutch_pool::work::{FunctionId, Refusal, Work, WorkKind};
use clutch_wire::Codec;
use clutch_wire::stdio::Stream;
use clutch_wire::sync::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyCFunction, PyDict, PyString, PyTuple, PyType};

use crate::codec::{self, BY_VALUE, Encoded, Encoder};
use crate::dispatcher::finalizing::wait_when_finalizing;
use crate::dispatcher::future::{Completion, StreamCore};
use crate::dispatcher::number::Number;
use crate::dispatcher::registry;
use crate::dispatcher::timeout::{until, wait_in_slices};
use crate::errors::{clutch_error, forked_error, refusal_error, told};

mod batch;
mod by_value;
mod call_options;
mod code;
mod insights;
mod python_call;

pub use self::call_options::CallOptions;
pub use self::code::MapFunction;
use self::code::SentFunctions;
use self::python_call::{PythonCall, name_of, unsendable};

/// Functions remembered by identity; beyond that they are looked up anew.
const REFERENCES_MAX: usize = 4096;

/// Maximum wait for the stacks of a worker.
const STACKS_WAIT_MAX_S: f64 = 60.0;

struct Open {
    pool: Arc<Pool>,
    /// Makes an empty `clutch.Future`, `clutch.Stream`.
    new_future: Py<PyAny>,
    new_stream: Py<PyAny>,
    /// Whether workers cannot import `__main__`, so that all code is sent by value.
    by_value: bool,
    blocks: bool,
    deadline: Option<Duration>,
    names: Mutex<HashMap<String, FunctionId>>,
    references: Mutex<HashMap<usize, (Py<PyAny>, FunctionId)>>,
    sent_functions: SentFunctions,
}

/// A function as it is sent.
enum Reference<'py> {
    Number(FunctionId),
    /// Sent within the payload.
    ByValue(Bound<'py, PyAny>),
}

/// Base of `clutch.Pool`.
#[pyclass(frozen, subclass, weakref, module = "clutch._core")]
pub struct PoolCore {
    open: OnceLock<Open>,
    /// Why it will never be open.
    unopened: OnceLock<String>,
}

impl PoolCore {
    fn open(&self, py: Python<'_>) -> PyResult<&Open> {
        wait_when_finalizing();
        let open = self.open.get().ok_or_else(|| match self.unopened.get() {
            Some(why) => clutch_error(py, "PoolClosed", why, &[]),
            None => PyRuntimeError::new_err("a pool that was never opened"),
        })?;
        if open.pool.is_forked() { Err(forked_error(py)) } else { Ok(open) }
    }

    pub fn core(&self, py: Python<'_>) -> PyResult<Arc<Pool>> {
        Ok(self.open(py)?.pool.clone())
    }
}

/// Returns a reference by value. Fails for a tool with `serial` or `main_thread`, which hold between the calls of a
/// worker: a function that is new there with each call cannot keep them.
fn by_value<'py>(function: &Bound<'py, PyAny>) -> PyResult<Reference<'py>> {
    static OPTIONS_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let options = OPTIONS_OF.import(function.py(), "clutch.tools", "options_of")?.call1((function,))?;
    let is_set = |option: &str| options.getattr(option)?.is_truthy();
    if !options.is_none() && (is_set("serial")? || is_set("main_thread")?) {
        let message = format!(
            "{} is a tool with serial or main_thread, which holds only where workers find the function by its name: \
             put it into a module, and pass the function itself",
            function.repr()?
        );
        return Err(clutch_error(function.py(), "BadArguments", &message, &[]));
    }
    Ok(Reference::ByValue(function.clone()))
}

impl Open {
    fn reference<'py>(&self, function: &Bound<'py, PyAny>) -> PyResult<Reference<'py>> {
        if let Ok(name) = function.cast_exact::<PyString>() {
            return self.named(name.to_str()?).map(Reference::Number);
        }
        if let Some((_, number)) = self.references.lock().get(&(function.as_ptr() as usize)) {
            return Ok(Reference::Number(*number));
        }
        self.new_reference(function)
    }

    fn named(&self, name: &str) -> PyResult<FunctionId> {
        if let Some(number) = self.names.lock().get(name) {
            return Ok(*number);
        }
        let number = self.pool.function(Codec::Name, name.as_bytes(), name);
        self.names.lock().insert(name.to_owned(), number);
        Ok(number)
    }

    /// Functions that workers can import get a number; everything else goes with the arguments.
    fn new_reference<'py>(&self, function: &Bound<'py, PyAny>) -> PyResult<Reference<'py>> {
        if !function.is_callable() {
            let message = format!("{} is neither callable nor the name of a tool", function.repr()?);
            return Err(clutch_error(function.py(), "BadArguments", &message, &[]));
        }
        let py = function.py();
        // PyO3's `PyFunction` is not there in the stable ABI.
        static FUNCTION_TYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let stable = function.get_type().is(FUNCTION_TYPE.import(py, "types", "FunctionType")?)
            || function.is_exact_instance_of::<PyCFunction>()
            || function.is_instance_of::<PyType>();
        let bound = function.getattr("__self__").is_ok_and(|bound| !bound.is_instance_of::<pyo3::types::PyModule>());
        let is_of_main = function.getattr("__module__").is_ok_and(|of| of.eq("__main__").unwrap_or(false));
        if is_of_main && !self.by_value {
            static CARRIED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let carried = CARRIED.import(py, "clutch._pickle.hidden", "carried")?.call1((function,))?;
            if !carried.is(function) {
                by_value(function)?;
                return Ok(Reference::ByValue(carried));
            }
        }
        if !stable || bound || (is_of_main && self.by_value) {
            return by_value(function);
        }
        let Ok(body) = py.import("pickle")?.call_method1("dumps", (function, 5)) else {
            return by_value(function);
        };
        let name = name_of(function).unwrap_or_default();
        let number = self.pool.function(Codec::Pickle, body.cast::<PyBytes>()?.as_bytes(), &name);
        let mut references = self.references.lock();
        if references.len() < REFERENCES_MAX {
            references.insert(function.as_ptr() as usize, (function.clone().unbind(), number));
        }
        Ok(Reference::Number(number))
    }

    fn encode(&self, asked: &PythonCall<'_, '_>) -> PyResult<(FunctionId, Encoded)> {
        let regions = self.pool.regions();
        match self.reference(asked.function)? {
            Reference::Number(number) => {
                let encoded = Encoder::new(regions)
                    .arguments(asked.args, asked.kwargs, self.by_value)
                    .map_err(|error| unsendable(asked, error))?;
                Ok((number, encoded))
            }
            Reference::ByValue(function) => {
                let encoded = self.encode_by_value(asked, &function).map_err(|error| unsendable(asked, error))?;
                Ok((BY_VALUE, encoded))
            }
        }
    }

    fn check_size(&self, py: Python<'_>, encoded: &Encoded) -> PyResult<()> {
        let (bytes, allowed) = (encoded.payload.bytes_total(), self.pool.config.payload_bytes_max);
        if bytes <= allowed {
            return Ok(());
        }
        let message = format!("arguments of {bytes} bytes; payload_max allows {allowed}");
        Err(clutch_error(py, "BadArguments", &message, &[]))
    }

    fn work(
        &self,
        function: FunctionId,
        encoded: Encoded,
        options: &CallOptions,
        answer: &Arc<Answer>,
    ) -> PyResult<Work> {
        Python::attach(|py| self.check_size(py, &encoded))?;
        encoded.function.into_iter().for_each(|name| answer.set_what(name));
        let deadline = options.deadline.or(self.deadline);
        Ok(Work {
            deadline: deadline.and_then(|wait| Instant::now().checked_add(wait)),
            priority: options.priority,
            by_value: encoded.by_value,
            run_limit: options.item_limit,
            one_value: true,
            retry: options.retry,
            ..Work::new(WorkKind::CALL, function, encoded.payload, answer.clone())
        })
    }

    fn call<'py>(&self, asked: &PythonCall<'_, 'py>, options: &CallOptions) -> PyResult<Bound<'py, PyAny>> {
        let py = asked.function.py();
        let answer = Arc::new(Answer::default());
        let (function, encoded) = self.encode(asked)?;
        let work = self.work(function, encoded, options, &answer)?;
        let mut interrupt = None;
        py.detach(|| {
            let mut interrupted = || {
                if interrupt.is_none() {
                    interrupt = Python::attach(|py| py.check_signals().err());
                }
                interrupt.is_some()
            };
            self.pool.call(work, &answer, options.block, &mut interrupted);
        });
        if let Some(error) = interrupt {
            return Err(error);
        }
        if self.pool.is_forked() {
            return Err(forked_error(py));
        }
        let outcome = answer.take_outcome().ok_or_else(|| PyRuntimeError::new_err("no outcome"))?;
        told(py, &outcome, |payload| codec::decode(py, payload))?
    }

    fn submit<'py>(&self, asked: &PythonCall<'_, 'py>, options: &CallOptions) -> PyResult<Bound<'py, PyAny>> {
        let (function, encoded) = self.encode(asked)?;
        let future = self.submit_encoded(asked.function.py(), function, encoded, options, 0)?;
        self.wait_for_room(&future, options)?;
        Ok(future)
    }

    fn submit_encoded<'py>(
        &self,
        py: Python<'py>,
        function: FunctionId,
        encoded: Encoded,
        options: &CallOptions,
        items: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let future = self.new_future.bind(py).call0()?;
        let answer = Arc::new(Answer::default());
        let kind = if items > 0 { WorkKind::BATCH } else { WorkKind::CALL };
        let work = Work { kind, items, ..self.work(function, encoded, options, &answer)? };
        let completion = future.cast::<Completion>()?;
        // Not detached: it never blocks, and giving up the GIL costs more than it takes.
        let id = self.pool.submit(work, options.block);
        answer.set_id(id);
        raise_if_closed(py, &answer)?;
        completion.get().hold(self.pool.clone(), answer);
        Ok(future)
    }

    fn wait_for_room(&self, future: &Bound<'_, PyAny>, options: &CallOptions) -> PyResult<()> {
        let waits = self.blocks || options.block;
        if waits { future.call_method0("_wait_for_room").map(drop) } else { Ok(()) }
    }
}

/// Python knows which of its standard streams were closed when it started.
fn leave_out_missing(py: Python<'_>) -> PyResult<()> {
    let sys = py.import("sys")?;
    for (name, stream) in [("__stdout__", Stream::Out), ("__stderr__", Stream::Err)] {
        if sys.getattr(name)?.is_none() {
            stream.leave_out();
        }
    }
    Ok(())
}

/// A closed pool is the submitter's mistake and raises at once, as by the standard library's executors.
fn raise_if_closed(py: Python<'_>, answer: &Answer) -> PyResult<()> {
    match answer.refusal() {
        Some(refusal @ Refusal::Closed { .. }) => Err(refusal_error(py, &refusal)),
        _ => Ok(()),
    }
}

#[pymethods]
impl PoolCore {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> PoolCore {
        PoolCore { open: OnceLock::new(), unopened: OnceLock::new() }
    }

    /// Starts the pool. `config` is the JSON of `config.rs:PoolConfig`; `own`: this interpreter's cache tag, and the items
    /// of its environment.
    fn _open(
        &self,
        py: Python<'_>,
        config: &str,
        own: (String, Vec<(OsString, OsString)>),
        new_future: Py<PyAny>,
        new_stream: Py<PyAny>,
        by_value: bool,
    ) -> PyResult<()> {
        let wrong = |error: serde_json::Error| PyValueError::new_err(format!("the pool's config: {error}"));
        let config: PoolConfig = serde_json::from_str(config).map_err(wrong)?;
        let (blocks, deadline) =
            (config.overflow == Overflow::Block && config.queue_limit.is_some(), config.deadline());
        leave_out_missing(py)?;
        let workers = config.shape.workers as usize;
        let left = make_room(&config.name, workers, descriptors_of(workers)).map_err(|why| config_error(py, &why))?;
        let (pool, driver) = Pool::new(config, registry::telemetry()?)?;
        pool.regions().bound_by(left);
        // Number 0 means that the function comes with the arguments.
        pool.function(Codec::Empty, b"", "");
        let (tag, environ) = own;
        supervisor::start(driver, Identity { tag, environ })?;
        let (names, references, sent_functions) = (Mutex::default(), Mutex::default(), SentFunctions::default());
        let open = Open { pool, new_future, new_stream, by_value, blocks, deadline, names, references, sent_functions };
        self.open.set(open).map_err(|_| PyRuntimeError::new_err("opened twice"))
    }

    /// Runs a tool, by name, or a function in a worker and returns its value. Blocks this thread.
    #[pyo3(signature = (function, /, *args, **kwargs))]
    fn call<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.open(function.py())?.call(&PythonCall { function, args, kwargs }, &CallOptions::default())
    }

    /// Submits a tool, by name, or a function; returns a `clutch.Future` at once.
    #[pyo3(signature = (function, /, *args, **kwargs))]
    fn submit<'py>(
        &self,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.open(function.py())?.submit(&PythonCall { function, args, kwargs }, &CallOptions::default())
    }

    fn _call_with<'py>(
        &self,
        options: &CallOptions,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.open(function.py())?.call(&PythonCall { function, args, kwargs: Some(kwargs) }, options)
    }

    fn _submit_with<'py>(
        &self,
        options: &CallOptions,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.open(function.py())?.submit(&PythonCall { function, args, kwargs: Some(kwargs) }, options)
    }

    /// Submits a generator; its values come through the returned `clutch.Stream`.
    fn _stream_with<'py>(
        &self,
        options: &CallOptions,
        function: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = function.py();
        let open = self.open(py)?;
        let (number, encoded) = open.encode(&PythonCall { function, args, kwargs: Some(kwargs) })?;
        let stream = open.new_stream.bind(py).call0()?;
        let answer = Arc::new(Answer::default());
        let work = Work { one_value: false, ..open.work(number, encoded, options, &answer)? };
        let id = py.detach(|| open.pool.submit(work, options.block));
        answer.set_id(id);
        raise_if_closed(py, &answer)?;
        stream.cast::<StreamCore>()?.get().hold(open.pool.clone(), answer);
        Ok(stream)
    }

    /// Submits `batch.items` of a map; with `spread` each item is a tuple of arguments. The result of `batch.future` is
    /// `(values, [(index, exception)], run time in ns)`. What breaks it off comes before that is set, and nothing was
    /// submitted, or after it. Returns an exception where the items cannot go as one batch; nothing was submitted then.
    fn _submit_batch<'py>(
        &self,
        options: &CallOptions,
        function: &Bound<'py, MapFunction>,
        spread: bool,
        batch: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        self.open(function.py())?.submit_batch(function, spread, batch, options)
    }

    /// Counts and workers, as JSON.
    fn _stats(&self, py: Python<'_>) -> PyResult<String> {
        let open = self.open(py)?;
        let stats = py.detach(|| open.pool.stats());
        serde_json::to_string(&stats).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Makes every use of it raise `PoolClosed` with this message.
    fn _never_open(&self, why: String) {
        let _ = self.unopened.set(why); // the first word stands
    }

    /// `(workers so far, seconds of their slots: until ready, waiting, running; slowest)`, each of these
    /// `(function, seconds, arguments)`, the arguments `(args, kwargs)`, or None where they were not kept or cannot be read.
    fn _insights<'py>(&self, py: Python<'py>) -> PyResult<insights::Report<'py>> {
        let pool = self.core(py)?;
        insights::told(py, py.detach(|| pool.insights()))
    }

    /// Returns the work that workers run, as a JSON object by worker's number: lists of `{id, what, job, seconds,
    /// abandoned, pid}`.
    fn _running(&self, py: Python<'_>) -> PyResult<String> {
        let pool = self.core(py)?;
        let shown = py.detach(|| pool.running_by_nr());
        serde_json::to_string(&shown).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Whether this work waits or runs and its caller still waits for it.
    fn _is_awaited(&self, py: Python<'_>, id: Number<u64>) -> PyResult<bool> {
        let pool = self.core(py)?;
        Ok(id.0.is_some_and(|id| pool.is_awaited(id)))
    }

    /// Stops one piece of work wherever it is; False: the pool does not have it.
    fn _cancel(&self, py: Python<'_>, id: Number<u64>) -> PyResult<bool> {
        let pool = self.core(py)?;
        Ok(py.detach(|| id.0.is_some_and(|id| pool.cancel(id))))
    }

    /// `(worker's number, stacks)` of every worker, of the one with this number, or of the one that has this work. A
    /// worker that does not answer within `timeout` seconds is left out.
    #[pyo3(signature = (nr = None, call = None, timeout = 1.0))]
    fn _stacks(
        &self,
        py: Python<'_>,
        nr: Option<Number<u32>>,
        call: Option<Number<u64>>,
        timeout: f64,
    ) -> PyResult<Vec<(u32, String)>> {
        let pool = self.core(py)?;
        until(Some(timeout))?; // raises where it is no number
        let wait = Duration::from_secs_f64(timeout.clamp(0.0, STACKS_WAIT_MAX_S));
        // A number that no worker or call can have: nothing is found.
        let (nr, call) = (nr.map(|nr| nr.0.unwrap_or(u32::MAX)), call.map(|id| id.0.unwrap_or(u64::MAX)));
        Ok(py.detach(|| pool.stacks_by_nr(nr, call, wait)))
    }

    /// Waits until this many workers are ready. Returns `(ready, reason)`, with the reason why none can start.
    #[pyo3(signature = (count, timeout = None))]
    fn _wait_ready(&self, py: Python<'_>, count: usize, timeout: Option<f64>) -> PyResult<(bool, Option<String>)> {
        let seen = Mutex::new((false, None));
        self.wait(py, timeout, |status| {
            let over = matches!(status.health, Health::Failing | Health::Closed);
            let ready = status.ready >= count;
            *seen.lock() = (ready, status.reason.clone());
            ready || over
        })?;
        Ok(seen.into_inner())
    }

    /// Waits until the last process of the pool is gone.
    #[pyo3(signature = (timeout = None))]
    fn _wait_closed(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.wait(py, timeout, |status| status.health == Health::Closed)
    }

    /// Takes no more submissions; the pool ends when all work is done.
    fn _close(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.open(py)?;
        py.detach(|| open.pool.close());
        Ok(())
    }

    fn _cancel_waiting(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.open(py)?;
        py.detach(|| open.pool.cancel_waiting());
        Ok(())
    }

    /// Loads the code anew and waits until all workers run it; False: not in time, it goes on. Raises ConfigError when
    /// the new code cannot be run.
    #[pyo3(signature = (timeout = None))]
    fn _reload(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.carry(py, Command::Reload, timeout)
    }

    /// Replaces one worker, or all of them in turn, and waits until they are gone; False: not in time.
    #[pyo3(signature = (nr = None, timeout = None))]
    fn _recycle(&self, py: Python<'_>, nr: Option<u32>, timeout: Option<f64>) -> PyResult<bool> {
        self.carry(py, Command::Recycle { nr }, timeout)
    }

    /// Ends one worker at once, and waits until it is gone; False: not in time.
    #[pyo3(signature = (nr, timeout = None))]
    fn _kill(&self, py: Python<'_>, nr: u32, timeout: Option<f64>) -> PyResult<bool> {
        self.carry(py, Command::Kill { nr }, timeout)
    }

    /// Sets the minimum and maximum number of workers.
    fn _scale(&self, py: Python<'_>, min: usize, max: usize) -> PyResult<()> {
        self.carry(py, Command::Scale { min, max }, None).map(drop)
    }

    /// Stops or resumes taking work; accepted work is finished.
    fn _quiet(&self, py: Python<'_>, quiet: bool) -> PyResult<()> {
        let pool = self.core(py)?;
        py.detach(|| pool.set_quiet(quiet));
        Ok(())
    }

    /// Cuts off what workers have, after so many seconds: its code is told to stop.
    fn _cut_off(&self, py: Python<'_>, after: f64) -> PyResult<()> {
        let pool = self.core(py)?;
        let after = Duration::try_from_secs_f64(after.max(0.0)).unwrap_or(Duration::MAX / 4);
        py.detach(|| pool.cut_off(after));
        Ok(())
    }

    /// Closes, waits `grace` seconds for running work, then sends TERM, then KILL. With 0, running work is cut
    /// off at once; idle workers still end gracefully.
    fn _stop(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        let pool = self.core(py)?;
        let grace = Duration::try_from_secs_f64(grace.max(0.0)).unwrap_or(Duration::MAX / 4);
        let term = supervisor::state::stop_term(grace, pool.config.term_grace());
        py.detach(|| pool.stop(grace, term));
        Ok(())
    }

    /// Closes, sends TERM to the workers at once, and KILL `term_grace` later.
    fn _terminate(&self, py: Python<'_>) -> PyResult<()> {
        let pool = self.core(py)?;
        py.detach(|| pool.end_workers(pool.config.term_grace()));
        Ok(())
    }

    /// Closes, and kills the workers at once.
    fn _kill_all(&self, py: Python<'_>) -> PyResult<()> {
        let pool = self.core(py)?;
        py.detach(|| pool.end_workers(Duration::ZERO));
        Ok(())
    }
}

fn config_error(py: Python<'_>, message: &str) -> PyErr {
    clutch_error(py, "ConfigError", message, &[])
}

impl PoolCore {
    /// Gives an order to the supervisor and waits for its outcome. False: not in time.
    fn carry(&self, py: Python<'_>, command: Command, timeout: Option<f64>) -> PyResult<bool> {
        until(timeout)?; // raises before anything is done
        let pool = self.core(py)?;
        let closed = || refusal_error(py, &Refusal::Closed { pool: pool.config.name.clone() });
        let denial = |denied| match denied {
            Denied::Closed => closed(),
            Denied::NoSuchWorker(detail) | Denied::NotAllowed(detail) => PyValueError::new_err(detail),
            Denied::Failed(reason) => config_error(py, &reason),
        };
        let order = pool.order(command).map_err(denial)?;
        match self.wait_in_slices(py, timeout, |at| order.wait(at))? {
            None => Ok(false),
            Some(carried) => carried.map(|()| true).map_err(denial),
        }
    }

    fn wait(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        done: impl Fn(&clutch_pool::pool::Status) -> bool + Sync,
    ) -> PyResult<bool> {
        let pool = self.core(py)?;
        let held = self.wait_in_slices(py, timeout, |at| pool.wait_status(Some(at), &done).then_some(()))?;
        Ok(held.is_some())
    }

    /// Waits without the GIL, checking for signals, whose handlers may have forked. None: not in time.
    fn wait_in_slices<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        wait: impl Fn(Instant) -> Option<T> + Sync,
    ) -> PyResult<Option<T>> {
        wait_in_slices(py, timeout, wait, || self.open(py).map(drop))
    }
}
