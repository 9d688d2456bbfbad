//! Types of what a call made, by exact type: coroutine, generator, asynchronous generator.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

struct Types {
    coroutine: Py<PyType>,
    generator: Py<PyType>,
    async_generator: Py<PyType>,
}

fn types(py: Python<'_>) -> Option<&'static Types> {
    static TYPES: PyOnceLock<Types> = PyOnceLock::new();
    let load = || -> PyResult<Types> {
        let module = py.import("types")?;
        let get = |name: &str| -> PyResult<Py<PyType>> { Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind()) };
        Ok(Types {
            coroutine: get("CoroutineType")?,
            generator: get("GeneratorType")?,
            async_generator: get("AsyncGeneratorType")?,
        })
    };
    TYPES.get_or_try_init(py, load).ok()
}

fn is(value: &Bound<'_, PyAny>, pick: impl FnOnce(&'static Types) -> &'static Py<PyType>) -> bool {
    types(value.py()).is_some_and(|types| value.get_type_ptr() == pick(types).as_ptr().cast())
}

pub fn is_coroutine(value: &Bound<'_, PyAny>) -> bool {
    is(value, |types| &types.coroutine)
}

fn is_generator(value: &Bound<'_, PyAny>) -> bool {
    is(value, |types| &types.generator)
}

fn is_async_generator(value: &Bound<'_, PyAny>) -> bool {
    is(value, |types| &types.async_generator)
}

/// Whether what a call made goes on in the profile.
pub fn needs_finish(made: &Bound<'_, PyAny>) -> bool {
    is_coroutine(made) || is_generator(made) || is_async_generator(made)
}
