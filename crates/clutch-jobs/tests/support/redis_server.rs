//! A real Redis for the tests of one process, which ends with it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Its socket. None: there is no redis-server on this machine.
fn socket() -> Option<&'static PathBuf> {
    static SOCKET: OnceLock<Option<PathBuf>> = OnceLock::new();
    SOCKET.get_or_init(start).as_ref()
}

fn start() -> Option<PathBuf> {
    let folder = tempfile::Builder::new().prefix("clutch-redis").tempdir().ok()?.keep();
    let socket = folder.join("redis.sock");
    let (tell, told) = mpsc::channel();
    let mut command = Command::new("redis-server");
    command.current_dir(&folder).args([
        "--port",
        "0",
        "--save",
        "",
        "--appendonly",
        "no",
        "--unixsocket",
        "redis.sock",
    ]);
    command.stdout(Stdio::piped()).stdin(Stdio::null());
    // SAFETY: between fork and exec it is a system call alone.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    // The signal comes when the thread that started it ends: that one stays.
    thread::spawn(move || {
        let Ok(mut server) = command.spawn() else { return };
        let lines = server.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
        for line in lines.map_while(Result::ok) {
            if line.contains("eady to accept connections") {
                let _ = tell.send(());
            }
        }
    });
    told.recv().ok().map(|()| socket)
}

/// The URL of a store that nobody else uses.
pub fn url() -> Option<String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let socket = socket()?;
    Some(format!("redis+unix://{}?prefix=t{}", socket.display(), NEXT.fetch_add(1, Ordering::Relaxed)))
}
