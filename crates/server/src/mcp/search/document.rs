//! The terms of a tool, by where they stand.
//!
//! In: the tools of an index. Out: a document for each. Lines that many descriptions share, such as those about authentication, and
//! addresses of web pages say nothing about one tool and are left out.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use smol_str::SmolStr;
use toolhub_core::{Tool, ToolName};

use super::{
    intent::{self, Intent},
    words::terms,
};

/// In how many descriptions a line may be that counts.
const MAX_SAME_LINES: usize = 4;

/// Where a term stands in a tool.
pub(super) struct Field {
    /// How much its terms count.
    pub(super) weight: f32,
    /// How much a long text is discounted: 0 not at all, 1 by its length.
    pub(super) length_weight: f32,
}

pub(super) const NAME: usize = 0;
pub(super) const TITLE: usize = 1;
const TAG: usize = 2;
/// The first sentence of a description.
const SUMMARY: usize = 3;
const DESCRIPTION: usize = 4;
const ARGUMENT: usize = 5;
const ARGUMENT_DESCRIPTION: usize = 6;
const ARGUMENT_VALUE: usize = 7;
pub(super) const FIELDS: [Field; 8] = [
    Field { weight: 4.0, length_weight: 0.3 },
    Field { weight: 2.0, length_weight: 0.3 },
    Field { weight: 1.5, length_weight: 0.0 },
    Field { weight: 1.5, length_weight: 0.4 },
    Field { weight: 0.5, length_weight: 0.6 },
    Field { weight: 0.2, length_weight: 0.6 },
    Field { weight: 0.1, length_weight: 0.7 },
    Field { weight: 0.4, length_weight: 0.0 },
];

/// A tool in an index.
pub(super) struct Document {
    pub(super) name: ToolName,
    pub(super) fields: [Vec<SmolStr>; FIELDS.len()],
    pub(super) intent: Option<Intent>,
}

/// The documents of tools.
pub(super) fn documents<'a>(tools: impl IntoIterator<Item = &'a Tool>) -> Vec<Document> {
    let tools: Vec<&Tool> = tools.into_iter().collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for tool in &tools {
        let lines: HashSet<&str> = tool.definition.description.lines().map(str::trim).collect();
        lines.into_iter().for_each(|line| *counts.entry(line).or_default() += 1);
    }
    let is_own = |line: &str| counts.get(line).is_none_or(|count| *count <= MAX_SAME_LINES);
    tools.into_iter().map(|tool| document(tool, is_own)).collect()
}

fn document(tool: &Tool, is_own: impl Fn(&str) -> bool) -> Document {
    let definition = &tool.definition;
    let title = definition.annotations.title.as_deref().unwrap_or_default().trim();
    // Imported descriptions begin with the title.
    let is_counted = |line: &&str| !line.is_empty() && *line != title && is_own(line);
    let mut lines = definition.description.lines().map(str::trim).filter(is_counted);
    let first = without_addresses(lines.next().unwrap_or_default());
    let (summary, rest) = first.split_once(". ").unwrap_or((&first, ""));
    let mut fields: [Vec<SmolStr>; FIELDS.len()] = Default::default();
    let mut add = |field: usize, text: &str| fields[field].extend(terms(text));
    add(NAME, definition.name.as_str());
    add(TITLE, if title.is_empty() { summary } else { title });
    definition.metadata.tags.iter().for_each(|tag| add(TAG, tag));
    add(SUMMARY, summary);
    add(DESCRIPTION, rest);
    lines.for_each(|line| add(DESCRIPTION, &without_addresses(line)));
    let properties = definition.parameters.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        add(ARGUMENT, name);
        let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        add(ARGUMENT_DESCRIPTION, &without_addresses(description));
        let values = schema.get("enum").or_else(|| schema.get("items")?.get("enum")).and_then(Value::as_array);
        values.into_iter().flatten().filter_map(Value::as_str).for_each(|value| add(ARGUMENT_VALUE, value));
    }
    let intent = intent::of_tool(&fields[TITLE], &fields[NAME], definition.annotations.read_only);
    Document { name: definition.name.clone(), fields, intent }
}

/// A text without the addresses in it.
fn without_addresses(text: &str) -> String {
    let (mut found, mut rest) = (String::new(), text);
    while let Some(at) = ["http://", "https://"].iter().filter_map(|scheme| rest.find(scheme)).min() {
        found.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = &rest[rest.find(char::is_whitespace).unwrap_or(rest.len())..];
    }
    found + rest
}

#[cfg(test)]
mod tests {
    use super::without_addresses;

    #[test]
    fn addresses_are_left_out() {
        assert_eq!(without_addresses("see [here](https://a.example/b#c). More"), "see [here]( More");
        assert_eq!(without_addresses("http://a and https://b"), " and ");
        assert_eq!(without_addresses("no https"), "no https");
    }
}
