//! What was sent through a connection that was given up, and reaches the server late.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use clutch_jobs::stores;

use super::server::Server;
use super::{NOW, is_unavailable, job};

/// Stands between a store and its server. Of the first connection, what has this word in it is held back until the test
/// lets it go, also when the store is no more there.
struct Network {
    port: u16,
    hold: Sender<&'static str>,
    release: Sender<()>,
    /// Once the server has ended the first connection.
    ended: Receiver<()>,
}

impl Network {
    fn before(server: u16) -> Network {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let ((hold, words), (release, released), (end, ended)) = (channel(), channel(), channel());
        let mut first = Some((words, released, end));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let (to_client, from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (words, released, end) = first.take().unwrap_or_else(|| (channel().1, channel().1, channel().0));
                thread::spawn(move || forward(client, server, &words, &released));
                thread::spawn(move || {
                    answer(from_server, to_client);
                    let _ = end.send(());
                });
            }
        });
        Network { port, hold, release, ended }
    }
}

fn forward(mut client: TcpStream, mut server: TcpStream, words: &Receiver<&'static str>, released: &Receiver<()>) {
    let mut buffer = vec![0; 1 << 16];
    let mut word = "";
    while let Ok(count @ 1..) = client.read(&mut buffer) {
        if let Ok(next) = words.try_recv() {
            word = next;
        }
        if !word.is_empty() && buffer[..count].windows(word.len()).any(|part| part == word.as_bytes()) {
            let _ = released.recv();
        }
        if server.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
}

fn answer(mut server: TcpStream, mut client: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = server.read(&mut buffer) {
        if client.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

#[test]
fn what_comes_late_is_not_carried_out() {
    let Some(server) = Server::with_port(&[]) else { return };
    let network = Network::before(server.port);
    let store = stores::open(&format!("redis://127.0.0.1:{}", network.port)).unwrap();
    store.enqueue(&[job()], NOW).unwrap();
    network.hold.send("EVALSHA").unwrap();
    assert!(is_unavailable(store.enqueue(&[job()], NOW)), "it is on the way");
    store.enqueue(&[job()], NOW).unwrap();
    network.ended.recv_timeout(Duration::from_secs(30)).unwrap();
    let _ = network.release.send(());
    assert_eq!(store.queues().unwrap()[0].available, 2);
}
