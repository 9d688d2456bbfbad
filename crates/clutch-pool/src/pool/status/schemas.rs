//! Schemas of a pool's tools, told by its zygote, for network callers before they call one.
//!
//! The schemas stay the text that the zygote wrote: nothing here reads them, and their members keep their order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Schemas of the tools of one image.
#[derive(Debug, Deserialize)]
pub struct ToolSchemas {
    pub tools: Vec<ToolSchema>,
    /// Definitions that the shared forms refer to. Each name begins with that of the pool and a dot.
    pub definitions: BTreeMap<String, Box<RawValue>>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct ToolSchema {
    pub name: String,
    pub signature: String,
    /// First line of the docstring.
    pub summary: String,
    pub description: String,
    /// The tool answers with many values, one by one; `result` is one of them.
    pub stream: bool,
    /// Why a schema is empty.
    pub note: Option<String>,
    /// Errors that the tool says it raises.
    #[serde(default)]
    pub problems: Vec<ToolProblem>,
    pub parameters: Box<RawValue>,
    pub result: Box<RawValue>,
    #[serde(skip_serializing)]
    pub shared: SharedSchemas,
}

/// A problem document of a tool's own.
#[derive(Debug, Deserialize, Serialize)]
pub struct ToolProblem {
    pub status: u16,
    pub r#type: String,
    pub title: String,
    pub description: String,
}

/// The same two, with references into the definitions.
#[derive(Debug, Deserialize)]
pub struct SharedSchemas {
    pub parameters: Box<RawValue>,
    pub result: Box<RawValue>,
}
