//! Reads one tool of a list.
//!
//! In: its JSON text as the server sent it. Out: a tool that can be registered, or the reason why not. Text for models loses hidden
//! characters; schemas are brought to draft 2020-12; what is not essential and cannot be used is left out, with a note.

use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};
use toolhub_core::{
    ToolName, draft,
    hidden_chars::strip_hidden,
    json::{self, JsonError, JsonLimits},
    schema::{self, Schema, SchemaError},
};

use super::{
    CatalogOptions, ListedTool, Quarantined,
    definition::SentDefinition,
    hints::{self, Denials, OwnerHints},
    param_headers,
};
use crate::{secret_mask::SecretMask, truncate::truncate};

/// Longest original name; servers should stay within 128.
const MAX_NAME_BYTES: usize = 1024;
/// Largest definition of one tool. Its schemas alone may have 64 KiB each.
const MAX_TOOL_BYTES: usize = 256 << 10;
const MAX_DESCRIPTION_CHARS: usize = 8_000;
const MAX_TITLE_CHARS: usize = 120;
/// Longest name in what people read, and longest part of a pattern.
const MAX_SHOWN_CHARS: usize = 80;

/// A tool whose name is known.
pub(super) struct RawTool<'a> {
    /// The server's own name.
    pub(super) name: String,
    members: Members<'a>,
    bytes: usize,
}

/// The members that make up the definition of a tool.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    title: Option<&'a RawValue>,
    #[serde(borrow)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    input_schema: Option<&'a RawValue>,
    #[serde(borrow)]
    output_schema: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

impl<'a> RawTool<'a> {
    /// Finds the name of a tool; `index` is its position in the list.
    pub(super) fn parse(text: &'a str, index: usize, secrets: &SecretMask) -> Result<Self, Quarantined> {
        let unnamed = |reason: &str| Quarantined { original_name: format!("#{}", index + 1), reason: reason.into() };
        let members: Members<'a> =
            serde_json::from_str(text).map_err(|_| unnamed("its definition is not an object, or repeats a member"))?;
        let name = members.name.and_then(|name| serde_json::from_str::<String>(name.get()).ok());
        match name {
            Some(name) if (1..=MAX_NAME_BYTES).contains(&name.len()) => {
                Self { name, members, bytes: text.len() }.check_name(secrets)
            }
            Some(name) if name.is_empty() => Err(unnamed("its name is empty")),
            Some(name) => Err(Quarantined {
                original_name: truncate(&secrets.text(&name), MAX_SHOWN_CHARS),
                reason: format!("its name has {} bytes, at most {MAX_NAME_BYTES} are allowed", name.len()),
            }),
            None => Err(unnamed("it has no name")),
        }
    }

    pub(super) fn quarantine(&self, reason: impl Into<String>) -> Quarantined {
        Quarantined { original_name: self.name.clone(), reason: reason.into() }
    }

    /// The tool in quarantine if its name, which everybody may see, contains a secret.
    fn check_name(self, secrets: &SecretMask) -> Result<Self, Quarantined> {
        match secrets.text(&self.name) {
            masked if masked != self.name => Err(Quarantined {
                original_name: masked.into_owned(),
                reason: "its name contains a secret of the server".into(),
            }),
            _ => Ok(self),
        }
    }

    /// Reads the whole tool.
    pub(super) fn read(
        &self,
        name: ToolName,
        owner: OwnerHints,
        options: &CatalogOptions,
    ) -> Result<ListedTool, Quarantined> {
        let definition = self.definition(options).map_err(|reason| self.quarantine(reason))?;
        let mut notes = Vec::new();
        let input = definition.member("inputSchema").cloned();
        if let Some(schema) = input.as_ref().filter(|_| options.param_headers) {
            param_headers::check(schema).map_err(|reason| self.quarantine(reason))?;
        }
        let parameters = parameters(input, &mut notes).map_err(|reason| self.quarantine(reason))?;
        let output = definition.member("outputSchema").and_then(|schema| output_schema(schema, &mut notes));
        let sent_hints = definition.member("annotations").unwrap_or(&Value::Null);
        let title = definition.member("title").or_else(|| sent_hints.get("title"));
        let title = clean_text(title, "title", MAX_TITLE_CHARS, &mut notes);
        let description = definition.member("description");
        let description = clean_text(description, "description", MAX_DESCRIPTION_CHARS, &mut notes);
        let (mut annotations, denials) = (hints::annotations(sent_hints, owner), Denials::read(sent_hints));
        annotations.title = title;
        Ok(ListedTool {
            original_name: self.name.clone(),
            name,
            description: description.unwrap_or_default(),
            parameters,
            output,
            annotations,
            denials,
            definition,
            notes,
        })
    }

