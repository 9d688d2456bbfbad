//! A Redis server of a test's own: on a socket in a folder of its own, ended with the program that started it.

#![allow(dead_code, reason = "each test program uses a part")]
#![allow(clippy::print_stdout, reason = "who runs the tests is told what was left out")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ends the server when the program that holds the other end of its input is gone, however that came about, and removes its
/// folder; after a line only the server ends.
const WATCHER: &str = r#"
folder=$1; shift
redis-server "$@" < /dev/null & read -r again; kill -KILL $!; wait
[ "$again" ] || rm -rf "$folder"
"#;

pub struct Server {
    folder: tempfile::TempDir,
    watcher: Child,
    input: Option<ChildStdin>,
    prefixes: AtomicU32,
}

/// One for all tests of a program, or none where no server is installed.
pub fn shared() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(&[])).as_ref()
}

impl Server {
    /// With further flags. None, and a line that says so, where no server is installed.
    #[expect(clippy::print_stdout, reason = "it says what is left out")]
    pub fn start(flags: &[&str]) -> Option<Server> {
        if Command::new("redis-server").arg("--version").output().is_err() {
            println!("skipped: there is no redis-server");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (watcher, input) = spawn(folder.path(), flags);
        Some(Server { folder, watcher, input, prefixes: AtomicU32::new(0) })
    }

    /// Again, at the same address.
    pub fn restart(&mut self, flags: &[&str]) {
        self.stop();
        let (watcher, input) = spawn(self.folder.path(), flags);
        (self.watcher, self.input) = (watcher, input);
    }

    pub fn stop(&mut self) {
        if let Some(mut input) = self.input.take() {
            input.write_all(b"again\n").unwrap();
            self.watcher.wait().unwrap();
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Of a store that nobody else has.
    pub fn new_url(&self) -> String {
        self.new_url_of("redis", "prefix")
    }

    /// Of a format, and what sets its stores apart.
    pub fn new_url_of(&self, scheme: &str, option: &str) -> String {
        let nr = self.prefixes.fetch_add(1, Ordering::Relaxed);
        format!("{scheme}+unix://{}?{option}=t{nr}", self.socket().display())
    }

    /// For what only the server's own commands can do.
    pub fn connect(&self) -> redis::Connection {
        redis::Client::open(format!("redis+unix://{}", self.socket().display())).unwrap().get_connection().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns when it takes connections.
fn spawn(folder: &Path, flags: &[&str]) -> (Child, Option<ChildStdin>) {
    let mut command = Command::new("sh");
    command.args(["-c", WATCHER, "sh"]).arg(folder).args(["--port", "0", "--save", "", "--appendonly", "no"]);
    command.arg("--unixsocket").arg(folder.join("redis.sock")).arg("--dir").arg(folder).args(flags);
    let mut watcher = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(watcher.stdout.take().unwrap());
    let is_ready = log.lines().map_while(Result::ok).any(|line| line.contains("to accept connections"));
    assert!(is_ready, "redis-server has ended");
    let input = watcher.stdin.take();
    (watcher, input)
}
