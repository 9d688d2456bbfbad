//! The order in which the fronts of a dispatcher start and stop.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use clutch_host::{Context, Front, Fronts, Plane, Program, Result, Start, StopOrder};
use clutch_wire::sync::Mutex;
use serde_json::Value;

/// What happened, in order.
type Notes = Arc<Mutex<Vec<String>>>;

struct Nobody;

impl Program for Nobody {
    fn reload(&self, _: Vec<String>) -> std::result::Result<BTreeMap<String, String>, String> {
        Err("nobody reloads".to_owned())
    }

    fn stop(&self, _: bool) -> std::result::Result<(), String> {
        Err("nobody stops".to_owned())
    }

    fn fronts(&self) -> std::result::Result<Value, String> {
        Err("nobody knows the fronts".to_owned())
    }
}

/// A front that notes what it is told. Its stop lasts until the sender of `held` is gone.
struct Noting {
    notes: Notes,
    order: StopOrder,
    starts: bool,
    held: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Noting {
    fn note(&self, what: &str) {
        self.notes.lock().push(format!("{what} {:?}", self.order));
    }
}

impl Start for Noting {
    fn start(self: Box<Self>, context: &Context) -> Result<Arc<dyn Front>> {
        if !self.starts {
            return Err(format!("{} does not start", context.place()).into());
        }
        self.note("start");
        Ok(Arc::new(*self))
    }
}

impl Front for Noting {
    fn stop_order(&self) -> StopOrder {
        self.order
    }

    fn quiet(&self) {
        self.note("quiet");
    }

    fn stop(&self, _grace: Duration) {
        self.note("stop");
        if let Some(held) = &*self.held.lock() {
            let _ = held.recv();
        }
    }

    fn leave(&self) {
        self.note("leave");
    }
}

fn plane() -> Arc<Plane> {
    Plane::new(Value::Null, Arc::default(), Box::new(Nobody))
}

fn noting(notes: &Notes, order: StopOrder) -> Noting {
    Noting { notes: notes.clone(), order, starts: true, held: Mutex::default() }
}

fn started(plane: &Arc<Plane>, fronts: Vec<Noting>) -> Result<Fronts> {
    let named = fronts.into_iter().enumerate();
    Fronts::start(plane, named.map(|(nr, front)| (nr.to_string(), Box::new(front) as Box<dyn Start>)).collect())
}

fn taken(notes: &Notes) -> Vec<String> {
    std::mem::take(&mut notes.lock())
}

#[test]
fn fronts_stop_around_the_pools_and_the_last_one_can_watch() {
    let (notes, plane) = (Notes::default(), plane());
    let orders = [StopOrder::Last, StopOrder::AfterPools, StopOrder::BeforePools];
    let fronts = started(&plane, orders.map(|order| noting(&notes, order)).into()).unwrap();
    assert_eq!(taken(&notes), ["start Last", "start AfterPools", "start BeforePools"]);
    fronts.stop_work(Duration::ZERO);
    assert!(plane.is_stopping());
    assert_eq!(taken(&notes), ["quiet Last", "quiet AfterPools", "quiet BeforePools", "stop BeforePools"]);
    fronts.settle(Duration::ZERO);
    assert_eq!(taken(&notes), ["stop AfterPools"]);
    fronts.stop(Duration::ZERO);
    fronts.stop(Duration::ZERO);
    assert_eq!(taken(&notes), ["quiet Last", "stop Last"], "a second stop has no effect");
    assert_eq!(fronts.next_warning(), None);
}

#[test]
fn what_a_front_holds_can_be_left_in_the_midst_of_its_stop() {
    let (notes, plane) = (Notes::default(), plane());
    let (release, held) = mpsc::channel::<()>();
    let front = Noting { held: Mutex::new(Some(held)), ..noting(&notes, StopOrder::AfterPools) };
    let fronts = started(&plane, vec![front]).unwrap();
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| fronts.settle(Duration::MAX));
        while !notes.lock().iter().any(|note| note.starts_with("stop")) {
            std::thread::yield_now();
        }
        fronts.leave();
        assert_eq!(taken(&notes).last().map(String::as_str), Some("leave AfterPools"));
        drop(release);
        stop.join().unwrap();
    });
    fronts.leave();
    assert_eq!(taken(&notes), [""; 0], "it has stopped");
}

#[test]
fn where_one_does_not_start_the_others_are_stopped() {
    let (notes, plane) = (Notes::default(), plane());
    let broken = Noting { starts: false, ..noting(&notes, StopOrder::BeforePools) };
    let fronts = started(&plane, vec![noting(&notes, StopOrder::BeforePools), broken]);
    assert_eq!(fronts.err().map(|error| error.to_string()).as_deref(), Some("fronts.1 does not start"));
    assert_eq!(taken(&notes), ["start BeforePools", "quiet BeforePools", "stop BeforePools"]);
}
