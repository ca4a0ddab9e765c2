//! The request of a REST tool.
//!
//! In: the keys of its file. Out: the keys of the request in its section. Whether they fit together is checked with the section.

use toolhub::rest::is_set_by_client;

use super::{
    super::tree::{Node, Value},
    keys::{Keys, table_node, text, text_node, with_value},
    secrets,
    tool_section::ToolReader,
};

/// Reads the request. `false` if it has no address.
pub(super) fn read(reader: &mut ToolReader<'_, '_>) -> bool {
    let (url, base) = (reader.keys.take("api_url"), reader.settings.base_url.take());
    if url.is_none() && base.is_none() {
        return false;
    }
    read_address(reader, url, base);
    read_method(reader);
    read_headers(reader);
    read_auth(reader);
    read_form(reader);
    true
}

fn read_address(reader: &mut ToolReader<'_, '_>, url: Option<Node>, base: Option<Node>) {
    let variable = format!("{}_SECRET_URL", reader.name);
    let address = |node: Node, key: &str, reader: &mut ToolReader<'_, '_>| {
        let node = with_defaults(node, reader);
        let node = move_query_key(node, key, reader);
        reader.secrets.address(node, key, &variable, reader.findings)
    };
    match (url, base) {
        (Some(path), Some(base)) if text(&path).is_some_and(|path| path.starts_with('/')) => {
            let base = address(base, "baseUrl", reader);
            reader.set("base_url", base);
            reader.set("path", path);
        }
        (Some(url), base) => {
            if let Some(base) = base {
                reader.findings.note(&base.key_origin, "`baseUrl` was left out, because `api_url` is a whole address");
            }
            let url = address(url, "api_url", reader);
            reader.set("url", url);
        }
        (None, Some(base)) => {
            let url = address(base, "baseUrl", reader);
            reader.set("url", url);
        }
        (None, None) => {}
    }
}

/// A key in the query becomes `auth`, unless there is another one.
fn move_query_key(node: Node, key: &str, reader: &mut ToolReader<'_, '_>) -> Node {
    let has_key = reader.keys.0.contains_key("api_key") || reader.settings.api_key.is_some();
    let Some((rest, name, value)) = text(&node).filter(|_| !has_key).and_then(secrets::split_query) else {
        return node;
    };
    reader.findings.note(&node.key_origin, format!("the parameter `{name}` of `{key}` became `auth`"));
    let variable = format!("{}_{name}", reader.name);
    let value = reader.secrets.key(text_node(value, &node), &name, &variable, reader.findings);
    let (kind, place) = (text_node("api_key", &node), text_node("query", &node));
    let auth = [("type", kind), ("in", place), ("name", text_node(name, &node)), ("value", value)];
    reader.set("auth", table_node(auth, &node));
    text_node(rest, &node)
}

/// `${NAME:default}` as older programs wrote it.
pub(super) fn with_defaults(node: Node, reader: &mut ToolReader<'_, '_>) -> Node {
    let Some(written) = text(&node) else { return node };
    let (mut changed, mut rest) = (String::new(), written);
    while let Some((before, (inside, after))) =
        rest.split_once("${").and_then(|(before, after)| Some((before, after.split_once('}')?)))
    {
        changed += before;
        changed += &match inside.split_once(':') {
            Some((name, default)) if !default.starts_with('-') => format!("${{{name}:-{default}}}"),
            _ => format!("${{{inside}}}"),
        };
        rest = after;
    }
    changed += rest;
    if changed == written {
        return node;
    }
    reader.findings.note(&node.key_origin, "a variable with a default is written ${NAME:-default} here");
    text_node(changed, &node)
}

fn read_method(reader: &mut ToolReader<'_, '_>) {
    let method = reader.keys.take("method").or_else(|| reader.settings.method.take());
    let Some(method) = method else {
        let text = "the file has no `method`: requests are sent with GET";
        let place = reader.place.origin.clone();
        return reader.findings.note(&place, text);
    };
    let upper = text(&method).map(str::to_ascii_uppercase);
    let method = match upper {
        Some(upper) if text(&method) != Some(upper.as_str()) => text_node(upper, &method),
        _ => method,
    };
    reader.set("method", method);
}

/// The headers of a request, also of one to an MCP server.
pub(super) fn read_headers(reader: &mut ToolReader<'_, '_>) {
    let own = reader.keys.take_table("headers", reader.findings);
    let tables = own.into_iter().chain(std::mem::take(&mut reader.settings.headers)).collect::<Vec<_>>();
    let mut headers = Keys::default();
    for (name, node) in tables.into_iter().flat_map(|table| table.0) {
        // Those of the newer [config] override the others.
        headers.0.insert(name, node);
    }
    let mut written = std::collections::BTreeMap::new();
    let mut place = None;
    for (name, node) in headers.0 {
        let Some(node) = read_header(&name, node, reader) else { continue };
        place.get_or_insert_with(|| node.clone());
        written.insert(name, node);
    }
    if let Some(place) = place {
        reader.set("headers", with_value(Value::Table(written), &place));
    }
}

