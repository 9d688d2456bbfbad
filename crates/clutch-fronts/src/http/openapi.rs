//! The tools of all pools as one OpenAPI 3.1 document.
//!
//! The schemas are the zygotes' own; what is added is what is the same for each tool: its path, the headers of a call, and
//! the problems that it may be answered with. Components that the zygotes made have the name of their pool and a dot before
//! their own, so none is met twice, nor is one of these here.

use std::collections::BTreeMap;
use std::fmt::Write;

use clutch_pool::pool::{ToolProblem, ToolSchema, ToolSchemas};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Name of the security scheme.
pub(crate) const TOKEN: &str = "token";

/// Description of a pool whose tools are not known.
const UNKNOWN: &str = "Not described: only its workers know its tools, or it has not started yet.";

/// Headers that every call may have.
const HEADERS: [&str; 2] = ["Clutch-Timeout", "Clutch-Priority"];

/// Tag of the paths that list tools.
const DISCOVERY: &str = "discovery";

#[derive(Serialize)]
struct Document<'a> {
    openapi: &'static str,
    info: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security: Vec<Value>,
    tags: Vec<Value>,
    paths: BTreeMap<String, Path<'a>>,
    components: Components<'a>,
}

/// Each has one operation.
#[derive(Serialize)]
enum Path<'a> {
    #[serde(rename = "post")]
    Call(Box<Call<'a>>),
    #[serde(rename = "get")]
    Fixed(Value),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Call<'a> {
    operation_id: String,
    tags: [&'a str; 1],
    summary: &'a str,
    description: String,
    parameters: Value,
    request_body: Content<'a>,
    responses: BTreeMap<String, ResponseObject<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResponseObject<'a> {
    Result(Content<'a>),
    Problem(Value),
}

/// A body, of a request or of a response.
#[derive(Serialize)]
struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    required: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'static str>,
    content: BTreeMap<&'static str, Media<'a>>,
}

#[derive(Serialize)]
struct Media<'a> {
    schema: Schema<'a>,
}

#[derive(Clone, Copy)]
enum Schema<'a> {
    Of(&'a RawValue),
    Text,
    /// An object with one member, `result`.
    Result(&'a RawValue),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Components<'a> {
    schemas: BTreeMap<&'a str, Definition<'a>>,
    parameters: Value,
    responses: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    security_schemes: Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Definition<'a> {
    Told(&'a RawValue),
    Fixed(Value),
}

/// Returns the document for these pools: their names and known schemas. `passed_on`: headers that tools are told.
pub(crate) fn document(pools: &[(&str, Option<&ToolSchemas>)], passed_on: &[String], wants_token: bool) -> Vec<u8> {
    let known = || pools.iter().filter_map(|(pool, schemas)| Some((*pool, (*schemas)?)));
    let tools = known().flat_map(|(pool, schemas)| schemas.tools.iter().map(move |tool| (pool, tool)));
    let mut paths: BTreeMap<String, Path<'_>> =
        tools.map(|(pool, tool)| (path(pool, tool), call(pool, tool, passed_on))).collect();
    paths.extend(listings());
    let definitions = known().flat_map(|(_, schemas)| &schemas.definitions);
    let mut schemas: BTreeMap<&str, _> =
        definitions.map(|(name, schema)| (name.as_str(), Definition::Told(schema))).collect();
    schemas.insert("Problem", Definition::Fixed(problem()));
    let document = Document {
        openapi: "3.1.0",
        info: info(),
        security: if wants_token { vec![json!({ TOKEN: [] })] } else { Vec::new() },
        tags: pools.iter().map(|(pool, schemas)| tag(pool, schemas.is_some())).collect(),
        paths,
        components: Components {
            schemas,
            parameters: parameters(passed_on),
            responses: responses(),
            security_schemes: if wants_token { security() } else { Value::Null },
        },
    };
    // Strings and JSON values always serialise.
    serde_json::to_vec(&document).unwrap_or_default()
}

impl Serialize for Schema<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Wrapped<'a> {
            r#type: &'static str,
            properties: BTreeMap<&'static str, &'a RawValue>,
            required: [&'static str; 1],
        }
        match *self {
            Schema::Of(schema) => schema.serialize(serializer),
            Schema::Text => BTreeMap::from([("type", "string")]).serialize(serializer),
            Schema::Result(schema) => {
                let properties = BTreeMap::from([("result", schema)]);
                Wrapped { r#type: "object", properties, required: ["result"] }.serialize(serializer)
            }
        }
    }
}

// ---- one tool

fn path(pool: &str, tool: &ToolSchema) -> String {
    format!("/pools/{}/tools/{}", encoded(pool), encoded(&tool.name))
}

/// As it is written in a URL. Braces would mean a parameter.
fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn call<'a>(pool: &'a str, tool: &'a ToolSchema, passed_on: &[String]) -> Path<'a> {
    let headers = HEADERS.into_iter().chain(passed_on.iter().map(String::as_str));
    let mut responses: BTreeMap<_, _> =
        PROBLEMS.iter().map(|(status, name, _)| ((*status).to_owned(), reference(name))).collect();
    responses.insert("200".to_owned(), ResponseObject::Result(answer(tool)));
    responses.extend(own_problems(&tool.problems));
    Path::Call(Box::new(Call {
        operation_id: format!("{pool}.{}", tool.name),
        tags: [pool],
        summary: &tool.summary,
        description: description(tool),
        parameters: headers.map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })).collect(),
        request_body: Content {
            required: Some(true),
            description: None,
            content: media("application/json", Schema::Of(&tool.shared.parameters)),
        },
        responses,
    }))
}