    /// What the server sent, parsed within limits, without secrets.
    fn definition(&self, options: &CatalogOptions) -> Result<SentDefinition, String> {
        if self.bytes > MAX_TOOL_BYTES {
            return Err(format!("its definition has {} bytes, at most {MAX_TOOL_BYTES} are allowed", self.bytes));
        }
        let Members { name, title, description, input_schema, output_schema, annotations } = &self.members;
        let members = [
            ("name", name),
            ("title", title),
            ("description", description),
            ("inputSchema", input_schema),
            ("outputSchema", output_schema),
            ("annotations", annotations),
        ];
        let mut definition = Map::new();
        for (member, raw) in members {
            let Some(raw) = raw else { continue };
            let mut value: Value =
                json::parse(raw.get().as_bytes(), JsonLimits::default()).map_err(|error| match error {
                    JsonError::Invalid(_) => format!("its `{member}` is not valid JSON"),
                    limit => format!("its `{member}` is refused: {limit}"),
                })?;
            options.secrets.value(&mut value);
            definition.insert(member.to_owned(), value);
        }
        Ok(SentDefinition::new(definition))
    }
}

/// A text without hidden characters; `None` if there is none.
fn clean_text(sent: Option<&Value>, member: &str, max_chars: usize, notes: &mut Vec<String>) -> Option<String> {
    let Some(text) = sent?.as_str() else {
        notes.push(format!("its `{member}` is not a text and is left out"));
        return None;
    };
    let clean = strip_hidden(text);
    if clean.len() < text.len() {
        notes.push(format!("hidden characters were removed from its `{member}`"));
    }
    let short = truncate(&clean, max_chars);
    if short.len() < clean.trim().len() {
        notes.push(format!("its `{member}` is cut after {max_chars} characters"));
    }
    Some(short).filter(|text| !text.is_empty())
}

/// The schema of the arguments. Arguments are always objects in MCP, so that a schema need not say so.
fn parameters(sent: Option<Value>, notes: &mut Vec<String>) -> Result<Schema, String> {
    let sent = sent.unwrap_or_else(|| json!({}));
    let Value::Object(mut members) = draft::upgrade(&sent, &strip_hidden) else {
        return Err("its `inputSchema` is not an object".into());
    };
    let allows_object = match members.get("type") {
        None => true,
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(_) => false,
    };
    if allows_object {
        members.insert("type".into(), "object".into());
    }
    // The tool has a description of its own.
    members.remove("description");
    compile(&members.into(), Schema::compile, notes).map_err(|error| format!("its `inputSchema` is refused: {error}"))
}

/// The output schema; a tool is still useful without one.
fn output_schema(sent: &Value, notes: &mut Vec<String>) -> Option<Schema> {
    let upgraded = draft::upgrade(sent, &strip_hidden);
    let compiled = compile(&upgraded, Schema::compile_any, notes);
    compiled.map_err(|error| notes.push(format!("its `outputSchema` is left out: {error}"))).ok()
}

/// Compiles a schema, without the patterns that cannot be checked.
fn compile(
    schema: &Value,
    compile: fn(Value) -> Result<Schema, SchemaError>,
    notes: &mut Vec<String>,
) -> Result<Schema, SchemaError> {
    match compile(schema.clone()) {
        Err(SchemaError::Pattern(_)) => {
            let (loosened, removed) = schema::without_unsupported_patterns(schema);
            let compiled = compile(loosened)?;
            notes.extend(removed.iter().map(|pattern| {
                format!("the pattern `{}` is not checked", truncate(&strip_hidden(pattern), MAX_SHOWN_CHARS))
            }));
            Ok(compiled)
        }
        other => other,
    }
}
