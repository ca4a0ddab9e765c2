//! Secrets that stand in the files of an old registry.
//!
//! In: texts of addresses, headers, keys and descriptions. Out: what takes their place. For a file of ours, a secret becomes a reference
//! to a variable; otherwise it is used, with a note. In texts that a model or a client may read it is left out in both cases.

use std::collections::BTreeMap;

use toolhub::redact;

use super::{
    super::{
        secret_text::is_secret,
        tree::{Node, Value},
        variable_names::VariableNames,
    },
    findings::Findings,
    keys::{table_node, text, text_node, with_value},
};

pub(super) struct Secrets<'a> {
    /// Names for variables; `None` if secrets are used as they are.
    names: Option<VariableNames<'a>>,
    /// The variables that stand for secrets.
    pub(super) variables: Vec<String>,
}

impl<'a> Secrets<'a> {
    pub(super) fn new(names: Option<VariableNames<'a>>) -> Self {
        Self { names, variables: Vec::new() }
    }

    /// A value that is a secret by its place, such as an API key.
    pub(super) fn key(&mut self, node: Node, key: &str, variable: &str, findings: &mut Findings) -> Node {
        let Some(written) = text(&node) else { return node };
        if let Some(name) =
            written.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).filter(|name| is_variable(name))
        {
            return table_node([("env", text_node(name, &node))], &node);
        }
        self.setting(node, key, variable, findings)
    }

    /// A value that is a secret by its name or by its looks.
    pub(super) fn setting(&mut self, node: Node, key: &str, variable: &str, findings: &mut Findings) -> Node {
        match text(&node) {
            Some(written) if is_secret(key, written) => {
                match self.variable_for(key, variable, written, &node, findings) {
                    Some(variable) => table_node([("env", text_node(variable, &node))], &node),
                    None => node,
                }
            }
            _ => node,
        }
    }

    /// An address, whose query or path may hold a secret.
    pub(super) fn address(&mut self, node: Node, key: &str, variable: &str, findings: &mut Findings) -> Node {
        let Some(written) = text(&node).filter(|written| is_secret("", written)) else { return node };
        let written = written.to_owned();
        let query = written.find('?').filter(|at| !is_secret("", &written[..*at]));
        let path = written.find("://").and_then(|at| written[at + 3..].find('/').map(|path| at + 3 + path));
        let Some(start) = query.or(path).filter(|at| !is_secret("", &written[..*at])) else {
            let help = "write the user name and the password with `auth_method` and `[headers]`, as a variable";
            findings.report_unquoted(&node.origin, format!("`{key}` contains a secret before its path"), help);
            return node;
        };
        if self.names.is_none() {
            let help = "write ${NAME} in its place, and set that variable; `toolhub import registry` does the former";
            let message = format!("`{key}` contains a secret, which would be shown with the definition of the tool");
            findings.report_unquoted(&node.origin, message, help);
            return node;
        }
        let (public, secret) = written.split_at(start + 1);
        match self.variable_for(key, variable, secret, &node, findings) {
            Some(variable) => text_node(format!("{public}${{{variable}}}"), &node),
            None => node,
        }
    }

    /// The variable that stands for a secret; `None` if the secret itself is used.
    fn variable_for(
        &mut self,
        key: &str,
        preferred: &str,
        secret: &str,
        place: &Node,
        findings: &mut Findings,
    ) -> Option<String> {
        let preferred = variable_name(preferred);
        let Some(names) = &mut self.names else {
            let text = format!("`{key}` looks like a secret; write `${{NAME}}` instead, and set that variable");
            findings.note(&place.key_origin, text);
            return None;
        };
        let variable = names.choose(&preferred, &preferred, secret);
        let text = format!("`{key}` is a secret in plain text: move it to the variable {variable}, and delete it here");
        findings.note(&place.key_origin, text);
        if !self.variables.contains(&variable) {
            self.variables.push(variable.clone());
        }
        Some(variable)
    }
}

/// The single secret parameter in the query of an address: the address without it, its name and its value.
pub(super) fn split_query(address: &str) -> Option<(String, String, String)> {
    let (start, query) = address.split_once('?')?;
    let is_secret_pair = |pair: &&str| pair.split_once('=').is_some_and(|(name, value)| is_secret(name, value));
    let (found, others): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_secret_pair);
    let [pair] = found[..] else { return None };
    let (name, value) = pair.split_once('=')?;
    let rest = if others.is_empty() { start.to_owned() } else { format!("{start}?{}", others.join("&")) };
    (!is_secret("", &rest)).then(|| (rest, name.to_owned(), value.to_owned()))
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A name for a variable.
fn variable_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// Whether a text that clients may read is a secret. Fewer names count than for settings: an author is none.
fn is_shown_secret(key: &str, text: &str) -> bool {
    is_secret("", text) || redact::is_secret_name(key) && is_secret(key, text)
}

/// A value that is shown to models or clients, without the secrets in it. References to variables stay as they are written.
pub(super) fn without_secrets(node: &Node, key: &str, findings: &mut Findings) -> Option<Node> {
    let value = match &node.value {
        Value::Text(text) if is_shown_secret(key, text) => {
            findings.note(&node.key_origin, "this looks like a secret, which clients could read; it was left out");
            return None;
        }
        Value::Text(text) => Value::Text(text.replace("${", "$${")),
        Value::List(list) => Value::List(list.iter().filter_map(|item| without_secrets(item, key, findings)).collect()),
        Value::Table(table) => {
            let entries = table.iter().filter_map(|(name, node)| {
                // The default of a property has the name of the property; other keywords have none.
                let inner = match name.as_str() {
                    "default" | "example" | "examples" | "const" | "enum" | "value" => key,
                    "description" | "title" | "type" | "format" | "pattern" | "required" | "$ref" => "",
                    name => name,
                };
                Some((name.clone(), without_secrets(node, inner, findings)?))
            });
            Value::Table(entries.collect::<BTreeMap<_, _>>())
        }
        other => other.clone(),
    };
    Some(with_value(value, node))
}
