//! Signs browsers in and out: `POST /sign-in` with a token, once, and a cookie from then on.

use clutch_host::body::Nothing;
use hyper::Response;
use hyper::header::{CACHE_CONTROL, HeaderValue, SET_COOKIE};
use serde::Deserialize;
use serde_json::json;

use super::asked::{Answer, Asked};
use super::pages::document;
use crate::body::Body;
use crate::body::problem::Problem;
use crate::net::sessions::{NotSignedIn, SESSION_LIFE};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object such as {\"token\": \"…\"}")]
struct SignIn {
    token: String,
}

pub(super) async fn sign_in(asked: Asked) -> Answer {
    let SignIn { token } = asked.given()?;
    let (Some(tokens), Some(sessions)) = (asked.access_control.tokens(), asked.access_control.sessions()) else {
        return Err(Problem::refused("nobody signs in here: this address needs no token"));
    };
    let cookie = sessions.sign_in(tokens, token.as_bytes()).map_err(|error| match error {
        NotSignedIn::WrongToken => Problem::unauthorized(),
        NotSignedIn::TooManyFailures => Problem::too_many_sign_ins(),
        NotSignedIn::NoRandomness(error) => Problem::refused(error),
    })?;
    Ok(with_cookie(document(&json!({ "expires_in_s": SESSION_LIFE.as_secs() })), cookie))
}

pub(super) async fn sign_out(asked: Asked) -> Answer {
    let Nothing {} = asked.given()?;
    let answer = document(&json!({}));
    let cookie = asked.access_control.sessions().map(|sessions| sessions.sign_out(&asked.head.headers));
    Ok(match cookie {
        Some(cookie) => with_cookie(answer, cookie),
        None => answer,
    })
}

fn with_cookie(mut answer: Response<Body>, cookie: HeaderValue) -> Response<Body> {
    answer.headers_mut().insert(SET_COOKIE, cookie);
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
