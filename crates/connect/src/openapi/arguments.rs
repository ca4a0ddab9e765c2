//! Builds the arguments of a tool from the parameters and body of an operation.
//!
//! In: the effective parameters of an operation, and its body. Out: one JSON Schema, and the location of each argument in the request.
//! Argument names are unique. If the schema is too large for a tool, it is built again with less detail until it fits.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use toolhub_core::schema::Schema;

use super::{
    body::{self, Format, SelectedBody},
    document::{Document, is_true, member_text},
    naming::ArgumentNames,
    parameter::{self, ParsedParameter},
    schema::{Converter, DETAIL_LEVELS, Patterns, SchemaDetail},
};
use crate::{
    rest::{FormField, Parameter, ParameterLocation},
    truncate::truncate,
};

/// The arguments of a tool.
pub(super) struct ToolArguments {
    pub(super) schema: Value,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<RequestBody>,
    /// What was omitted, as texts of warnings.
    pub(super) omissions: Vec<String>,
}

/// The body of the requests of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestBody {
    /// Its `Content-Type`.
    pub media_type: String,
    /// How it is serialized.
    pub format: Format,
    /// The argument that is the body; if its members are separate arguments, a name that no argument has.
    pub argument: String,
    /// The members of the body that are separate arguments: the argument, and its name in the body. Empty if one argument is the
    /// object body.
    pub members: Vec<(String, String)>,
    /// Form fields with a style that is not the default.
    pub fields: Vec<FormField>,
    /// Whether every request must have it.
    pub required: bool,
}

/// An argument whose schema is not converted yet.
struct ArgumentDraft<'d> {
    argument: String,
    schema: Option<&'d Value>,
    description: Option<&'d str>,
    required: bool,
    deprecated: bool,
    /// Its type if the document has no schema for it.
    default_type: &'static str,
}

/// Builds the arguments for a path and its effective parameters.
pub(super) fn build<'d>(
    document: Document<'d>,
    patterns: &Patterns,
    path: &str,
    parameters: &[&'d Value],
    body: Option<&'d Value>,
) -> Result<ToolArguments, String> {
    let mut names = ArgumentNames::default();
    let mut omissions = Vec::new();
    let mut drafts = Vec::new();
    let mut request_parameters = Vec::new();
    let mut variables = path_variables(path)?;
    let mut specs = Vec::new();
    for parameter in parameters {
        match parameter::parse(parameter)? {
            ParsedParameter::Argument(parameter) => specs.push(parameter),
            ParsedParameter::Omitted(reason) => omissions.extend(reason),
        }
    }
    // Path parameters first: if two parameters have the same name, the one in the path keeps it.
    specs.sort_by_key(|spec| spec.parameter.location != ParameterLocation::Path);
    for parameter::ParameterSpec { parameter, schema, definition } in specs {
        let in_path = parameter.location == ParameterLocation::Path;
        if in_path && !variables.remove(parameter.name.as_str()) {
            omissions.push(format!("the parameter `{}` does not occur in the path and is ignored", parameter.name));
            continue;
        }
        let argument = names.assign(&parameter.name, parameter::location_name(parameter.location));
        drafts.push(ArgumentDraft {
            argument: argument.clone(),
            schema,
            description: member_text(definition, "description"),
            required: in_path || is_true(definition, "required"),
            deprecated: is_true(definition, "deprecated"),
            default_type: "string",
        });
        request_parameters.push(parameter.argument(argument));
    }
    if let Some(name) = variables.first() {
        return Err(format!("`{{{name}}}` in its path has no parameter"));
    }
    let selected = body.map(|body| body::select_media_type(document, body)).transpose()?.flatten();
    let body = selected.and_then(|selected| body_arguments(document, selected, &mut names, &mut drafts));

    let mut last_error = String::new();
    for detail in DETAIL_LEVELS {
        match build_schema(document, patterns, &drafts, detail) {
            Ok((schema, truncations)) => {
                omissions.extend(truncations);
                return Ok(ToolArguments { schema, parameters: request_parameters, body, omissions });
            }
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

/// The names in braces in a path.
fn path_variables(path: &str) -> Result<BTreeSet<&str>, String> {
    let mut names = BTreeSet::new();
    let mut rest = path;
    while let Some((before, tail)) = rest.split_once('{') {
        let (name, after) = tail.split_once('}').unwrap_or_default();
        if name.is_empty() || name.contains('{') || before.contains('}') {
            return Err("its path has an unmatched brace".into());
        }
        names.insert(name);
        rest = after;
    }
    Ok(names)
}

/// Adds the arguments of a body: one per member if no name collides with another argument, else one for the object body.
fn body_arguments<'d>(
    document: Document<'d>,
    selected: SelectedBody<'d>,
    names: &mut ArgumentNames,
    drafts: &mut Vec<ArgumentDraft<'d>>,
) -> Option<RequestBody> {
    let SelectedBody { media_type, format, schema, fields, required, description } = selected;
    let resolved = schema.and_then(|schema| document.resolve(schema).ok());
    if resolved.is_some_and(|schema| schema["properties"] == json!({}) && schema["additionalProperties"] == false) {
        return None;
    }
    let members = schema.filter(|_| format != Format::Text).and_then(|schema| body::members(document, schema));
    let separate = members.filter(|members| {
        // An optional body with required members can only be one argument.
        let mut seen = ArgumentNames::default();
        (required || members.required.is_empty())
            && members
                .schemas
                .keys()
                .all(|name| names.is_free(name) && seen.is_free(name) && !seen.assign(name, "").is_empty())
    });
    let mut member_arguments = Vec::new();
    if let Some(members) = separate {
        for (name, schema) in &members.schemas {
            let argument = names.assign(name, "body");
            member_arguments.push((argument.clone(), (*name).to_owned()));
            drafts.push(ArgumentDraft {
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
    if member_arguments.is_empty() {
        let default_type = if format == Format::Text { "string" } else { "object" };
        drafts.push(ArgumentDraft {
            argument: argument.clone(),
            schema,
            description,
            required,
            deprecated: false,
            default_type,
        });
    }
    Some(RequestBody { media_type, format, argument, members: member_arguments, fields, required })
}

/// The schema of all arguments, and what was omitted from it. Fails if it exceeds the limits of a tool.
fn build_schema<'d>(
    document: Document<'d>,
    patterns: &Patterns,
    drafts: &[ArgumentDraft<'d>],
    detail: SchemaDetail,
) -> Result<(Value, Vec<String>), String> {
    let mut converter = Converter::new(document, patterns, detail);
    let mut properties = Map::new();
    let mut required = Vec::new();
    for draft in drafts {
        let mut schema = match draft.schema {
            Some(schema) => converter.convert(schema)?,
            None => json!({"type": draft.default_type}),
        };
        if let Some(members) = schema.as_object_mut() {
            if let Some(description) = draft.description {
                let description = truncate(description, detail.description.max(100));
                members.insert("description".into(), description.into());
            }
            if draft.deprecated {
                members.insert("deprecated".into(), true.into());
            }
        }
        if draft.required {
            required.push(draft.argument.as_str());
        }
        properties.insert(draft.argument.clone(), schema);
    }
    let mut object = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    let definitions = converter.definitions()?;
    if !definitions.is_empty() {
        object["$defs"] = definitions.into();
    }
    Schema::compile(object.clone()).map_err(|error| error.to_string())?;
    Ok((object, converter.omissions.into_iter().collect()))
}
