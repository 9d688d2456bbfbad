//! The zygote as a process: how it is started, told to fork, and ended.
//!
//! The zygote is started by posix_spawn with its control socket as standard input: nothing runs between fork and exec.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::Codec;
use clutch_wire::forked::Tracked;
use clutch_wire::frame::{self, Head, Kind, WIRE_VERSION};
use clutch_wire::sys::{self, EndSignal, Fate, Poller};
use serde::{Deserialize, Serialize};

use super::recycle;
use super::state::signal_name;
use crate::config::PoolConfig;
use crate::link::{Attached, Filled, Flushed, Inbox, Outbox};
use crate::output::Output;
use crate::pool::state::WorkerKey;
use crate::pool::{Status, ToolSchemas};

/// The program of the zygote. The package is that of the pool's own interpreter.
const ENTRY: &str = "from clutch._worker.zygote import main; main()";

/// Comes before, where the package is perhaps on nobody's path: the last argument is its folder.
const OWN_PATH: &str = "import sys; sys.path.append(sys.argv.pop()); ";

/// Tokens of the zygotes in the pool's poller: this, plus the generation. Those of workers are below.
const CONTROL: u64 = 1 << 32;

/// The generation whose zygote a token of the poller means.
pub fn generation_of(token: u64) -> Option<u32> {
    token.checked_sub(CONTROL).and_then(|generation| u32::try_from(generation).ok())
}

/// Names and values, of any bytes.
pub type Environ = Vec<(OsString, OsString)>;

/// The dispatcher, as its zygotes and their code know it.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Like `cpython-311`: what code by value is bound to. Compared with a zygote's hello.
    pub tag: String,
    /// For the zygotes. Taken when the pool is made: Python may change it while others read it.
    pub environ: Environ,
}

/// First frame of a zygote.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Hello {
    pub clutch: String,
    pub wire: u32,
    /// `3.13.5`
    pub python: String,
    /// `cpython-313t`: what code by value is bound to.
    pub tag: String,
    pub pid: i32,
}

/// The zygote's report after loading.
#[derive(Debug, Deserialize)]
pub struct Up {
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Profile and numbers when the policy changed them.
    pub shape: Option<crate::config::Shape>,
    pub schemas: Option<ToolSchemas>,
    #[serde(flatten)]
    pub rest: serde_json::Map<String, serde_json::Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct Failed {
    reason: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Forked {
    pid: i32,
    error: Option<String>,
}

/// News of one child, as the zygote tells it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FateNews {
    pub what: String,
    pub value: i32,
    /// CPU time of one that has ended.
    #[serde(default)]
    pub cpu_ns: Option<u64>,
}

impl FateNews {
    /// Of a child that is not reaped yet.
    pub fn of(pid: i32, fate: Fate) -> FateNews {
        let (what, value) = match fate {
            Fate::Exited(code) => ("exited", code),
            Fate::Signaled(signal) => ("signaled", signal),
            Fate::Stopped => ("stopped", 0),
            Fate::Continued => ("continued", 0),
        };
        let ended = matches!(fate, Fate::Exited(_) | Fate::Signaled(_));
        let cpu = ended.then(|| sys::cpu_time(pid)).flatten();
        FateNews { what: what.to_owned(), value, cpu_ns: cpu.and_then(|cpu| u64::try_from(cpu.as_nanos()).ok()) }
    }

    fn fate(&self) -> Option<Fate> {
        Some(match self.what.as_str() {
            "exited" => Fate::Exited(self.value),
            "signaled" => Fate::Signaled(self.value),
            "stopped" => Fate::Stopped,
            "continued" => Fate::Continued,
            _ => return None,
        })
    }
}

/// A message of a zygote.
#[derive(Debug)]
pub enum Said {
    Hello(Hello),
    Up(Box<Up>),
    Failed(String),
    Forked {
        worker: WorkerKey,
        pid: i32,
        error: Option<String>,
    },
    /// `cpu`: CPU time of one that has ended.
    Fate {
        worker: WorkerKey,
        fate: Fate,
        cpu: Option<Duration>,
    },
}

/// End of a zygote.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The exit status, and the last that was written.
    pub text: String,
    /// The signal that killed it: it could not say why.
    pub signal: Option<i32>,
}

/// Time that a zygote has to write its stacks before it is killed: a few lines, by a signal's handler.
const SHOWN: Duration = Duration::from_millis(50);

/// Maximum time for a zygote that was told to end.
const END_WAIT: Duration = Duration::from_millis(500);

