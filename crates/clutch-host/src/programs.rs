//! The folder of this user's running programs: their control sockets, and what outlives a program that is killed.

use std::env;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, stat};
use rustix::process::geteuid;

/// Returns where the folder is, whether or not it exists.
///
/// After `su` or `sudo -E` the variable is another user's. What root made there would be in that user's way.
pub fn folder() -> PathBuf {
    let user = geteuid().as_raw();
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match runtime.filter(|runtime| is_own(runtime, user)) {
        Some(runtime) => runtime.join("clutch"),
        None => PathBuf::from(format!("/tmp/clutch-{user}")),
    }
}

fn is_own(runtime: &Path, user: u32) -> bool {
    let is_usable = access(runtime, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    is_usable && stat(runtime).is_ok_and(|found| found.st_uid == user)
}
