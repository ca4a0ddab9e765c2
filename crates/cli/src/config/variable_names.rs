//! Chooses the variables that stand for secrets.
//!
//! In: the secrets of a document, one after the other. Out: the name of a variable for each. Two different secrets never share one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The variables that exist before an import.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExistingVariables {
    /// Those that the config refers to. Their values are not known, unless they are set.
    pub(crate) referenced: BTreeSet<String>,
    /// The values of those that are set.
    pub(crate) values: BTreeMap<String, String>,
}

/// The variables that a config refers to, ours or that of another program.
pub(crate) fn referenced_variables(document: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect_references(document, &mut names);
    names
}

pub(super) struct VariableNames<'a> {
    existing: &'a ExistingVariables,
    /// The variables that texts of the document refer to. Their values are not known.
    references: BTreeSet<String>,
    /// The secret of each variable that was chosen.
    secrets: BTreeMap<String, String>,
}

impl<'a> VariableNames<'a> {
    pub(super) fn new(document: &Value, existing: &'a ExistingVariables) -> Self {
        Self { existing, references: referenced_variables(document), secrets: BTreeMap::new() }
    }

    /// The variable for a secret: the preferred one, or one that begins with `own` if that has another value.
    pub(super) fn choose(&mut self, preferred: &str, own: &str, secret: &str) -> String {
        let numbered = (2_usize..).map(|number| format!("{own}_{number}"));
        let names = [preferred.to_owned(), own.to_owned()].into_iter().chain(numbered);
        let free = names.into_iter().find(|name| !self.is_taken(name, secret));
        let name = free.expect("there is always a higher number");
        self.secrets.insert(name.clone(), secret.to_owned());
        name
    }

    fn is_taken(&self, name: &str, secret: &str) -> bool {
        match self.existing.values.get(name).or(self.secrets.get(name)) {
            Some(other) => other != secret,
            None => self.references.contains(name) || self.existing.referenced.contains(name),
        }
    }
}

/// Collects the names in `${NAME}`, `${NAME:-default}` and `${env:NAME}`, and those in keys that have the name of a variable.
fn collect_references(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            for part in text.split("${").skip(1) {
                let inside = part.split('}').next().unwrap_or_default();
                let name = inside.strip_prefix("env:").unwrap_or(inside).split(":-").next().unwrap_or_default();
                names.insert(name.to_owned());
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, names)),
        Value::Object(members) => {
            for (key, member) in members {
                let named: Vec<&Value> = match (key.as_str(), member) {
                    ("env" | "bearer_token_env_var", member) => vec![member],
                    ("pass_env" | "env_vars", Value::Array(items)) => items.iter().collect(),
                    ("env_http_headers", Value::Object(headers)) => headers.values().collect(),
                    _ => Vec::new(),
                };
                names.extend(named.into_iter().filter_map(Value::as_str).map(String::from));
                collect_references(member, names);
            }
        }
        _ => {}
    }
}
