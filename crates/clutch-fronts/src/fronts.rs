//! The fronts of one dispatcher: how they start, what they tell, how they stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clutch_pool::config::{AdminConfig, HttpConfig, ServeConfig, TcpConfig};
use clutch_pool::pool::Pool;
use clutch_wire::sync::Mutex;
use clutch_wire::sys;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::admin::AdminFront;
use crate::figures::Figures;
use crate::front::{Front, Pools};
use crate::http::HttpFront;
use crate::net::accept;
use crate::net::listen::not_bound;
use crate::net::listen::{Access, Address, Listener};
use crate::net::stream::Places;
use crate::net::thread::FrontThread;
use crate::net::warnings::Warnings;
use crate::serve::ServeFront;
use crate::tcp::TcpFront;

/// Threads that serve all fronts.
const THREADS: usize = 2;

/// How long the admin front, which stops last, waits for requests that are being answered.
const ADMIN_GRACE: Duration = Duration::from_secs(1);

/// How long an end waits for tasks that were cut off to let go of what they hold.
const CUT: Duration = Duration::from_secs(1);

/// Most connections of the admin front at a time.
const ADMIN_CONNECTIONS_MAX: usize = 256;

/// Descriptors that are kept for all but connections: a quarter of those that there may be, in these bounds.
const RESERVE_MIN: u64 = 128;
const RESERVE_MAX: u64 = 4096;

/// One front that accepts connections.
struct Served {
    stop: oneshot::Sender<()>,
    /// Ends when the last of its connections has.
    done: JoinHandle<()>,
    /// Of a front that speaks HTTP.
    figures: Option<Arc<Figures>>,
}

/// What serves one app.
struct Serving {
    threads: Vec<FrontThread>,
    served: Vec<Served>,
    pool: Arc<Pool>,
    front: Arc<ServeFront>,
}

/// What takes calls.
struct Calling {
    served: Vec<Served>,
    /// At the first of its addresses.
    front: Arc<HttpFront>,
}

struct Running {
    runtime: Runtime,
    http: Option<Calling>,
    serve: Option<Serving>,
    tcp: Option<Served>,
    admin: Option<(Served, Arc<AdminFront>)>,
}

impl Running {
    /// Reads files anew: certificates of the app that one of these pools runs, and all that belongs to no pool.
    fn reload_files(&self, pools: &[String]) -> Vec<Reread> {
        let served = self.serve.as_ref().map(|serving| &serving.front);
        let served = served.filter(|front| pools.iter().any(|pool| pool == front.pool_name()));
        let calls = self.http.as_ref().map(|calling| &calling.front);
        let reread = [
            ("fronts.serve.tls", served.and_then(|front| front.reload_certificate())),
            ("fronts.http.tls", calls.and_then(|front| front.reload_certificate())),
            ("fronts.http.token_file", calls.and_then(|front| front.tokens()?.reload())),
            ("fronts.admin.token_file", self.admin.as_ref().and_then(|(_, front)| front.tokens()?.reload())),
        ];
        reread.into_iter().filter_map(|(option, result)| Some(Reread { option, result: result? })).collect()
    }
}

/// A file, or files that belong together, read anew.
#[derive(Debug)]
pub struct Reread {
    pub option: &'static str,
    /// Of an error: the old content goes on.
    pub result: io::Result<()>,
}

/// What is to be served.
#[derive(Default)]
pub struct FrontConfigs {
    pub http: Option<HttpConfig>,
    pub serve: Option<ServeConfig>,
    pub tcp: Option<TcpConfig>,
    pub admin: Option<AdminConfig>,
}

impl FrontConfigs {
    fn are_none(&self) -> bool {
        self.http.is_none() && self.serve.is_none() && self.tcp.is_none() && self.admin.is_none()
    }

    /// Each connection is a descriptor, and workers, large values and those that are turned away need some, too. Where the
    /// hard limit is too low for all, there are fewer connections.
    fn make_room(&mut self, warnings: &Warnings) {
        let limits = [
            ("fronts.http", self.http.as_mut().map(|config| &mut config.connections_max)),
            ("fronts.serve", self.serve.as_mut().map(|config| &mut config.connections_max)),
            ("fronts.tcp", self.tcp.as_mut().map(|config| &mut config.connections_max)),
        ];
        let limits: Vec<_> = limits.into_iter().filter_map(|(front, limit)| Some((front, limit?))).collect();
        let wanted: u64 = limits.iter().map(|(_, limit)| **limit as u64).sum();
        let left = sys::descriptors_left();
        let reserve = (left / 4).clamp(RESERVE_MIN.min(left / 2), RESERVE_MAX);
        let room = left.saturating_sub(reserve);
        for (front, limit) in limits {
            let share = (room as u128 * *limit as u128 / u128::from(wanted.max(room).max(1))) as usize;
            if share < *limit {
                let given = std::mem::replace(limit, share.max(1));
                warnings.tell(front, || {
                    format!(
                        "{front}.connections_max is {given}, and this process may have {left} descriptors more: {limit} \
                         connections at most; raise the hard limit (ulimit -Hn, LimitNOFILE=)"
                    )
                });
            }
        }
        // As far as it goes: there is no more to be had.
        let _ = sys::make_room_for_descriptors(wanted.min(room), reserve);
    }
}

