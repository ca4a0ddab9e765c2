//! The keys of a table that are read one after the other.
//!
//! In: a table. Out: its values by name; and a note for each that nothing asked for, so that nothing disappears silently.

use std::collections::BTreeMap;

use super::{
    super::tree::{Node, Value},
    findings::Findings,
    units,
};

/// The keys that were not read yet.
#[derive(Default)]
pub(super) struct Keys(pub(super) BTreeMap<String, Node>);

impl Keys {
    pub(super) fn take(&mut self, key: &str) -> Option<Node> {
        self.0.remove(key)
    }

    /// The first of these keys that exists.
    pub(super) fn take_any(&mut self, keys: &[&str]) -> Option<Node> {
        keys.iter().find_map(|key| self.0.remove(*key))
    }

    /// A table. Anything else under its name is left out.
    pub(super) fn take_table(&mut self, key: &str, findings: &mut Findings) -> Option<Self> {
        let node = self.0.remove(key)?;
        match node.value {
            Value::Table(table) => Some(Self(table)),
            other => {
                let text = format!("`{key}` is {}, not a table; it was left out", other.type_name());
                findings.note(&node.key_origin, text);
                None
            }
        }
    }

    /// Notes what was not read. A duration without a unit is a problem, because nothing says what it means.
    pub(super) fn finish(self, section: &str, findings: &mut Findings) {
        for (key, node) in self.0 {
            let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
            if !units::check_unknown(&path, &key, &node, findings) {
                findings.note(&node.key_origin, format!("`{path}` has no counterpart here and was left out"));
            }
        }
    }
}

/// The text of a node.
pub(super) fn text(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// A text at the place of another value.
pub(super) fn text_node(text: impl Into<String>, place: &Node) -> Node {
    with_value(Value::Text(text.into()), place)
}

/// A value at the place of another one.
pub(super) fn with_value(value: Value, place: &Node) -> Node {
    Node { value, variables: Vec::new(), unresolved: false, ..place.clone() }
}

/// A table at the place of a value.
pub(super) fn table_node(keys: impl IntoIterator<Item = (&'static str, Node)>, place: &Node) -> Node {
    let keys = keys.into_iter().map(|(key, node)| (key.to_owned(), node));
    with_value(Value::Table(keys.collect()), place)
}
