//! What a caller gives a tool: parameters and body of an operation, as the arguments of one object.
//!
//! In: the parameters of an operation in order of weight, and its body. Out: one schema, and for each argument where it goes. Names
//! never collide. Where the schema is too large for a tool, the same is made with less in it, until it fits.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use toolhub_core::schema::Schema;

use super::{
    body::{self, Format, SelectedBody},
    document::{Document, is_true, member_text},
    naming::ArgumentNames,
    parameter::{self, ParsedParameter},
    schema::{Converter, DETAIL_LEVELS, Detail, Patterns},
};
use crate::rest::{FormField, Parameter, ParameterLocation};

/// The arguments of a tool.
pub(super) struct ToolArguments {
    pub(super) schema: Value,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<RequestBody>,
    /// What was left out, in words.
    pub(super) omissions: Vec<String>,
}

/// The body of the requests of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestBody {
    /// What is sent as its `Content-Type`.
    pub media_type: String,
    /// How it is written.
    pub format: Format,
    /// The argument that is the body; or, where it has members, a name that no argument has.
    pub argument: String,
    /// The members of the body that are arguments of their own: the argument, and its name in the body. Empty where one argument
    /// is the whole body.
    pub members: Vec<(String, String)>,
    /// How fields of a form are written where that is not as usual.
    pub fields: Vec<FormField>,
    /// Whether a request always has it.
    pub required: bool,
}

/// An argument in the making.
struct ArgumentDraft<'d> {
    argument: String,
    schema: Option<&'d Value>,
    description: Option<&'d str>,
    required: bool,
    deprecated: bool,
    /// What it is where the document does not say.
    default_type: &'static str,
}

/// The arguments for a path and the parameters that hold for it, each already the one that weighs most.
pub(super) fn build<'d>(
    document: Document<'d>,
    patterns: &Patterns,
    path: &str,
    parameters: &[&'d Value],
    body: Option<&'d Value>,
) -> Result<ToolArguments, String> {
    let mut names = ArgumentNames::default();
    let mut left_out = Vec::new();
    let mut slots = Vec::new();
    let mut sent = Vec::new();
    let mut variables = path_variables(path)?;
    // Paths first: where two have one name, the one in the path keeps it.
    let mut all = Vec::new();
    for parameter in parameters {
        match parameter::parse(parameter)? {
            ParsedParameter::Argument(parameter) => all.push(parameter),
            ParsedParameter::Omitted(why) => left_out.extend(why),
        }
    }
    all.sort_by_key(|found| found.parameter.location != ParameterLocation::Path);
    for parameter::ParameterSpec { parameter, schema, definition: written } in all {
        let in_path = parameter.location == ParameterLocation::Path;
        if in_path && !variables.remove(parameter.name.as_str()) {
            left_out.push(format!("the parameter `{}` has no place in the path and is left out", parameter.name));
            continue;
        }
        let argument = names.assign(&parameter.name, parameter::location_name(parameter.location));
        slots.push(ArgumentDraft {
            argument: argument.clone(),
            schema,
            description: member_text(written, "description"),
            required: in_path || is_true(written, "required"),
            deprecated: is_true(written, "deprecated"),
            default_type: "string",
        });
        sent.push(parameter.argument(argument));
    }
    if let Some(name) = variables.first() {
        return Err(format!("`{{{name}}}` in its path has no parameter"));
    }
    let chosen = body.map(|body| body::select_media_type(document, body)).transpose()?.flatten();
    let body = chosen.and_then(|chosen| body_arguments(document, chosen, &mut names, &mut slots));

    let mut last = String::new();
    for detail in DETAIL_LEVELS {
        match build_schema(document, patterns, &slots, detail) {
            Ok((schema, cut)) => {
                left_out.extend(cut);
                return Ok(ToolArguments { schema, parameters: sent, body, omissions: left_out });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The names in braces in a path.
fn path_variables(path: &str) -> Result<BTreeSet<&str>, String> {
    let mut found = BTreeSet::new();
    let mut rest = path;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, after) = behind.split_once('}').unwrap_or_default();
        if name.is_empty() || name.contains('{') || before.contains('}') {
            return Err("its path has a brace without another".into());
        }
        found.insert(name);
        rest = after;
    }
    Ok(found)
}

/// The arguments a body needs: its members, where none of them is called like another argument; else one for the whole.
fn body_arguments<'d>(
    document: Document<'d>,
    chosen: SelectedBody<'d>,
    names: &mut ArgumentNames,
    slots: &mut Vec<ArgumentDraft<'d>>,
) -> Option<RequestBody> {
    let SelectedBody { media_type, format, schema, fields, required, description } = chosen;
    let resolved = schema.and_then(|schema| document.resolve(schema).ok());
    if resolved.is_some_and(|schema| schema["properties"] == json!({}) && schema["additionalProperties"] == false) {
        return None;
    }
    let members = schema.filter(|_| format != Format::Text).and_then(|schema| body::members(document, schema));
    let apart = members.filter(|members| {
        // A body that may be left out, and asks for members where it is there, can only be said as one.
        let mut seen = ArgumentNames::default();
        (required || members.required.is_empty())
            && members
                .schemas
                .keys()
                .all(|name| names.is_free(name) && seen.is_free(name) && !seen.assign(name, "").is_empty())
    });
    let mut listed = Vec::new();
    if let Some(members) = apart {
        for (name, schema) in &members.schemas {
            let argument = names.assign(name, "body");
            listed.push((argument.clone(), (*name).to_owned()));
            slots.push(ArgumentDraft {
                argument,
                schema: Some(schema),
                description: None,
                required: members.required.contains(name),
                deprecated: false,
                default_type: "string",
            });
        }
    }
    let argument = names.assign("body", "request");
    if listed.is_empty() {
        let otherwise = if format == Format::Text { "string" } else { "object" };
        slots.push(ArgumentDraft {
            argument: argument.clone(),
            schema,
            description,
            required,
            deprecated: false,
            default_type: otherwise,
        });
    }
    Some(RequestBody { media_type, format, argument, members: listed, fields, required })
}

/// The schema of all arguments, if a tool can have it, and what is not in it.
fn build_schema<'d>(
    document: Document<'d>,
    patterns: &Patterns,
    slots: &[ArgumentDraft<'d>],
    detail: Detail,
) -> Result<(Value, Vec<String>), String> {
    let mut converter = Converter::new(document, patterns, detail);
    let mut properties = Map::new();
    let mut required = Vec::new();
    for slot in slots {
        let mut schema = match slot.schema {
            Some(schema) => converter.convert(schema)?,
            None => json!({"type": slot.default_type}),
        };
        if let Some(members) = schema.as_object_mut() {
            if let Some(words) = slot.description {
                let words = super::schema::truncate(words, detail.description.max(100));
                members.insert("description".into(), words.into());
            }
            if slot.deprecated {
                members.insert("deprecated".into(), true.into());
            }
        }
        if slot.required {
            required.push(slot.argument.as_str());
        }
        properties.insert(slot.argument.clone(), schema);
    }
    let mut whole = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        whole["required"] = json!(required);
    }
    let definitions = converter.definitions()?;
    if !definitions.is_empty() {
        whole["$defs"] = definitions.into();
    }
    Schema::compile(whole.clone()).map_err(|error| error.to_string())?;
    Ok((whole, converter.omissions.into_iter().collect()))
}
