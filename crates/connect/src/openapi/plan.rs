//! An operation that can become a tool: everything that was read about it, as plain values.
//!
//! In: what the other rooms found. Out: for people a name, a method, a path and what is needed; for the hub a tool, whose requests the
//! `rest` room makes. Nothing is registered here.

use std::sync::Arc;

use serde_json::Value;
use toolhub_core::{Annotations, ToolBuilder, ToolName};

use super::{arguments::RequestBody, body::Format, body_assembler::BodyAssembler, security::SigningPlan};
use crate::rest::{Auth, Body, KeyLocation, Parameter, ParameterLocation, Rest, Secret};

/// One operation of a document, ready to become a tool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Plan {
    /// The name of the tool.
    pub name: ToolName,
    /// What the operation is called in its document: its `operationId`, or else its method and path in words.
    pub original_name: String,
    /// The document it comes from, as its tools' origin says it.
    pub source: String,
    /// The method, in capitals.
    pub method: String,
    /// The path as the document has it.
    pub path: String,
    /// The address the path is below.
    pub server: String,
    /// What the tool does, for the model.
    pub description: String,
    /// What the operation does to the world, told by its method.
    pub annotations: Annotations,
    /// The words the document groups operations by.
    pub tags: Vec<String>,
    /// JSON Schema 2020-12 of the arguments.
    pub schema: Value,
    /// Where arguments go, those of the body aside.
    pub parameters: Vec<Parameter>,
    /// The body, where it has one.
    pub body: Option<RequestBody>,
    /// The security schemes that are needed: one of these lists, all in it together. Empty: none.
    pub security: Vec<Vec<String>>,
    /// Whether nobody is asked before a call although the tool was imported.
    pub trusted: bool,
    /// What always stands in the query.
    pub(super) query: Vec<(String, String)>,
    pub(super) auth: Option<Auth>,
    pub(super) header_keys: Vec<(String, Secret)>,
}

impl Plan {
    /// Method and path, as people say it: `GET /pets/{id}`.
    #[must_use]
    pub fn operation(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// The request, for whoever wants to say more about it: timeouts, hosts that may be reached, a session. Give it to
    /// [`Plan::tool_by`] afterwards.
    #[must_use]
    pub fn request(&self) -> Rest {
        let mut request = self.unsigned_request();
        if let Some(auth) = &self.auth {
            request = request.auth(auth.clone());
        }
        for (name, key) in &self.header_keys {
            request = request.secret_header(name, key.clone());
        }
        request
    }

    /// The request without what shows who it is from: whether a secret is there is not a question of the document.
    pub(super) fn unsigned_request(&self) -> Rest {
        let path = self.path.split('?').next().unwrap_or_default();
        let mut request = Rest::at(&self.method, &self.server, path);
        for (name, value) in &self.query {
            request = request.query(name, escape_template(value));
        }
        for parameter in &self.parameters {
            request = request.parameter(parameter.clone());
        }
        if let Some(body) = &self.body {
            let argument = format!("{{{}}}", body.argument);
            request = request.body(match body.format {
                Format::Json => Body::Json(argument.into()),
                Format::Form => Body::FormFromArgument { argument: body.argument.clone(), fields: body.fields.clone() },
                Format::Text => Body::Text(argument),
            });
            // These three the request says by itself.
            let usual = ["application/json", "application/x-www-form-urlencoded", "text/plain"];
            if !usual.contains(&body.media_type.as_str()) {
                request = request.header("Content-Type", escape_template(&body.media_type));
            }
        }
        request
    }

    /// The tool.
    pub fn tool(&self) -> ToolBuilder {
        self.tool_with_request(self.request())
    }

    /// The tool, with a request that began as [`Plan::request`].
    pub fn tool_with_request(&self, request: Rest) -> ToolBuilder {
        let gather = self.body.as_ref().filter(|body| !body.members.is_empty());
        let gather = gather.map(|body| Arc::new(BodyAssembler::new(request.executor(), body)));
        let annotations = self.annotations.clone();
        let mut tool = request
            .tool_with(&self.name, self.schema.clone())
            .description(&self.description)
            .annotations(|said| *said = annotations)
            .origin(&self.source, &self.original_name);
        for tag in &self.tags {
            tool = tool.tag(tag);
        }
        if let Some(gather) = gather {
            tool = tool.executor(gather);
        }
        if self.trusted { tool.trusted() } else { tool }
    }

    /// Takes over how requests are signed; several signatures only where the others are keys in headers. Answers what was left out for
    /// it, in words.
    pub(super) fn apply_signing(
        &mut self,
        signed: SigningPlan,
        otherwise: Option<&Auth>,
    ) -> Result<Vec<String>, String> {
        self.security = signed.alternatives;
        if signed.signatures.is_empty() {
            self.auth = otherwise.filter(|_| !signed.is_public).cloned();
            return Ok(self.drop_key_parameters());
        }
        for signature in signed.signatures {
            match signature.key {
                Some(key) => self.header_keys.push(key),
                None if self.auth.is_none() => self.auth = Some(signature.auth),
                None => return Err("it wants several credentials at once that cannot be sent together".into()),
            }
        }
        let left_out = self.drop_key_parameters();
        // Names and addresses are the document's, and one that cannot be used must not cost the other operations. Whether a
        // secret is there is asked later.
        let any = || Secret::literal("any");
        let mut request = self.unsigned_request();
        if let Some(auth) = &self.auth {
            request = request.auth(auth.clone().with_secret(any()));
        }
        for (name, _) in &self.header_keys {
            request = request.secret_header(name, any());
        }
        request.problems().into_iter().next().map_or(Ok(left_out), |problem| Err(problem.to_string()))
    }

    /// Leaves out parameters that are called like a key: documents describe keys in both ways, and one that is given is no argument
    /// any more.
    fn drop_key_parameters(&mut self) -> Vec<String> {
        let in_headers = self.header_keys.iter().map(|(name, _)| (KeyLocation::Header, name.as_str()));
        let keys: Vec<_> = self.auth.as_ref().and_then(Auth::key_parameter).into_iter().chain(in_headers).collect();
        let is_key = |said: &Parameter| {
            keys.iter().any(|(place, key)| match (place, said.location) {
                (KeyLocation::Header, ParameterLocation::Header) => said.name.eq_ignore_ascii_case(key),
                (KeyLocation::Query, ParameterLocation::Query) | (KeyLocation::Cookie, ParameterLocation::Cookie) => {
                    said.name == *key
                }
                _ => false,
            })
        };
        let (gone, kept) = std::mem::take(&mut self.parameters).into_iter().partition(is_key);
        self.parameters = kept;
        let gone: Vec<Parameter> = gone;
        for Parameter { argument, .. } in &gone {
            if let Some(properties) = self.schema.get_mut("properties").and_then(Value::as_object_mut) {
                properties.remove(argument);
            }
            if let Some(required) = self.schema.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|name| name != argument);
            }
        }
        gone.iter()
            .map(|said| format!("its parameter `{}` is the key, which requests have already", said.name))
            .collect()
    }
}

/// A text of the document as a template that stands for itself.
fn escape_template(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}