/// The value of a header. `None` if it is set in another way.
fn read_header(name: &str, node: Node, reader: &mut ToolReader<'_, '_>) -> Option<Node> {
    if is_set_by_client(name) {
        reader
            .findings
            .note(&node.key_origin, format!("the header `{name}` is set by the HTTP client and was left out"));
        return None;
    }
    let value = match &node.value {
        Value::Text(_) => None,
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Bool(boolean) => Some(boolean.to_string()),
        _ => {
            let text = format!("the header `{name}` is {}, not a text; it was left out", node.value.type_name());
            reader.findings.note(&node.key_origin, text);
            return None;
        }
    };
    let node = match value {
        Some(value) => {
            reader.findings.note(&node.key_origin, format!("the value of the header `{name}` became a text"));
            text_node(value, &node)
        }
        None => with_defaults(node, reader),
    };
    let value = text(&node).unwrap_or_default().to_owned();
    if name.eq_ignore_ascii_case("content-type") && value.starts_with("application/json") {
        reader
            .findings
            .note(&node.key_origin, "a JSON body has its `Content-Type` without this header, which was left out");
        return None;
    }
    let token =
        value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token);
    if let (true, Some(token)) = (name.eq_ignore_ascii_case("authorization"), token) {
        let token = text_node(token.trim(), &node);
        let variable = format!("{}_TOKEN", reader.name);
        let token = reader.secrets.key(token, "Authorization", &variable, reader.findings);
        let auth = table_node([("type", text_node("bearer", &node)), ("token", token)], &node);
        reader.set("auth", auth);
        return None;
    }
    let variable = format!("{}_{name}", reader.name);
    Some(reader.secrets.setting(node, name, &variable, reader.findings))
}

/// `auth_method` with `api_key`.
pub(super) fn read_auth(reader: &mut ToolReader<'_, '_>) {
    let (method, key) = (reader.keys.take("auth_method"), reader.keys.take("api_key"));
    let key = key.or_else(|| reader.settings.api_key.take());
    let name = method.as_ref().and_then(text).unwrap_or("api_key").to_ascii_lowercase();
    let place = method.as_ref().or(key.as_ref()).map(|node| node.key_origin.clone());
    let Some(place) = place else { return };
    if name == "none" {
        if let Some(key) = key {
            reader.findings.note(&key.key_origin, "`api_key` was left out, because `auth_method` is \"none\"");
        }
        return;
    }
    if !matches!(name.as_str(), "api_key" | "bearer" | "api_key_header") {
        let text = format!(
            "`auth_method = \"{}\"` cannot be carried over; write `auth` by hand",
            toolhub::config::unit::ellipsize(&name)
        );
        return reader.findings.note(&place, text);
    }
    let Some(key) = key else {
        let text = "there is no `api_key`: requests are sent without one";
        return reader.findings.note(&place, text);
    };
    if reader.section.contains_key("auth") {
        let text = "`api_key` was left out, because the header `Authorization` has a token";
        return reader.findings.note(&key.key_origin, text);
    }
    let key = with_defaults(key, reader);
    let variable = format!("{}_API_KEY", reader.name);
    let secret = reader.secrets.key(key.clone(), "api_key", &variable, reader.findings);
    let (auth, sent) = if name == "api_key_header" {
        let keys = [("type", text_node("api_key", &key)), ("name", text_node("X-API-Key", &key)), ("value", secret)];
        (table_node(keys, &key), "the header `X-API-Key`")
    } else {
        (table_node([("type", text_node("bearer", &key)), ("token", secret)], &key), "`Authorization: Bearer`")
    };
    reader.findings.note(&place, format!("`auth_method = \"{name}\"` sends the key as {sent}"));
    reader.set("auth", auth);
}

/// A form instead of a JSON body, if the headers say so.
fn read_form(reader: &mut ToolReader<'_, '_>) {
    let Some(Node { value: Value::Table(headers), .. }) = reader.section.get_mut("headers") else { return };
    let is_form = |(name, node): (&String, &Node)| {
        let is_type = name.eq_ignore_ascii_case("content-type");
        (is_type && text(node).is_some_and(|text| text.starts_with("application/x-www-form-urlencoded")))
            .then(|| name.clone())
    };
    let Some(header) = headers.iter().find_map(is_form).and_then(|name| headers.remove(&name)) else { return };
    let properties = match reader.section.get("parameters").map(|node| &node.value) {
        Some(Value::Table(schema)) => match schema.get("properties").map(|node| &node.value) {
            Some(Value::Table(properties)) => properties.keys().cloned().collect(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    let is_argument = |name: &&String| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let fields: Vec<(String, Node)> = properties
        .iter()
        .filter(is_argument)
        .map(|name| (name.clone(), text_node(format!("{{{name}}}"), &header)))
        .collect();
    if fields.is_empty() {
        return reader
            .findings
            .note(&header.key_origin, "the tool has no arguments to send as a form; the header was left out");
    }
    reader.findings.note(&header.key_origin, "the arguments are sent as a form, with `form` instead of this header");
    reader.set("form", with_value(Value::Table(fields.into_iter().collect()), &header));
}
