//! Tells the code whether the interpreter that it is built for has a GIL.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
