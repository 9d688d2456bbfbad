//! What the tests of fronts stand on: the stage of the pool's own tests, a client, and a house with a front.

#![allow(dead_code)] // each test file uses a part of it

#[path = "../../../clutch-pool/tests/pool/support.rs"]
mod stage;

pub mod client;
pub mod held_house;
pub mod holding;
pub mod house;

use std::collections::BTreeMap;
use std::sync::Arc;

use clutch_host::{Fronts, Plane, Program, Result as Started, Start};
use serde_json::Value;

pub use stage::*;

/// No program is around the pools.
struct Nobody;

impl Program for Nobody {
    fn reload(&self, _: Vec<String>) -> Result<BTreeMap<String, String>, String> {
        Err("nobody reloads".to_owned())
    }

    fn stop(&self, _: bool) -> Result<(), String> {
        Err("nobody stops".to_owned())
    }

    fn fronts(&self) -> Result<Value, String> {
        Err("nobody knows the fronts".to_owned())
    }
}

/// One front, named for its kind, for the pools of these stages.
pub fn serve(stages: &[&Stage], kind: &str, config: Box<dyn Start>) -> Started<Fronts> {
    let plane = Plane::new(Value::Null, Arc::default(), Box::new(Nobody));
    stages.iter().for_each(|stage| plane.pools.add(stage.pool.clone()));
    Fronts::start(&plane, vec![(kind.to_owned(), config)])
}
