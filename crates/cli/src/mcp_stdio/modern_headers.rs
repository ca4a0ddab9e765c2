//! The headers of a message of the modern era: over HTTP, parts of it are repeated in headers.
//!
//! In: a message, and the lists of tools that passed by. Out: `Mcp-Method`, `Mcp-Name`, and a header `Mcp-Param-*` for each argument
//! whose property has `x-mcp-header`. The server refuses a message whose headers do not match.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::Value;
use toolhub_net::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};

use super::message::Message;

const KEYWORD: &str = "x-mcp-header";

/// Where an argument is, and the name of its header.
type ParamHeader = (Vec<String>, String);

/// The annotated arguments of tools, by tool.
#[derive(Default)]
pub(super) struct ParamHeaders(Mutex<HashMap<String, Vec<ParamHeader>>>);

#[derive(Deserialize)]
struct ToolListAnswer {
    result: ToolListResult,
}

#[derive(Deserialize)]
struct ToolListResult {
    tools: Vec<ListedTool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool {
    name: String,
    #[serde(default)]
    input_schema: Value,
}

impl ParamHeaders {
    /// Learns from the answer to `tools/list`.
    pub(super) fn learn(&self, answer: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Most hubs have no such tool, and lists are long.
        if known.is_empty() && !answer.contains(KEYWORD) {
            return;
        }
        let Ok(answer) = serde_json::from_str::<ToolListAnswer>(answer) else { return };
        for tool in answer.result.tools {
            let mut headers = Vec::new();
            collect(&tool.input_schema, &mut Vec::new(), &mut headers);
            match headers.is_empty() {
                true => known.remove(&tool.name),
                false => known.insert(tool.name, headers),
            };
        }
    }

    /// Adds the headers of a message.
    pub(super) fn add(&self, message: &Message, headers: &mut HeaderMap) {
        add_header(headers, "mcp-method", message.method());
        let Some(name) = &message.name else { return };
        add_header(headers, "mcp-name", name);
        if message.method() != "tools/call" {
            return;
        }
        let annotated = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        let Some(annotated) = annotated else { return };
        let arguments = message.arguments();
        for (path, header) in annotated {
            let value = match path.iter().try_fold(&arguments, |value, key| value.get(key)) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Bool(is)) => is.to_string(),
                Some(Value::Number(number)) => number.to_string(),
                _ => continue,
            };
            add_header(headers, &format!("mcp-param-{header}"), &value);
        }
    }
}

/// Collects the annotated properties of a schema.
fn collect(schema: &Value, path: &mut Vec<String>, headers: &mut Vec<ParamHeader>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        if let Some(header) = property[KEYWORD].as_str().filter(|header| !header.is_empty()) {
            headers.push((path.clone(), header.to_owned()));
        }
        collect(property, path, headers);
        path.pop();
    }
}

/// Adds a header whose value may be any text.
fn add_header(headers: &mut HeaderMap, name: &str, value: &str) {
    let is_plain = value.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && value.trim_matches([' ', '\t']) == value
        && !(value.starts_with("=?base64?") && value.ends_with("?="));
    let value = if is_plain { value.to_owned() } else { format!("=?base64?{}?=", BASE64_STANDARD.encode(value)) };
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(known: &ParamHeaders, arguments: &str, expected: &[(&str, &str)]) {
        let call = format!(r#"{{"id":1,"method":"tools/call","params":{{"name":"t ü","arguments":{arguments}}}}}"#);
        let mut headers = HeaderMap::new();
        known.add(&Message::parse(call.into()).unwrap(), &mut headers);
        let mut found: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        found.sort_unstable();
        assert_eq!(found[2..], *expected, "{arguments}");
        assert_eq!(found[..2], [("mcp-method", "tools/call"), ("mcp-name", "=?base64?dCDDvA==?=")]);
    }

    #[test]
    fn annotated_arguments_of_listed_tools_become_headers() {
        let known = ParamHeaders::default();
        check(&known, r#"{"a":"x"}"#, &[]);
        let list = |schema: &str| format!(r#"{{"result":{{"tools":[{{"name":"t ü","inputSchema":{schema}}}]}}}}"#);
        known
            .learn(&list(r#"{"properties":{"a":{"x-mcp-header":"A"},"o":{"properties":{"n":{"x-mcp-header":"N"}}}}}"#));
        check(&known, r#"{"a":"x","o":{"n":7},"b":1}"#, &[("mcp-param-a", "x"), ("mcp-param-n", "7")]);
        check(&known, r#"{"a":null,"o":1}"#, &[]);
        check(&known, r#"{"a":" x"}"#, &[("mcp-param-a", "=?base64?IHg=?=")]);
        check(&known, r#"{"a":true}"#, &[("mcp-param-a", "true")]);
        known.learn(&list("{}"));
        check(&known, r#"{"a":"x"}"#, &[]);
    }
}
