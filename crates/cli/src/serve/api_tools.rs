//! Tools registered over the API. They are stored, so that they survive a restart.
//!
//! In: a tool as JSON. Out: tool builders, checked by the rules of the config and by stricter ones: what concerns this machine
//! (programs, files, variables, private or local hosts) may only be set in its config file.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};
use toolhub::{
    ToolBuilder,
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Row, Scan, Scope, StoreError, Table,
        Write,
    },
    clock::{Clock, SystemClock},
    ids::Tenant,
    server::ToolChangeError,
};

use crate::config::{self, Config, Problem};

/// Schema version of a row with a definition as it was sent.
const PLAIN_SCHEMA: u32 = 1;
/// Schema version of a row with a sealed definition.
const SEALED_SCHEMA: u32 = 2;
/// Keys whose inner keys are free-form, and are not converted to snake case.
const FREE_FORM_KEYS: [&str; 7] = ["body", "form", "headers", "metadata", "parameters", "query", "tokenFields"];
/// Keys that are only allowed in a config file, and what to do instead.
const FILE_ONLY_KEYS: [(&str, &str); 7] = [
    ("command", PROGRAM_HELP),
    ("args", PROGRAM_HELP),
    ("env", PROGRAM_HELP),
    ("pass_env", PROGRAM_HELP),
    ("cwd", PROGRAM_HELP),
    ("allow_hosts", "set `tool_hosts` in [server] of the config; it applies to all tools registered over the API"),
    ("ca_file", "define the tool in the config file"),
];
const PROGRAM_HELP: &str = "commands cannot be registered over the API; define the tool in the config file";

/// Builds a tool from a request. It may depend on tools that `others` knows.
///
/// `hosts` may be reached although their addresses are private or local.
///
/// # Errors
/// What is wrong with the request, for the client.
pub(super) fn build(
    name: &str,
    request: &Value,
    hosts: &[String],
    others: impl Fn(&str) -> bool,
) -> Result<ToolBuilder, ToolChangeError> {
    parse(name, request, hosts, others).and_then(|tool| to_builder(name, &tool))
}

/// Builds a new tool from a request, like [`build`], and refuses one whose requests the address guard would refuse. A tool that is
/// stored already may have such an address: the operator may have changed the config since.
///
/// # Errors
/// What is wrong with the request, for the client.
pub(super) fn build_new(
    name: &str,
    request: &Value,
    hosts: &[String],
    others: impl Fn(&str) -> bool,
) -> Result<ToolBuilder, ToolChangeError> {
    let tool = parse(name, request, hosts, others)?;
    let obstacles = tool.obstacles(name).into_iter().map(|problem| problem.message).collect::<Vec<_>>();
    if !obstacles.is_empty() {
        let why = format!("{}; to allow it, add the host to `server.tool_hosts` of the config", obstacles.join("; "));
        return Err(ToolChangeError::Refused(why));
    }
    to_builder(name, &tool)
}

fn to_builder(name: &str, tool: &config::Tool) -> Result<ToolBuilder, ToolChangeError> {
    tool.builder(name).ok_or_else(|| ToolChangeError::Refused("there is no such builtin".into()))
}

fn parse(
    name: &str,
    request: &Value,
    hosts: &[String],
    others: impl Fn(&str) -> bool,
) -> Result<config::Tool, ToolChangeError> {
    let refused = |why: String| ToolChangeError::Refused(why);
    let tool = request.as_object().ok_or_else(|| refused("the tool must be a JSON object".into()))?;
    let mut tool = to_config_keys(tool);
    tool.remove("name");
    let file_only = file_only_problems(&tool);
    for (key, _) in &file_only {
        tool.remove(*key);
    }
    let mut messages: Vec<String> = file_only.into_iter().map(|(_, message)| message).collect();
    if let Some(at) = find_null(&Value::Object(tool.clone())) {
        messages.push(format!("`{at}` is null, which a config cannot express; omit it, or write a value"));
        return Err(refused(messages.join("; ")));
    }
    let loaded = config::load_tool(name, &tool, others);
    if let Err(problems) = &loaded {
        messages.extend(problems.iter().map(|problem| format_problem(name, problem)));
    }
    match loaded {
        Ok(mut tool) if messages.is_empty() => {
            tool.allow_hosts(hosts);
            Ok(tool)
        }
        _ => Err(refused(messages.join("; "))),
    }
}

/// Keys that are only allowed in a config file, and the reasons.
fn file_only_problems(tool: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let keys = FILE_ONLY_KEYS.iter().filter(|(key, _)| tool.contains_key(*key));
    let keys = keys.map(|(key, help)| (*key, format!("`{key}` is not accepted over the API: {help}")));
    let why = "a secret sent over the API must be a string; the server's variables and files are not read";
    let secrets = ["auth", "headers"].into_iter().filter(|key| has_secret_reference(tool.get(*key)));
    keys.chain(secrets.map(|key| (key, format!("`{key}`: {why}")))).collect()
}

/// A problem for a client of the API: without the file and the section of the key.
fn format_problem(name: &str, problem: &Problem) -> String {
    let section = format!("tools.{name}.");
    let key = problem.key.strip_prefix(&section).unwrap_or_default();
    let message = problem.message.replace(&section, "");
    let prefix =
        if key.is_empty() || message.contains(&format!("`{key}`")) { String::new() } else { format!("`{key}`: ") };
    match &problem.help {
        Some(help) => format!("{prefix}{message} ({help})"),
        None => format!("{prefix}{message}"),
    }
}

