//! Records of requests: copies of the fields that a line names, and when and how the request ended.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::{Method, Version};

use crate::account::figures::End;
use crate::net::connection::RawTarget;
use crate::net::peer::Peer;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Value of one header, sent by a client or an app: a copy, since a slice would keep alive all that was read with it.
pub(super) type HeaderText = Option<Box<[u8]>>;

fn said(headers: &HeaderMap, names: &[HeaderName]) -> Box<[HeaderText]> {
    names.iter().map(|name| headers.get(name).map(|value| value.as_bytes().into())).collect()
}

/// Fields that lines name, and so those that a record keeps.
#[derive(Default)]
pub(super) struct KeptFields {
    /// Headers.
    pub(super) of_request: Vec<HeaderName>,
    pub(super) of_response: Vec<HeaderName>,
    pub(super) user: bool,
}

impl KeptFields {
    /// Returns the user name that the client gave by Basic authentication; the password is not kept.
    pub(super) fn user(&self, headers: &HeaderMap) -> HeaderText {
        let value = headers.get(AUTHORIZATION).filter(|_| self.user)?.as_bytes();
        let (scheme, both) = value.split_at_checked(6)?;
        let both = from_base64(both).filter(|_| scheme.eq_ignore_ascii_case(b"basic "))?;
        both.split(|byte| *byte == b':').next().filter(|user| !user.is_empty()).map(Into::into)
    }
}

/// Facts of a request's head.
#[derive(Debug)]
pub(super) struct RequestFacts {
    pub(super) method: Method,
    pub(super) target: Box<str>,
    pub(super) version: Version,
    /// Values of the headers that the line names.
    pub(super) headers: Box<[HeaderText]>,
    pub(super) user: HeaderText,
}

impl RequestFacts {
    fn of(head: &Parts, named: &KeptFields) -> RequestFacts {
        let target = match (head.extensions.get::<RawTarget>(), head.uri.path_and_query()) {
            (Some(raw), Some(target)) => raw.text(target.as_str().len()).into(),
            (_, Some(target)) => target.as_str().into(),
            (_, None) => head.uri.to_string().into(),
        };
        let (method, version) = (head.method.clone(), head.version);
        RequestFacts {
            method,
            target,
            version,
            headers: said(&head.headers, &named.of_request),
            user: named.user(&head.headers),
        }
    }

    /// Bytes that the client has said.
    fn weight(&self) -> usize {
        let said = self.headers.iter().chain([&self.user]).flatten().map(|value| value.len()).sum::<usize>();
        self.method.as_str().len() + self.target.len() + said
    }

    pub(super) fn path_and_query(&self) -> (&str, Option<&str>) {
        self.target.split_once('?').map_or((&self.target, None), |(path, query)| (path, Some(query)))
    }
}

/// Record of one request, as far as it has come.
#[derive(Debug)]
pub(crate) struct Record {
    pub(super) peer: Arc<Peer>,
    /// As proxies say.
    pub(super) client: Option<IpAddr>,
    pub(super) is_secure: bool,
    pub(super) waited: Duration,
    /// In the line of the pool. None: no worker got it.
    pub(super) queued: Option<Duration>,
    /// CPU time of its code. None: not known.
    pub(super) cpu: Option<Duration>,
    /// None: no head could be read.
    pub(super) asked: Option<RequestFacts>,
    /// The first line of what could not be read, if there was one.
    pub(super) line: Option<Box<str>>,
    pub(super) at: SystemTime,
    pub(super) begun: Instant,
    pub(super) head_after: Option<Duration>,
    pub(super) ended_after: Duration,
    pub(super) status: Option<u16>,
    /// Values of the response headers that the line names.
    pub(super) response_headers: Box<[HeaderText]>,
    pub(super) bytes: u64,
    pub(super) end: End,
    /// Of a WebSocket that is over.
    pub(super) close_code: Option<u16>,
}

impl Record {
    fn begin(peer: &Arc<Peer>, asked: Option<RequestFacts>) -> Box<Record> {
        Box::new(Record {
            peer: peer.clone(),
            client: None,
            is_secure: peer.is_secure,
            waited: Duration::ZERO,
            queued: None,
            cpu: None,
            asked,
            line: None,
            at: SystemTime::now(),
            begun: Instant::now(),
            head_after: None,
            ended_after: Duration::ZERO,
            status: None,
            response_headers: Box::default(),
            bytes: 0,
            end: End::ClientGone,
            close_code: None,
        })
    }

    pub(super) fn of(peer: &Arc<Peer>, head: &Parts, named: &KeptFields) -> Box<Record> {
        Record::begin(peer, Some(RequestFacts::of(head, named)))
    }

    /// Stores the facts that proxies gave. `waited`: the time before the request came to us.
    pub(crate) fn forwarded(&mut self, client: Option<IpAddr>, is_secure: Option<bool>, waited: Duration) {
        (self.client, self.waited) = (client, waited);
        self.is_secure = is_secure.unwrap_or(self.is_secure);
    }

    /// Stores the name of the token, as the user.
    pub(super) fn is_by(&mut self, name: &str) {
        self.asked.iter_mut().for_each(|asked| asked.user = Some(name.as_bytes().into()));
    }

    /// Makes the record of a connection on which no request came.
    pub(crate) fn of_nothing(peer: &Arc<Peer>, since: Instant, status: Option<u16>, end: End) -> Box<Record> {
        let mut record = Record::begin(peer, None);
        record.at = record.at.checked_sub(since.elapsed()).unwrap_or(record.at);
        (record.begun, record.status, record.end) = (since, status, end);
        record
    }

    pub(crate) fn with_line(mut self: Box<Record>, line: Option<&str>) -> Box<Record> {
        self.line = line.map(Into::into);
        self
    }

    pub(super) fn head_came(&mut self, status: u16, headers: &HeaderMap, named: &KeptFields) {
        self.response_headers = said(headers, &named.of_response);
        self.status = Some(status);
        self.head_after = Some(self.begun.elapsed());
    }

    /// The request is over, and began so long ago; its response began `head_after` that.
    pub(crate) fn is_past(&mut self, after: Duration, head_after: Duration) {
        self.at = self.at.checked_sub(after).unwrap_or(self.at);
        self.begun = self.begun.checked_sub(after).unwrap_or(self.begun);
        self.head_after = self.head_after.map(|_| head_after);
    }

    /// Its client has the whole response, and that is no error.
    pub(super) fn has_succeeded(&self) -> bool {
        self.end == End::Whole && self.status.is_some_and(|status| status < 400)
    }

    pub(super) fn path(&self) -> Option<&str> {
        self.asked.as_ref().map(|asked| asked.path_and_query().0)
    }

    /// Bytes that the client and the app have said.
    pub(super) fn weight(&self) -> usize {
        let of_response = self.response_headers.iter().flatten().map(|value| value.len()).sum::<usize>();
        self.asked.as_ref().map_or(0, RequestFacts::weight) + of_response
    }

    /// None: by a unix socket, and no proxy has said more.
    pub(super) fn client(&self) -> Option<String> {
        let peer = Some(self.peer.client_address()).filter(|address| !address.is_empty());
        self.client.map(|client| client.to_string()).or_else(|| peer.map(str::to_owned))
    }
}

/// None: it is none.
fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let text = text.trim_ascii();
    let text = &text[..text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1)];
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for four in text.chunks(4) {
        let mut bits = 0_u32;
        for byte in four {
            bits = bits << 6 | u32::try_from(ALPHABET.iter().position(|known| known == byte)?).ok()?;
        }
        let bits = bits << (6 * (4 - four.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}
