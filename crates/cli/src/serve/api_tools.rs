//! Tools that were made over the API, kept in the store so that they are there after a restart.
//!
//! In: what was asked for, as JSON. Out: tools in the making, held to the rules of the config and to some of their own: what is the
//! business of this machine (programs, files, variables, hosts that are not of the open internet) is said in its config alone.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};
use toolhub::{
    ToolBuilder,
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, Scan, Scope, StoreError, Table, Write,
    },
    clock::{Clock, SystemClock},
    ids::Tenant,
    server::ToolChangeError,
};

use crate::config::{self, Problem};

/// The layout of a row.
const ROW_SCHEMA: u32 = 1;
/// Members whose own members are the owner's words, and stay as they are.
const FREE_FORM_KEYS: [&str; 7] = ["body", "form", "headers", "metadata", "parameters", "query", "tokenFields"];
/// Keys that only a config file may have, and what to do instead.
const FILE_ONLY_KEYS: [(&str, &str); 7] = [
    ("command", PROGRAM_HELP),
    ("args", PROGRAM_HELP),
    ("env", PROGRAM_HELP),
    ("pass_env", PROGRAM_HELP),
    ("cwd", PROGRAM_HELP),
    ("allow_hosts", "say it in the config: `tool_hosts` in [server] holds for all tools that are made over the API"),
    ("ca_file", "write the tool into the config file"),
];
const PROGRAM_HELP: &str = "a program never comes over the API; write the tool into the config file";

/// Makes a tool of what was asked for. It may wait for tools that `others` knows.
///
/// `hosts` may be reached though they are not of the open internet.
///
/// # Errors
/// What is wrong with it, in words for whoever asked.
pub(super) fn build(
    name: &str,
    asked: &Value,
    hosts: &[String],
    others: impl Fn(&str) -> bool,
) -> Result<ToolBuilder, ToolChangeError> {
    let refused = |why: String| ToolChangeError::Refused(why);
    let said = asked.as_object().ok_or_else(|| refused("a tool is an object".into()))?;
    let mut said = to_config_keys(said);
    said.remove("name");
    let ours = file_only_problems(&said);
    for (key, _) in &ours {
        said.remove(*key);
    }
    let mut wrong: Vec<String> = ours.into_iter().map(|(_, why)| why).collect();
    if let Some(at) = find_null(&Value::Object(said.clone())) {
        wrong.push(format!("`{at}` is null, which no tool can say; leave it out, or write a value"));
        return Err(refused(wrong.join("; ")));
    }
    let made = config::load_tool(name, &said, others);
    if let Err(problems) = &made {
        wrong.extend(problems.iter().map(|problem| format_problem(name, problem)));
    }
    match made {
        Ok(mut tool) if wrong.is_empty() => {
            tool.allow_hosts(hosts);
            tool.builder(name).ok_or_else(|| refused("there is no such builtin".into()))
        }
        _ => Err(refused(wrong.join("; "))),
    }
}

/// The keys that only a config file may have so, and why.
fn file_only_problems(said: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let keys = FILE_ONLY_KEYS.iter().filter(|(key, _)| said.contains_key(*key));
    let keys = keys.map(|(key, help)| (*key, format!("`{key}` is not taken over the API: {help}")));
    let why = "a secret that comes over the API is a text; variables and files of the server are not read for it";
    let secrets = ["auth", "headers"].into_iter().filter(|key| has_secret_reference(said.get(*key)));
    keys.chain(secrets.map(|key| (key, format!("`{key}`: {why}")))).collect()
}

/// A problem with its key, as whoever asked for the tool knows it: not in a file, and with no section around it.
fn format_problem(name: &str, problem: &Problem) -> String {
    let section = format!("tools.{name}.");
    let key = problem.key.strip_prefix(&section).unwrap_or_default();
    let message = problem.message.replace(&section, "");
    let place =
        if key.is_empty() || message.contains(&format!("`{key}`")) { String::new() } else { format!("`{key}`: ") };
    match &problem.help {
        Some(help) => format!("{place}{message} ({help})"),
        None => format!("{place}{message}"),
    }
}

