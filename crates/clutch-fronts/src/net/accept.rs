//! Connections are accepted up to a limit, and served until they are told to end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, oneshot, watch};

use super::listen::Listener;
use super::stream::{Places, Stay, Stream};
use crate::front::Front;
use crate::problem::Problem;

/// How long accepting pauses when the process has no descriptor left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a connection beyond the limit is kept so that its client can read why.
const TURN_AWAY: Duration = Duration::from_secs(1);

/// Most connections that are being turned away politely; more are just closed.
const TURNED_AWAY_MAX: usize = 64;

/// Of a client that is turned away, so much is read.
const UNREAD_BYTES_MAX: u64 = 8192;

/// Accepts until told to stop, then waits for the connections to end.
pub(crate) async fn serve<F: Front>(
    listener: Listener,
    front: Arc<F>,
    places: Places,
    mut stop: oneshot::Receiver<()>,
) {
    let (leave, stays) = watch::channel(());
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(stream) => match places.take() {
                Some(place) => {
                    let stay = Stay::new(stays.clone(), place, front.figures().connection());
                    tokio::spawn(front.clone().serve(stream, stay));
                }
                None => {
                    front.turned_away(stream.client);
                    if let Some(place) = turned_away.clone().try_acquire_owned().ok().filter(|_| front.is_plain()) {
                        tokio::spawn(async move {
                            turn_away(stream).await;
                            drop(place);
                        });
                    }
                }
            },
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                front.warnings().tell("accept", || not_accepted(&error));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    front.stopping();
    drop(stays);
    // Nobody listens any more is as good.
    let _ = leave.send(());
    leave.closed().await;
}

pub(crate) fn not_accepted(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => {
            "no connection can be accepted: this process has all the descriptors that it may have (ulimit -n)"
                .to_owned()
        }
        Some(Errno::NFILE) => {
            "no connection can be accepted: the system has all the files open that it may have (fs.file-max)".to_owned()
        }
        _ => format!("no connection can be accepted: {error}"),
    }
}

/// Says why, then reads on for a while: closing on unread bytes would take the answer away from the client.
async fn turn_away(mut stream: Stream) {
    let told = async {
        stream.io.write_all(&Problem::too_many_connections().last_words()).await?;
        stream.io.shutdown().await?;
        let mut unread = (&mut stream.io).take(UNREAD_BYTES_MAX);
        tokio::io::copy(&mut unread, &mut tokio::io::sink()).await
    };
    // Whether the client heard it changes nothing here.
    let _ = tokio::time::timeout(TURN_AWAY, told).await;
}
