//! A front that passes connections to workers, and the pool behind it.

use clutch_fronts::codec;
use clutch_fronts::codec::http::{RequestHead, put_response, response_flag};
use clutch_fronts::config::{Dispatch, ServeConfig};
use clutch_host::Fronts;
use clutch_pool::config::{PoolConfig, Profile, Shape};

use super::client::Client;
use super::holding::Holding;
use super::{Stage, Worker, config, house};

/// Options of such a front that nothing limits.
pub fn serve() -> ServeConfig {
    let forwarded_allow = vec!["127.0.0.1".to_owned()];
    ServeConfig { dispatch: Dispatch::Connection, forwarded_allow, ..house::serve() }
}

/// A pool of two workers that a test plays, behind such a front.
pub struct House {
    pub fronts: Fronts,
    pub stage: Stage,
}

impl House {
    pub fn new() -> House {
        House::with(serve())
    }

    pub fn with(serve: ServeConfig) -> House {
        let shape = Shape { profile: Profile::Async, workers: 2, threads: 1, tasks: 8 };
        let stage = Stage::new(PoolConfig { shape, workers_min: 2, ..config("app") });
        let image = serde_json::json!({ "interface": "asgi" });
        stage.driver.update_status(|status| status.image = image);
        let fronts = super::serve(&[&stage], "serve", Box::new(serve)).expect("fronts");
        House { stage, fronts }
    }

    pub fn worker(&self) -> (Worker, Holding) {
        let mut worker = self.stage.worker(8);
        let holding = Holding::of(&mut worker);
        (worker, holding)
    }

    pub fn client(&self) -> Client {
        Client::new(&self.fronts.addresses("serve")[0])
    }

    pub fn asking(&self, path: &str) -> Client {
        let mut client = self.client();
        client.send(&get(path));
        client
    }
}

pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

/// Answers a request that came by the pool.
pub fn answer_call(worker: &mut Worker, path: &str, body: &str) {
    let call = worker.next_call();
    let (request, _) = RequestHead::read(&call.body).expect("a head");
    assert_eq!(request.line.path, path.as_bytes());
    let mut bytes = Vec::new();
    let mut writer = put_response(&mut bytes, response_flag::WHOLE, 200);
    writer.put(b"content-length", body.len().to_string().as_bytes());
    bytes.extend_from_slice(body.as_bytes());
    worker.say(&call, codec::HEAD, &bytes);
    worker.end(&call);
}