/// The network fronts of one dispatcher.
#[derive(Default)]
pub struct Fronts {
    http_addresses: Vec<Address>,
    serve_addresses: Vec<String>,
    tcp_addresses: Vec<String>,
    admin_address: Option<String>,
    /// Set when the stop begins; /readyz tells it.
    stopping: Arc<AtomicBool>,
    warnings: Arc<Warnings>,
    figures: Vec<Arc<Figures>>,
    /// None: stopped, or nothing was to be served.
    running: Mutex<Option<Running>>,
}

impl Fronts {
    /// Binds and serves what is configured. Listening has begun when this returns; it fails when an address cannot be had.
    pub fn start(pools: Pools, mut configs: FrontConfigs) -> io::Result<Fronts> {
        let mut fronts = Fronts::default();
        if configs.are_none() {
            return Ok(fronts);
        }
        configs.make_room(&fronts.warnings);
        let FrontConfigs { http, serve, tcp, admin } = configs;
        let runtime = runtime()?;
        let entered = runtime.enter();
        let http = http.map(|config| fronts.start_http(&pools, config)).transpose()?;
        let serve = serve.map(|config| fronts.start_serve(&pools, config)).transpose()?;
        let tcp = tcp.map(|config| fronts.start_tcp(&pools, &config)).transpose()?;
        let admin = admin.map(|config| fronts.start_admin(&pools, config)).transpose()?;
        drop(entered);
        fronts.running = Mutex::new(Some(Running { runtime, http, serve, tcp, admin }));
        Ok(fronts)
    }

    /// Where the http front listens, each `host:port` or `unix:path`.
    pub fn http_addresses(&self) -> Vec<String> {
        self.http_addresses.iter().map(Address::to_string).collect()
    }

    /// Where a client of this machine calls: the first address of TCP, else the first.
    pub fn http_address(&self) -> Option<String> {
        let tcp = self.http_addresses.iter().find(|address| matches!(address, Address::Tcp(_)));
        tcp.or(self.http_addresses.first()).map(Address::to_string)
    }

    /// A token that the http front takes. None: it needs none.
    pub fn http_token(&self) -> Option<String> {
        self.running.lock().as_ref()?.http.as_ref()?.front.tokens()?.first()
    }

    /// Where the app is served.
    pub fn serve_addresses(&self) -> &[String] {
        &self.serve_addresses
    }

    /// Where connections are taken.
    pub fn tcp_addresses(&self) -> &[String] {
        &self.tcp_addresses
    }

    /// Where the admin front listens.
    pub fn admin_address(&self) -> Option<&str> {
        self.admin_address.as_deref()
    }

    /// Stops accepting, lets requests that are being answered end within `grace`, then cuts them off. Blocks as long. The
    /// admin front goes last, so that the stop can be watched.
    pub fn stop(&self, grace: Duration) {
        self.stopping.store(true, Ordering::Release);
        self.end(grace);
        self.warnings.close();
    }

    /// The next warning for the log; blocks until there is one. None: all has been stopped.
    pub fn next_warning(&self) -> Option<String> {
        self.warnings.next()
    }

    /// Log files were moved away: new ones are begun.
    pub fn reopen_logs(&self) {
        let running = self.running.lock();
        let Some(Running { http, serve, .. }) = running.as_ref() else { return };
        http.iter().for_each(|calling| calling.front.reopen_logs());
        serve.iter().for_each(|serving| serving.front.reopen_logs());
    }

    /// Certificates and tokens are read anew, those of an app only where its pool is among these. What is wrong with them
    /// is told, and the old ones go on.
    pub fn reload_files(&self, pools: &[String]) -> Vec<Reread> {
        self.running.lock().as_ref().map(|running| running.reload_files(pools)).unwrap_or_default()
    }

    fn end(&self, grace: Duration) {
        let Some(Running { runtime, http, mut serve, tcp, admin }) = self.running.lock().take() else {
            return;
        };
        runtime.block_on(async {
            let served = serve.as_mut().map(|serving| std::mem::take(&mut serving.served)).unwrap_or_default();
            let http = http.map(|calling| calling.served).unwrap_or_default();
            let ending = http.into_iter().chain(served).chain(tcp).map(|served| tokio::spawn(end(Some(served), grace)));
            for ending in ending.collect::<Vec<_>>() {
                // It ends by itself, or is cut off.
                let _ = ending.await;
            }
            end(admin.map(|(served, _)| served), grace.min(ADMIN_GRACE)).await;
        });
        if let Some(Serving { threads, pool, .. }) = serve {
            pool.read_by_driver();
            drop(threads);
        }
        runtime.shutdown_timeout(CUT);
    }

