//! Bodies of operators' requests.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Stands for the body of a request that needs none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "no body, or {}")]
pub struct Nothing {}

/// Reads a body, a JSON object; an empty one stands for `{}`. The error is for people.
pub fn given<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|error| format!("the body is not the JSON object that is expected here: {error}"))
}
