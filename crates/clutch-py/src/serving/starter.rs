//! Coroutines that are started at once: each becomes a real task of the running loop and takes its first step here
//! and now, in a context of its own. Most need no second one, and the loop never hears of them.
//!
//! From Python 3.12 on tasks can do that by themselves (`eager_start`). Before, a task asks its loop to take the first step
//! soon: what it asks for is caught, and done now. Nor is it entered into the list of all tasks before it waits for
//! something, which costs as much as the task itself.

use clutch_wire::sync::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::{collector, context};

/// Starts the tasks of one loop.
#[pyclass(frozen, module = "clutch._core")]
pub struct EagerStarter {
    event_loop: Py<PyAny>,
    /// `asyncio.Task` with the loop, and with `eager_start` where there is such a thing.
    make: Py<PyAny>,
    is_eager: bool,
    hook: Py<CallSoonHook>,
    /// `asyncio.tasks._all_tasks`, a weak set; none: it is left alone, for it belongs to other loops, too.
    all_tasks: Option<Py<PyAny>>,
}

/// Stands in for the loop's `call_soon` while tasks are made.
#[pyclass(frozen, module = "clutch._core")]
pub struct CallSoonHook {
    caught: Mutex<Option<FirstStep>>,
}

struct FirstStep {
    step: Py<PyAny>,
    context: Py<PyAny>,
}

#[pymethods]
impl CallSoonHook {
    /// In the place of the list's `add`.
    fn leave_out(&self, _task: &Bound<'_, PyAny>) {}

    #[pyo3(signature = (step, *, context))]
    fn __call__(&self, step: Py<PyAny>, context: Py<PyAny>) {
        *self.caught.lock() = Some(FirstStep { step, context });
    }
}

/// A task whose first step is still to be taken.
pub struct Unstarted<'py> {
    task: Option<Bound<'py, PyAny>>,
    /// Coroutine that an eager task is made of.
    coroutine: Option<Bound<'py, PyAny>>,
    caught: Option<FirstStep>,
}

#[pymethods]
impl EagerStarter {
    /// For the loop that runs in this thread; `is_only`: no other thread of this process runs one of ours.
    #[new]
    fn new(event_loop: &Bound<'_, PyAny>, is_only: bool) -> PyResult<EagerStarter> {
        let py = event_loop.py();
        let is_eager = py.version_info() >= (3, 12);
        let keywords = PyDict::new(py);
        keywords.set_item("loop", event_loop)?;
        if is_eager {
            keywords.set_item("eager_start", true)?;
        }
        let task = py.import("asyncio")?.getattr("Task")?;
        let make = py.import("functools")?.getattr("partial")?.call((task,), Some(&keywords))?;
        let hook = Py::new(py, CallSoonHook { caught: Mutex::default() })?;
        let all_tasks = match is_only && !is_eager {
            true => Some(py.import("asyncio.tasks")?.getattr("_all_tasks")?.unbind()),
            false => None,
        };
        Ok(EagerStarter { event_loop: event_loop.clone().unbind(), make: make.unbind(), is_eager, hook, all_tasks })
    }
}

impl EagerStarter {
    pub fn event_loop<'a, 'py>(&'a self, py: Python<'py>) -> &'a Bound<'py, PyAny> {
        self.event_loop.bind(py)
    }

    /// Calls `with` where tasks can be made. No code of the user's may run in it.
    pub fn making<'py, R>(&self, py: Python<'py>, with: impl FnOnce() -> R) -> PyResult<R> {
        if self.is_eager {
            return Ok(with());
        }
        let event_loop = self.event_loop.bind(py);
        event_loop.setattr(intern!(py, "call_soon"), &self.hook)?;
        if let Some(all_tasks) = &self.all_tasks {
            all_tasks.setattr(py, intern!(py, "add"), self.hook.getattr(py, intern!(py, "leave_out"))?)?;
        }
        let made = with();
        if let Some(all_tasks) = &self.all_tasks {
            all_tasks.bind(py).delattr(intern!(py, "add"))?;
        }
        event_loop.delattr(intern!(py, "call_soon"))?;
        Ok(made)
    }

    /// Inside of [`EagerStarter::making`].
    pub fn make<'py>(&self, coroutine: Bound<'py, PyAny>) -> PyResult<Unstarted<'py>> {
        if self.is_eager {
            return Ok(Unstarted { task: None, coroutine: Some(coroutine), caught: None });
        }
        let py = coroutine.py();
        let task = self.make.bind(py).call1(PyTuple::new(py, [coroutine])?)?;
        let caught = self.hook.get().caught.lock().take();
        Ok(Unstarted { task: Some(task), coroutine: None, caught })
    }

    /// A task that waits for something is one of all tasks.
    pub fn keep(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Some(all_tasks) = &self.all_tasks {
            all_tasks.bind(task.py()).call_method1(intern!(task.py(), "add"), (task,))?;
        }
        Ok(())
    }

    /// Takes the first step. Raises what ends an event loop: SystemExit, KeyboardInterrupt.
    pub fn step<'py>(&self, py: Python<'py>, unstarted: Unstarted<'py>) -> PyResult<Bound<'py, PyAny>> {
        collector::follow(py);
        match (unstarted.task, unstarted.coroutine, unstarted.caught) {
            (Some(task), _, Some(FirstStep { step, context })) => {
                context::within(context.into_bound(py), || step.bind(py).call0())?;
                Ok(task)
            }
            (_, Some(coroutine), _) => self.make.bind(py).call1((coroutine,)),
            (Some(task), _, None) => Ok(task),
            (None, None, _) => Err(PyRuntimeError::new_err("there is nothing to start")),
        }
    }
}