/// Whether a key refers to a variable or file of this machine.
fn has_secret_reference(value: Option<&Value>) -> bool {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members.filter(|(name, _)| *name != "token_fields").any(|(_, value)| value.is_object())
}

/// The JSON pointer of a null in a value: TOML has no null.
fn find_null(value: &Value) -> Option<String> {
    let find_below = |key: &str, inner: &Value| find_null(inner).map(|rest| format!("/{key}{rest}"));
    match value {
        Value::Null => Some(String::new()),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| find_below(&index.to_string(), item)),
        Value::Object(members) => members.iter().find_map(|(key, inner)| find_below(key, inner)),
        _ => None,
    }
}

/// Builds all stored tools that can be built beside those of the config. A tool with a missing dependency is skipped, and so
/// are its dependents: a server that starts without a tool is better than one that does not start.
pub(super) fn build_all(stored: &BTreeMap<String, Value>, config: &Config) -> Vec<ToolBuilder> {
    let unconfigured = stored.iter().filter(|(name, _)| !config.tools.contains_key(*name));
    let mut remaining: BTreeMap<&String, &Value> = unconfigured.collect();
    loop {
        let others = |base: &str| config.may_have_tool(base) || remaining.keys().any(|name| *name == base);
        let (mut built, mut skipped) = (Vec::new(), Vec::new());
        for (name, request) in &remaining {
            match build(name, request, &config.server.tool_hosts, others) {
                Ok(tool) => built.push(tool),
                Err(error) => {
                    tracing::warn!(tool = name, %error, "skipped a tool registered over the API");
                    skipped.push(*name);
                }
            }
        }
        if skipped.is_empty() {
            return built;
        }
        remaining.retain(|name, _| !skipped.contains(name));
    }
}

/// The API writes `rateLimit`, a config `rate_limit`. A null in the API means that the key is not set.
fn to_config_keys(members: &Map<String, Value>) -> Map<String, Value> {
    let set = members.iter().filter(|(_, value)| !value.is_null());
    set.map(|(key, value)| match value {
        Value::Object(inner) if !FREE_FORM_KEYS.contains(&key.as_str()) => {
            (to_snake_case(key), to_config_keys(inner).into())
        }
        other => (to_snake_case(key), other.clone()),
    })
    .collect()
}

fn to_snake_case(key: &str) -> String {
    key.chars()
        .flat_map(|c| c.is_ascii_uppercase().then_some('_').into_iter().chain([c.to_ascii_lowercase()]))
        .collect()
}

/// All stored tools, by name.
///
/// # Errors
/// When the store fails.
pub(super) async fn load_all(store: &Arc<dyn Backend>) -> Result<BTreeMap<String, Value>, StoreError> {
    let mut scan = Scan::new(Table::Tools, Scope::Partition(partition()));
    let mut stored = BTreeMap::new();
    loop {
        let page = store.scan(scan.clone(), SystemClock.now()).await?;
        for (key, row) in page.rows {
            match decode(store, &key.id, &row) {
                Some(request) => drop(stored.insert(key.id.to_string(), request)),
                None if row.schema == SEALED_SCHEMA => tracing::warn!(
                    tool = %key.id,
                    "cannot decrypt the stored definition of a tool: the key file of the store is missing or another one; create the tool again"
                ),
                None => tracing::warn!(tool = %key.id, "cannot read the stored definition of a tool"),
            }
        }
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(stored),
        }
    }
}

/// One stored tool.
///
/// # Errors
/// When the store fails.
pub(super) async fn load_one(store: &Arc<dyn Backend>, name: &str) -> Result<Option<Value>, StoreError> {
    load_all(store).await.map(|mut stored| stored.remove(name))
}

/// Stores a tool, or removes it if `request` is `None`.
///
/// # Errors
/// When the store fails.
pub(super) async fn save(store: &Arc<dyn Backend>, name: &str, request: Option<&Value>) -> Result<(), StoreError> {
    let change = match request {
        Some(request) => {
            let (text, schema) = encode(store, name, request);
            Change::Put { value: text.into_bytes().into(), schema, expires: None }
        }
        None => Change::Remove,
    };
    let write =
        Write { table: Table::Tools, id: name.into(), expect: Expect::Any, change, durability: Durability::PowerSafe };
    store.commit(Batch::new(partition()).with(write), SystemClock.now()).await.map(drop)
}

/// A definition for the store, and its schema version. That of a request may have a secret anywhere, so it is sealed as a whole.
fn encode(store: &Arc<dyn Backend>, name: &str, request: &Value) -> (String, u32) {
    match store.seal_key().filter(|_| request.get("builtin").is_none()) {
        Some(key) => (Value::from(key.seal(&sealed_for(name), &request.to_string())).to_string(), SEALED_SCHEMA),
        None => (request.to_string(), PLAIN_SCHEMA),
    }
}

/// The definition in a row; `None` if it cannot be read.
fn decode(store: &Arc<dyn Backend>, name: &str, row: &Row) -> Option<Value> {
    match row.schema {
        PLAIN_SCHEMA => serde_json::from_slice(&row.value).ok(),
        SEALED_SCHEMA => {
            let sealed: String = serde_json::from_slice(&row.value).ok()?;
            serde_json::from_str(&store.seal_key()?.unseal(&sealed_for(name), &sealed)?).ok()
        }
        _ => None,
    }
}

/// The record that a sealed definition belongs to.
fn sealed_for(name: &str) -> String {
    format!("tools/{name}")
}

fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Tools }
}
