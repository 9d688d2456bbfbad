//! The operator plane: what a process with pools tells of itself, and what it can be told to do.
//!
//! The process has one [`Plane`], and any number of ways to it: a private unix socket, which the commands of `clutch` use, and
//! fronts that are configured with `kind = "admin"`. Everybody who reaches it may read health, readiness, counts and
//! metrics. The rest is for operators: whoever comes by a unix socket as the same user or root, or brings a token.

mod actions;
mod asked;
mod door;
mod events;
mod members;
mod pages;
mod routes;
mod sign_in;
mod socket;

use std::sync::Arc;
use std::time::Duration;

pub use self::socket::OperatorSocket;

use clutch_host::{Address, Context, Front, Reread, Start, StopOrder};

use self::door::Door;
use crate::account::figures::Figures;
use crate::config::AdminConfig;
use crate::net::accept::Accepting;
use crate::net::access_control::{AccessControl, Guard};
use crate::net::listen::{Access, Listener, not_bound, refuse_unguarded};
use crate::net::sessions::Sessions;
use crate::net::tokens::Tokens;

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 256;

impl Start for AdminConfig {
    fn start(self: Box<Self>, context: &Context) -> clutch_host::Result<Arc<dyn Front>> {
        let runtime = context.runtime()?;
        let _entered = runtime.enter();
        let place = context.place();
        let listener =
            Listener::bind(&self.bind, Access::Owner).map_err(|error| not_bound(&place, &self.bind, &error))?;
        let may_be_open = self.token.is_some() || self.token_file.is_some() || self.insecure;
        refuse_unguarded(&place, &self.bind, listener.address(), may_be_open)?;
        let tokens =
            Tokens::new(&context.name, self.token.as_deref(), self.token_file.as_deref(), None, &context.warnings)?;
        let sessions = tokens.as_ref().map(|_| Arc::new(Sessions::new(port_of(listener.address()), false)));
        let guard = Guard { tokens, sessions, ..Guard::default() };
        let access_control = AccessControl::new(&self.bind, listener.address(), guard);
        context.plane.measure_work();
        let warnings = context.warnings.clone();
        let door = Door::new(context.plane.clone(), access_control, Figures::of(context), warnings, false);
        let mut accepting = Accepting::new(CONNECTIONS_MAX);
        accepting.add(listener, door.clone());
        Ok(Arc::new(AdminFront { context: context.clone(), accepting, door }))
    }
}

/// Returns the port of an address; 0 for a unix socket.
fn port_of(address: &Address) -> u16 {
    match address {
        Address::Tcp(address) => address.port(),
        Address::Unix(_) => 0,
    }
}

struct AdminFront {
    context: Context,
    accepting: Accepting,
    door: Arc<Door>,
}

impl Front for AdminFront {
    fn addresses(&self) -> &[Address] {
        self.accepting.addresses()
    }

    fn stop(&self, grace: Duration) {
        self.accepting.stop(grace);
    }

    fn stop_order(&self) -> StopOrder {
        StopOrder::Last
    }

    fn reload(&self, _pools: &[String]) -> Vec<Reread> {
        let tokens = self.door.tokens().and_then(|tokens| tokens.reload());
        self.context.reread([("token_file", tokens)])
    }

    fn token(&self) -> Option<String> {
        self.door.tokens()?.first()
    }
}