fn description(tool: &ToolSchema) -> String {
    let note = tool.note.as_deref().map(|note| format!("Note: {note}"));
    let parts = [Some(tool.description.as_str()), note.as_deref()];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn answer(tool: &ToolSchema) -> Content<'_> {
    let schema = &tool.shared.result;
    let (description, content) = if tool.stream {
        let text = "Values one by one, each a line of JSON by this schema; of one that fails, the last line is \
                    `{\"error\": …}` with the problem document. With `Accept: text/event-stream`, server-sent events: \
                    of each value its JSON, of a failure the event `error`, and at the end the event `end`.";
        let mut content = media("application/x-ndjson", Schema::Of(schema));
        content.insert("text/event-stream", Media { schema: Schema::Text });
        (text, content)
    } else {
        ("What the tool returned.", media("application/json", Schema::Result(schema)))
    };
    Content { required: None, description: Some(description), content }
}

fn media<'a>(kind: &'static str, schema: Schema<'a>) -> BTreeMap<&'static str, Media<'a>> {
    BTreeMap::from([(kind, Media { schema })])
}

fn reference(name: &str) -> ResponseObject<'static> {
    ResponseObject::Problem(json!({ "$ref": format!("#/components/responses/{name}") }))
}

/// The responses by which a tool's own problems are told, by status. Of a status that other problems have as well, no
/// more is promised than that it is a problem.
fn own_problems<'a>(problems: &'a [ToolProblem]) -> impl Iterator<Item = (String, ResponseObject<'a>)> {
    let mut by_status: BTreeMap<u16, Vec<&ToolProblem>> = BTreeMap::new();
    problems.iter().for_each(|problem| by_status.entry(problem.status).or_default().push(problem));
    by_status.into_iter().map(|(status, problems)| {
        let status = status.to_string();
        let shared =
            PROBLEMS.iter().find(|(other, ..)| *other == status).map(|(.., description)| (*description).into());
        let types: Vec<&str> = problems.iter().map(|problem| problem.r#type.as_str()).collect();
        let problem = json!({ "$ref": "#/components/schemas/Problem" });
        let schema = match shared {
            Some(_) => problem,
            None => json!({ "allOf": [problem, { "properties": { "type": { "type": "string", "enum": types } } }] }),
        };
        let described = shared.into_iter().chain(problems.iter().map(|problem| told(problem))).collect::<Vec<_>>();
        let content = json!({ "application/problem+json": { "schema": schema } });
        (status, ResponseObject::Problem(json!({ "description": described.join("\n\n"), "content": content })))
    })
}

fn told(problem: &ToolProblem) -> String {
    let ToolProblem { r#type, title, description, .. } = problem;
    let more = if description.is_empty() { String::new() } else { format!(". {description}") };
    format!("`{type}`: {title}{more}")
}

// ---- what is the same for all

/// Status, name of the component, meaning.
const PROBLEMS: [(&str, &str, &str); 6] = [
    ("422", "BadArguments", "The arguments do not fit; `problems` has each with its place (`loc`) and why (`msg`)."),
    ("500", "Failed", "The tool raised (`type_name`, `message`), or its result cannot be encoded."),
    ("502", "WorkerLost", "The worker died while it ran the call (`pid`, `signal`, `exit_code`, `cause`)."),
    ("503", "Unavailable", "Not now: the queue is full, or the pool stops, starts or fails. `Retry-After` says when."),
    ("504", "DeadlineExceeded", "The deadline passed; `where` says whether the call had begun (`running`) or not."),
    ("default", "Problem", "Anything else: the request is not accepted. The `type` says why."),
];

fn info() -> Value {
    json!({
        "title": "Tools",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Each tool is called with a JSON object of its arguments. The version is that of Clutch.",
    })
}

fn tag(pool: &str, known: bool) -> Value {
    let mut tag = json!({ "name": pool });
    if !known {
        tag["description"] = UNKNOWN.into();
    }
    tag
}

fn security() -> Value {
    let description = "A token of the front: its option `token`, or a line of its `token_file`.";
    json!({ TOKEN: { "type": "http", "scheme": "bearer", "description": description } })
}

fn parameters(passed_on: &[String]) -> Value {
    let header = |name: &str, description: &str, schema: Value| json!({ "name": name, "in": "header", "description": description, "schema": schema });
    let mut parameters = json!({
        "Clutch-Timeout": header(
            "Clutch-Timeout",
            "Deadline of the call: `2.5s`, `250ms`, or plain seconds. Default: the pool's `deadline`.",
            json!({ "type": "string", "pattern": "^[0-9.]+(s|ms)?$" }),
        ),
        "Clutch-Priority": header(
            "Clutch-Priority",
            "Larger first.",
            json!({ "type": "integer", "minimum": -9, "maximum": 9, "default": 0 }),
        ),
    });
    for name in passed_on {
        parameters[name] = header(name, "Passed on to the tool.", json!({ "type": "string" }));
    }
    parameters
}

fn responses() -> Value {
    let content = json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } });
    PROBLEMS
        .iter()
        .map(|(_, name, description)| {
            let mut response = json!({ "description": description, "content": content });
            if *name == "Unavailable" {
                let schema = json!({ "type": "integer" });
                response["headers"] = json!({ "Retry-After": { "description": "Seconds.", "schema": schema } });
            }
            (name.to_string(), response)
        })
        .collect()
}