/// The dispatcher's hold on one zygote.
pub struct Zygote {
    pub generation: u32,
    pub pid: i32,
    child: Child,
    control: Tracked,
    outbox: Outbox,
    inbox: Inbox,
    output: Output,
    /// The poller tells when its socket has room.
    wants_room: bool,
    pub hello: Option<Hello>,
    /// The report after loading: tools, warnings, Python version; JSON.
    pub image: serde_json::Value,
    pub schemas: Option<Arc<ToolSchemas>>,
    /// Readable when it has ended. The end of its socket may never come: what its import forked holds that, too.
    ended: Option<OwnedFd>,
    /// The zygote was told to end.
    ending: bool,
}

impl Zygote {
    /// Keeps what the zygote says of its image once that is loaded.
    pub(super) fn set_image(&mut self, up: Up) {
        let mut image = up.rest;
        image.insert("warnings".to_owned(), up.warnings.into());
        image.insert("shape".to_owned(), serde_json::to_value(up.shape).unwrap_or_default());
        self.image = serde_json::Value::Object(image);
        self.schemas = up.schemas.map(Arc::new);
    }

    /// The image of the last one stays known while the next one loads.
    pub(super) fn show_image(&self, status: &mut Status) {
        if self.image.is_null() {
            return;
        }
        if status.image != self.image {
            status.image = self.image.clone();
        }
        status.schemas.clone_from(&self.schemas);
    }

    /// Starts one and tells it what to load.
    pub fn start(config: &PoolConfig, environ: &Environ, generation: u32) -> io::Result<Zygote> {
        let (ours, theirs) = sys::socket_pair()?;
        let control = Tracked::new(ours);
        let launch = sys::memory_with("clutch-launch", launch(config, generation).to_string().as_bytes())?;
        let prefix = format!("{}/zygote", config.name);
        let (output, out, err) = Output::open(&prefix, config.output_kept_bytes)?;
        let child = Command::new(&config.python)
            .args([
                "-P",
                "-c",
                &format!("{path}{ENTRY}", path = if config.package_path.is_some() { OWN_PATH } else { "" }),
            ])
            .args(&config.package_path)
            .env_clear()
            .envs(environ.iter().map(|(name, value)| (name, value)))
            .envs(&config.env)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(out))
            .stderr(Stdio::from(err))
            .spawn()?;
        let pid = child.id() as i32;
        let (outbox, inbox) = (Outbox::default(), Inbox::default());
        let (image, ended) = (serde_json::Value::Null, sys::pidfd(pid).ok());
        let zygote = Zygote {
            generation,
            pid,
            child,
            control,
            outbox,
            inbox,
            output,
            wants_room: false,
            hello: None,
            image,
            schemas: None,
            ended,
            ending: false,
        };
        zygote.outbox.push(|out| {
            out.attach(Attached::Given(vec![launch]));
            frame::put_head(&mut out.bytes, Kind::Launch, 0, 0);
        });
        Ok(zygote)
    }

    /// Watches the zygote: the poller tells from now on when it has said something, or has ended.
    pub fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        self.ended.iter().try_for_each(|pidfd| poller.add(pidfd.as_fd(), self.token(), false))?;
        poller.add(self.control.as_fd(), self.token(), false)?;
        self.flush(poller);
        Ok(())
    }

    pub fn unwatch(&self, poller: &Poller) {
        self.ended.iter().for_each(|pidfd| poller.remove(pidfd.as_fd()));
        if !self.ending {
            poller.remove(self.control.as_fd());
        }
    }

    fn token(&self) -> u64 {
        CONTROL + u64::from(self.generation)
    }

    /// Returns whether it was told to end.
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    pub fn has_ended(&self) -> bool {
        let now = Some(Instant::now());
        self.ended.as_ref().is_some_and(|pidfd| matches!(sys::wait_readable(pidfd.as_fd(), now), Ok(true)))
    }

    /// Writes what waits, as far as there is room; the poller tells when there is more. A zygote that is gone is seen by
    /// the end of its socket.
    pub fn flush(&mut self, poller: &Poller) {
        let wants_room =
            matches!(self.outbox.flush(self.control.as_fd(), false), Ok(Flushed::Blocked | Flushed::Short));
        if wants_room != self.wants_room && !self.ending {
            // One that is in the poller no more is killed when it has not answered for too long.
            let _ = poller.modify(self.control.as_fd(), self.token(), wants_room);
            self.wants_room = wants_room;
        }
    }

    /// Tells it to fork; the descriptors are the worker's link, board, alarm, stdout and stderr.
    pub fn fork(&mut self, worker: WorkerKey, nr: u32, descriptors: Vec<OwnedFd>, poller: &Poller) {
        let json = serde_json::json!({"nr": nr, "generation": self.generation}).to_string();
        let head = Head::with(Kind::Fork, u64::from(worker), Codec::Json);
        self.outbox.push(|out| {
            out.attach(Attached::Given(descriptors));
            frame::put_text(&mut out.bytes, head, json.as_bytes());
        });
        self.flush(poller);
    }

    /// The group of a worker that is not held otherwise; an order to fork it that waits is withdrawn.
    pub fn signal_worker(&mut self, worker: WorkerKey, signal: EndSignal, poller: &Poller) {
        let number = [signal as u8];
        let head = Head::with(Kind::Kill, u64::from(worker), Codec::Bytes);
        self.outbox.push(|out| frame::put_text(&mut out.bytes, head, &number));
        self.flush(poller);
    }

    /// Reads once; what it said, or none at its end.
    pub fn read(&mut self) -> Option<Vec<Said>> {
        match self.inbox.fill(self.control.as_fd(), false) {
            Ok(Filled::Bytes) => {}
            Ok(Filled::Nothing) => return (!self.has_ended()).then(Vec::new),
            Ok(Filled::End) | Err(_) => return None,
        }
        let mut said = Vec::new();
        loop {
            match self.inbox.next_frame() {
                Ok(Some(received)) => said.extend(understand(&received.frame)),
                Ok(None) => return Some(said),
                Err(_) => return None,
            }
        }
    }

    /// Has Python write where the zygote is, which becomes part of its output, and gives it a moment for that.
    pub fn show_stacks(&self) {
        sys::signal_process(self.pid, sys::real_time_signal(sys::STACKS_SIGNAL));
        std::thread::sleep(SHOWN);
    }

    /// Tells it to end, with what it started; `at_once` kills it. False: its end cannot be waited for in the poller.
    pub fn tell_end(&mut self, at_once: bool, poller: &Poller) -> bool {
        if at_once {
            // A leader of its own group once it has said hello.
            sys::end_group(self.pid, EndSignal::Kill);
            let _ = self.child.kill();
        }
        if std::mem::replace(&mut self.ending, true) {
            return self.ended.is_some();
        }
        poller.remove(self.control.as_fd());
        // The end of the control socket tells it to kill its workers' groups and exit. One that is gone already needs no
        // telling.
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        self.ended.is_some()
    }

    /// Reaps it.
    pub fn end(mut self) -> Ended {
        if self.hello.is_none() {
            let _ = self.child.kill();
        }
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        let status = wait_briefly(&mut self.child);
        let signal = status.as_ref().ok().and_then(ExitStatus::signal);
        let status = status.map_or_else(|error| error.to_string(), status_text);
        let last = self.output.last();
        let last = last.trim_end();
        let text = if last.is_empty() { status } else { format!("{status}; its last output:\n{last}") };
        Ended { text, signal }
    }
}

