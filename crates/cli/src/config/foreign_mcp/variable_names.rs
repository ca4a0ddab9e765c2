//! Chooses the variables that stand for secrets.
//!
//! In: the secrets of a document, one after the other. Out: the name of a variable for each. Two different secrets never share one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub(super) struct VariableNames {
    /// The variables that texts of the document refer to. Their values are not known.
    references: BTreeSet<String>,
    /// The secret of each variable that was chosen.
    secrets: BTreeMap<String, String>,
}

impl VariableNames {
    pub(super) fn new(document: &Value) -> Self {
        let mut references = BTreeSet::new();
        collect_references(document, &mut references);
        Self { references, secrets: BTreeMap::new() }
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
        self.references.contains(name) || self.secrets.get(name).is_some_and(|other| other != secret)
    }
}

/// Collects the names in `${NAME}`, `${NAME:-default}` and `${env:NAME}`.
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
        Value::Object(members) => members.values().for_each(|member| collect_references(member, names)),
        _ => {}
    }
}
