//! The server's clock, set while programs have a connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use clutch_jobs::enqueuer::{Enqueuer, Strategy};
use clutch_jobs::job::{Millis, NewJob, now};
use clutch_jobs::store::Store;
use clutch_jobs::stores;

use super::job;
use super::server::Server;

const HOUR: Millis = 3_600_000;

/// What an answer to TIME begins with.
const TIME: &[u8] = b"*2\r\n$10\r\n";

/// Stands before a server, whose clock it sets. Returns its port.
fn set_clock(server: u16, ahead_s: Arc<AtomicI64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
            let (to_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let ahead_s = ahead_s.clone();
            thread::spawn(move || forward(client, server, |_| ()));
            thread::spawn(move || {
                forward(from_server, to_client, |answer| {
                    if let Some(seconds) = answer.strip_prefix(TIME).and_then(|rest| rest.get(..10)) {
                        let seconds = str::from_utf8(seconds).unwrap().parse::<i64>().unwrap();
                        let set = (seconds + ahead_s.load(Ordering::SeqCst)).to_string();
                        answer[TIME.len()..TIME.len() + 10].copy_from_slice(set.as_bytes());
                    }
                });
            });
        }
    });
    port
}

fn forward(mut from: TcpStream, mut to: TcpStream, change: impl Fn(&mut [u8])) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        change(&mut buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// When a job in a minute is due, by the clock of this machine.
fn due(store: &Arc<dyn Store>, enqueuer: &Enqueuer) -> Millis {
    let in_a_minute = NewJob { delay_ms: Some(60_000), ..job() };
    let id = enqueuer.enqueue(vec![in_a_minute]).unwrap().remove(0).id;
    store.get(&id).unwrap().unwrap().scheduled_at.unwrap() - now()
}

#[test]
fn a_delay_is_counted_by_the_clock_of_the_server_that_is_there_now() {
    let Some(server) = Server::with_port(&[]) else { return };
    let ahead_s = Arc::new(AtomicI64::new(0));
    let port = set_clock(server.port, ahead_s.clone());
    let store = stores::open(&format!("redis://127.0.0.1:{port}")).unwrap();
    let enqueuer = Enqueuer::new(Strategy::Pipelined, vec![store.clone()]);
    assert!((due(&store, &enqueuer) - 60_000).abs() < 10_000);
    // As by a failover to a host whose clock is ahead.
    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut server.connect()).unwrap();
    assert!(enqueuer.enqueue(vec![job()]).is_err(), "its connection is gone");
    ahead_s.store(HOUR / 1000, Ordering::SeqCst);
    assert!((due(&store, &enqueuer) - HOUR - 60_000).abs() < 10_000);
}