/// RFC 9457.
fn problem() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "type": "object",
        "description": "A problem document (RFC 9457); some types have members of their own.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": text("`urn:clutch:` and the name of the problem, or a type of the tool's own."),
            "title": text("The same for each of this type."),
            "status": { "type": "integer" },
            "detail": text("What happened this time."),
        },
        "additionalProperties": true,
    })
}

/// The paths that tell of tools.
fn listings() -> [(String, Path<'static>); 2] {
    let schema = |member: &str| {
        let items = json!({ "type": "array", "items": { "type": "object", "additionalProperties": true } });
        json!({ "type": "object", "required": [member], "properties": { member: items } })
    };
    let operation = |id: &str, summary: &str, member: &str, parameters: Value| {
        let content = json!({ "application/json": { "schema": schema(member) } });
        let responses = json!({
            "200": { "description": summary, "content": content },
            "default": { "$ref": "#/components/responses/Problem" },
        });
        let tags = [DISCOVERY];
        Path::Fixed(json!({
            "operationId": id, "tags": tags, "summary": summary, "parameters": parameters, "responses": responses,
        }))
    };
    let pool = json!([{ "name": "pool", "in": "path", "required": true, "schema": { "type": "string" } }]);
    [
        (
            "/pools".to_owned(),
            operation("pools", "Pools, their state and the names of their tools", "pools", json!([])),
        ),
        ("/pools/{pool}/tools".to_owned(), operation("tools", "Tools of a pool with their schemas", "tools", pool)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = r##"{
        "tools": [
            {"name": "add", "signature": "(b, a)", "summary": "Adds.", "description": "Adds.\n\nMore.", "stream": false,
             "note": null, "problems": [
                {"status": 404, "type": "urn:a:b", "title": "No b", "description": "None."},
                {"status": 404, "type": "urn:a:c", "title": "No c", "description": ""},
                {"status": 503, "type": "urn:a:d", "title": "No d", "description": ""}],
             "parameters": {}, "result": {}, "shared": {
                "parameters": {"$ref": "#/components/schemas/api.add_arguments"}, "result": {"type": "integer"}}},
            {"name": "{é}", "signature": "()", "summary": "", "description": "", "stream": true, "note": "why",
             "parameters": {}, "result": {}, "shared": {"parameters": {}, "result": {"type": "string"}}}],
        "definitions": {"api.add_arguments": {"type": "object", "properties": {"b": {}, "a": {}}}}
    }"##;

    fn made(wants_token: bool) -> (String, Value) {
        let schemas: ToolSchemas = serde_json::from_str(TOLD).expect("schemas");
        let text = String::from_utf8(document(
            &[("api", Some(&schemas)), ("slow", None)],
            &["x-tenant".to_owned()],
            wants_token,
        ))
        .expect("text");
        let parsed = serde_json::from_str(&text).expect("JSON");
        (text, parsed)
    }

    #[test]
    fn a_tool_is_an_operation_with_its_schemas() {
        let (text, document) = made(false);
        let call = &document["paths"]["/pools/api/tools/add"]["post"];
        assert_eq!(call["operationId"], "api.add");
        assert_eq!((&call["summary"], &call["description"]), (&json!("Adds."), &json!("Adds.\n\nMore.")));
        let body = &call["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(body["$ref"], "#/components/schemas/api.add_arguments");
        let result = &call["responses"]["200"]["content"]["application/json"]["schema"];
        assert_eq!(
            *result,
            json!({ "type": "object", "properties": { "result": { "type": "integer" } }, "required": ["result"] })
        );
        assert_eq!(call["parameters"][2]["$ref"], "#/components/parameters/x-tenant");
        assert_eq!(document["components"]["parameters"]["x-tenant"]["in"], "header");
        assert_eq!(call["responses"]["504"]["$ref"], "#/components/responses/DeadlineExceeded");
        assert!(text.contains(r#""properties": {"b": {}, "a": {}}"#), "members keep their order: {text}");
    }

    #[test]
    fn problems_of_a_tools_own_are_responses() {
        let (_, document) = made(false);
        let responses = &document["paths"]["/pools/api/tools/add"]["post"]["responses"];
        assert_eq!(responses["404"]["description"], "`urn:a:b`: No b. None.\n\n`urn:a:c`: No c");
        let schema = &responses["404"]["content"]["application/problem+json"]["schema"]["allOf"];
        assert_eq!(schema[0]["$ref"], "#/components/schemas/Problem");
        assert_eq!(schema[1]["properties"]["type"]["enum"], json!(["urn:a:b", "urn:a:c"]));
        let shared = responses["503"]["description"].as_str().expect("text");
        assert!(shared.starts_with("Not now") && shared.ends_with("\n\n`urn:a:d`: No d"), "{shared}");
    }

    #[test]
    fn a_stream_has_lines_and_its_name_is_escaped() {
        let document = made(false).1;
        let call = &document["paths"]["/pools/api/tools/%7B%C3%A9%7D"]["post"];
        assert_eq!(
            call["responses"]["200"]["content"]["application/x-ndjson"]["schema"],
            json!({ "type": "string" }),
            "{document}"
        );
        assert_eq!(call["description"], "Note: why");
    }

    #[test]
    fn a_token_is_a_security_scheme_where_there_is_one() {
        let (open, guarded) = (made(false).1, made(true).1);
        assert!(open.get("security").is_none() && open["components"].get("securitySchemes").is_none());
        assert_eq!(guarded["security"], json!([{ "token": [] }]));
        assert_eq!(guarded["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    }

    #[test]
    fn a_pool_that_is_not_known_is_named() {
        let tags = &made(false).1["tags"];
        assert_eq!(tags[0], json!({ "name": "api" }));
        assert_eq!(tags[1]["description"], UNKNOWN);
    }
}
