//! A Redis server of a test's own: on a socket in a folder of its own, ended with the program that started it.
//!
//! The variable `CLUTCH_TEST_REDIS_SERVER` names another program than `redis-server`: of another version, or of Valkey.

#![allow(dead_code, reason = "each test program uses a part")]
#![allow(clippy::print_stdout, reason = "who runs the tests is told what was left out")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ends the server when the program that holds the other end of its input is gone, however that came about, and removes
/// its folder; after a line only the server ends.
const WATCHER: &str = r#"
folder=$1; shift
"$@" < /dev/null & read -r again; kill -KILL $!; wait
[ "$again" ] || rm -rf "$folder"
"#;

pub struct Server {
    folder: tempfile::TempDir,
    watcher: Child,
    input: Option<ChildStdin>,
    /// At 127.0.0.1; 0: only the socket.
    pub port: u16,
    prefixes: AtomicU32,
}

/// One for all tests of a program, or none where no server is installed.
pub fn shared() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(&[])).as_ref()
}

fn program() -> String {
    std::env::var("CLUTCH_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

impl Server {
    /// With further flags. None, and a line that says so, where no server is installed.
    pub fn start(flags: &[&str]) -> Option<Server> {
        Server::start_at(0, |_| flags.iter().map(|flag| (*flag).to_owned()).collect())
    }

    /// At a port too.
    pub fn with_port(flags: &[&str]) -> Option<Server> {
        let port = free_port();
        let flags = ["--port", &port.to_string()].iter().chain(flags).map(|flag| (*flag).to_owned()).collect();
        Server::start_at(port, |_| flags)
    }

    /// A sentinel with this configuration, which it rewrites.
    pub fn sentinel(configuration: &str) -> Option<Server> {
        let port = free_port();
        Server::start_at(port, |folder| {
            let file = folder.join("sentinel.conf");
            std::fs::write(&file, format!("port {port}\n{configuration}")).unwrap();
            vec![file.display().to_string(), "--sentinel".to_owned()]
        })
    }

    #[expect(clippy::print_stdout, reason = "it says what is left out")]
    fn start_at(port: u16, flags: impl FnOnce(&Path) -> Vec<String>) -> Option<Server> {
        if Command::new(program()).arg("--version").output().is_err() {
            println!("skipped: there is no {}", program());
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (watcher, input) = spawn(folder.path(), &flags(folder.path()));
        Some(Server { folder, watcher, input, port, prefixes: AtomicU32::new(0) })
    }

    /// Again, at the same address.
    pub fn restart(&mut self, flags: &[&str]) {
        self.stop();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (watcher, input) = spawn(self.folder.path(), &flags);
        (self.watcher, self.input) = (watcher, input);
    }

    /// At once, as by SIGKILL.
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
        connect(&format!("redis+unix://{}", self.socket().display()))
    }

    /// The same at its port.
    pub fn connect_with(&self, password: &str) -> redis::Connection {
        connect(&format!("redis://:{password}@127.0.0.1:{}", self.port))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn connect(url: &str) -> redis::Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

/// That nobody has now, as has none the port of a cluster's bus beside it. Below those that the system gives to others.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let ports = std::iter::repeat_with(|| {
        let nr = std::process::id().wrapping_mul(61) + NEXT.fetch_add(1, Ordering::Relaxed);
        10_000 + (nr % 10_000) as u16
    });
    ports.take(10_000).find(|port| is_free(*port) && is_free(port + 10_000)).unwrap()
}

/// Returns when it takes connections.
fn spawn(folder: &Path, flags: &[String]) -> (Child, Option<ChildStdin>) {
    let mut command = Command::new("sh");
    command.args(["-c", WATCHER, "sh"]).arg(folder).arg(program());
    if !flags.iter().any(|flag| flag == "--sentinel") {
        command.args(["--port", "0", "--save", "", "--appendonly", "no"]);
        command.arg("--unixsocket").arg(folder.join("redis.sock")).arg("--dir").arg(folder);
    }
    let mut watcher = command.args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(watcher.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_ready = log.any(|line| line.contains("to accept connections") || line.contains("Sentinel ID is"));
    assert!(is_ready, "{} has ended", program());
    let input = watcher.stdin.take();
    (watcher, input)
}