/// Whether a member refers to something that this machine has.
fn has_secret_reference(said: Option<&Value>) -> bool {
    let members = said.and_then(Value::as_object).into_iter().flatten();
    members.filter(|(name, _)| *name != "token_fields").any(|(_, value)| value.is_object())
}

/// Where a null stands in a value, as a JSON pointer: a config has no word for it.
fn find_null(value: &Value) -> Option<String> {
    let below = |key: &str, inner: &Value| find_null(inner).map(|rest| format!("/{key}{rest}"));
    match value {
        Value::Null => Some(String::new()),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| below(&index.to_string(), item)),
        Value::Object(members) => members.iter().find_map(|(key, inner)| below(key, inner)),
        _ => None,
    }
}

/// All that can be made, when `configured` are there besides. One that waits for a tool that is gone is left out, and so are
/// those that wait for that one: a server that starts without a tool is better than none.
pub(super) fn build_all(
    kept: &BTreeMap<String, Value>,
    hosts: &[String],
    configured: impl Fn(&str) -> bool,
) -> Vec<ToolBuilder> {
    let mut left: BTreeMap<&String, &Value> = kept.iter().filter(|(name, _)| !configured(name)).collect();
    loop {
        let others = |base: &str| configured(base) || left.keys().any(|name| *name == base);
        let (mut made, mut gone) = (Vec::new(), Vec::new());
        for (name, asked) in &left {
            match build(name, asked, hosts, others) {
                Ok(tool) => made.push(tool),
                Err(error) => {
                    tracing::warn!(tool = name, %error, "a tool that was made over the API is left out");
                    gone.push(*name);
                }
            }
        }
        if gone.is_empty() {
            return made;
        }
        left.retain(|name, _| !gone.contains(name));
    }
}

/// The API writes `rateLimit`, a config `rate_limit`; and what is null there is not said here.
fn to_config_keys(members: &Map<String, Value>) -> Map<String, Value> {
    let said = members.iter().filter(|(_, value)| !value.is_null());
    said.map(|(key, value)| match value {
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

/// All that are kept, by name.
///
/// # Errors
/// When the store does not answer.
pub(super) async fn load_all(store: &Arc<dyn Backend>) -> Result<BTreeMap<String, Value>, StoreError> {
    let mut scan = Scan::new(Table::Tools, Scope::Partition(partition()));
    let mut kept = BTreeMap::new();
    loop {
        let page = store.scan(scan.clone(), SystemClock.now()).await?;
        for (key, row) in page.rows {
            match serde_json::from_slice(&row.value) {
                Ok(asked) if row.schema == ROW_SCHEMA => drop(kept.insert(key.id.to_string(), asked)),
                _ => tracing::warn!(tool = %key.id, "a tool that was made over the API cannot be read any more"),
            }
        }
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(kept),
        }
    }
}

/// One that is kept.
///
/// # Errors
/// When the store does not answer.
pub(super) async fn load_one(store: &Arc<dyn Backend>, name: &str) -> Result<Option<Value>, StoreError> {
    load_all(store).await.map(|mut kept| kept.remove(name))
}

/// Keeps a tool, or forgets it where nothing is asked for any more.
///
/// # Errors
/// When the store does not answer.
pub(super) async fn save(store: &Arc<dyn Backend>, name: &str, asked: Option<&Value>) -> Result<(), StoreError> {
    let change = match asked {
        Some(asked) => Change::Put { value: asked.to_string().into_bytes().into(), schema: ROW_SCHEMA, expires: None },
        None => Change::Remove,
    };
    let write =
        Write { table: Table::Tools, id: name.into(), expect: Expect::Any, change, durability: Durability::PowerSafe };
    store.commit(Batch::new(partition()).with(write), SystemClock.now()).await.map(drop)
}

fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Tools }
}