    fn start_http(&mut self, pools: &Pools, config: HttpConfig) -> io::Result<Calling> {
        let listeners = bind_all("fronts.http", &config.bind, Access::Owner)?;
        let is_guarded = config.token.is_some() || config.token_file.is_some() || config.tls.is_some();
        for (bind, listener) in config.bind.iter().zip(&listeners) {
            refuse_unguarded("fronts.http", bind, listener.address(), is_guarded || config.insecure)?;
        }
        self.http_addresses = listeners.iter().map(|listener| listener.address().clone()).collect();
        let fronts = HttpFront::of_all(pools, &config, &listeners, &self.warnings)?;
        let front = fronts.first().cloned().ok_or_else(|| io::Error::other("fronts.http.bind names no address"))?;
        self.figures.push(front.figures().clone());
        let places = Places::new(config.connections_max);
        let served = listeners.into_iter().zip(fronts).map(|(listener, front)| serve(listener, front, places.clone()));
        Ok(Calling { served: served.collect(), front })
    }

    fn start_serve(&mut self, pools: &Pools, config: ServeConfig) -> io::Result<Serving> {
        let pool = pools.named(&config.pool)?;
        let threads = (0..config.threads.max(1)).map(FrontThread::start).collect::<io::Result<Vec<_>>>()?;
        let (connections_max, access) = (config.connections_max, Access::Mode(config.unix_mode));
        let front = Arc::new(ServeFront::new(pool.clone(), config, self.warnings.clone())?);
        self.figures.push(front.figures().clone());
        let places = Places::new(connections_max);
        let mut served = Vec::new();
        for bind in front.binds() {
            let mut listeners = threads[0].bind("fronts.serve", bind, access, &threads[1..])?;
            self.serve_addresses.push(listeners[0].address().to_string());
            for (thread, listener) in threads.iter().zip(listeners.drain(..)) {
                let _entered = thread.enter();
                served.push(serve(listener, front.clone(), places.clone()));
            }
        }
        front.read_links(&threads[0]);
        Ok(Serving { threads, served, pool, front })
    }

    fn start_tcp(&mut self, pools: &Pools, config: &TcpConfig) -> io::Result<Served> {
        let pool = pools.named(&config.pool)?;
        let listeners = bind_all("fronts.tcp", &config.bind, Access::Everyone)?;
        self.tcp_addresses = listeners.iter().map(|listener| listener.address().to_string()).collect();
        let (stop, stopped) = oneshot::channel();
        let done = tokio::spawn(TcpFront::new(pool, listeners, config, self.warnings.clone()).serve(stopped));
        Ok(Served { stop, done, figures: None })
    }

    fn start_admin(&mut self, pools: &Pools, config: AdminConfig) -> io::Result<(Served, Arc<AdminFront>)> {
        let listener = Listener::bind(&config.bind, Access::Owner)
            .map_err(|error| not_bound("fronts.admin", &config.bind, &error))?;
        let is_guarded = config.token.is_some() || config.token_file.is_some();
        refuse_unguarded("fronts.admin", &config.bind, listener.address(), is_guarded || config.insecure)?;
        self.admin_address = Some(listener.address().to_string());
        let (figures, warnings, stopping) = (self.figures.clone(), self.warnings.clone(), self.stopping.clone());
        let front = AdminFront::new(pools.clone(), &config, listener.address(), figures, warnings, stopping)?;
        let front = Arc::new(front);
        Ok((serve(listener, front.clone(), Places::new(ADMIN_CONNECTIONS_MAX)), front))
    }
}

impl Drop for Fronts {
    /// Cuts everything off without waiting: a forked copy has no threads that could be waited for.
    fn drop(&mut self) {
        if let Some(running) = self.running.lock().take() {
            running.runtime.shutdown_background();
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("clutch-front")
        .on_thread_start(sys::block_signals)
        .enable_all()
        .build()
}

fn bind_all(front: &str, binds: &[String], access: Access) -> io::Result<Vec<Listener>> {
    binds.iter().map(|bind| Listener::bind(bind, access).map_err(|error| not_bound(front, bind, &error))).collect()
}

/// What the check of the configuration cannot see: where a socket listens that was handed over, or a name leads to.
fn refuse_unguarded(front: &str, bind: &str, address: &Address, may_be_open: bool) -> io::Result<()> {
    if may_be_open || address.is_local() {
        return Ok(());
    }
    let why = format!(
        "{front}.bind {bind} is {address}, an address beyond loopback: it needs a token, TLS, or insecure = true"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn serve<F: Front>(listener: Listener, front: Arc<F>, places: Places) -> Served {
    let (stop, stopped) = oneshot::channel();
    let figures = Some(front.figures().clone());
    let done = tokio::spawn(accept::serve(listener, front, places, stopped));
    Served { stop, done, figures }
}

async fn end(served: Option<Served>, grace: Duration) {
    let Some(Served { stop, mut done, figures }) = served else {
        return;
    };
    // A front that has ended already needs no telling.
    let _ = stop.send(());
    if tokio::time::timeout(grace, &mut done).await.is_err() {
        figures.iter().for_each(|figures| figures.cut());
        done.abort();
    }
}