fn status_text(status: ExitStatus) -> String {
    let signal = status.signal().map(|signal| format!("killed by signal {signal}{}", signal_name(signal)));
    signal.unwrap_or_else(|| status.to_string())
}

/// A zygote that was told to end does so within milliseconds; one that does not is killed. So are, while the number of
/// its group is still its own, the processes that its import left behind.
fn wait_briefly(child: &mut Child) -> io::Result<ExitStatus> {
    let deadline = Instant::now() + END_WAIT;
    let pid = child.id() as i32;
    if let Ok(pidfd) = sys::pidfd(pid)
        && !matches!(sys::wait_readable(pidfd.as_fd(), Some(deadline)), Ok(true))
    {
        let _ = child.kill();
    }
    sys::end_group(pid, EndSignal::Kill);
    child.wait()
}

fn launch(config: &PoolConfig, generation: u32) -> serde_json::Value {
    serde_json::json!({
        "pool": config.name,
        "dispatcher_pid": std::process::id(),
        "generation": generation,
        "wire": WIRE_VERSION,
        "clutch": env!("CARGO_PKG_VERSION"),
        "start": config.start,
        "descriptors": sys::descriptor_limit_before(),
        "shape": config.shape,
        "payload_bytes_max": config.payload_bytes_max,
        "memory_floor": recycle::memory_floor(config),
        "launch": config.launch,
    })
}

fn understand(frame: &frame::Frame<'_>) -> Option<Said> {
    let worker = frame.head.id as WorkerKey;
    Some(match frame.head.kind {
        Kind::Hello => Said::Hello(serde_json::from_slice(frame.payload).ok()?),
        Kind::Up => Said::Up(Box::new(serde_json::from_slice(frame.payload).ok()?)),
        Kind::Failed => Said::Failed(serde_json::from_slice::<Failed>(frame.payload).ok()?.reason),
        Kind::Forked => {
            let forked: Forked = serde_json::from_slice(frame.payload).ok()?;
            Said::Forked { worker, pid: forked.pid, error: forked.error }
        }
        Kind::Fate => {
            let news = serde_json::from_slice::<FateNews>(frame.payload).ok()?;
            Said::Fate { worker, fate: news.fate()?, cpu: news.cpu_ns.map(Duration::from_nanos) }
        }
        _ => return None,
    })
}
