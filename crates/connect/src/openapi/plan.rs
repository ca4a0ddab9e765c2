//! The plan of one operation, as plain values.
//!
//! In: what the other modules parsed. Out: a description for people, and a tool for the hub, whose requests `rest` sends. Nothing is
//! registered here.

use std::sync::Arc;

use serde_json::Value;
use toolhub_core::{Annotations, ToolBuilder, ToolName};
use toolhub_net::{AddressPolicy, Url};

use super::{arguments::RequestBody, body::Format, body_assembler::BodyAssembler, security::SigningPlan};
use crate::rest::{Auth, Body, KeyLocation, Parameter, ParameterLocation, Rest, Secret};

/// One operation of a document, ready to become a tool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Plan {
    /// The name of the tool.
    pub name: ToolName,
    /// The name of the operation in its document: its `operationId`, or else one derived from method and path.
    pub original_name: String,
    /// The document it comes from, as named in the origin of the tool.
    pub source: String,
    /// The method, in upper case.
    pub method: String,
    /// The path, as documented.
    pub path: String,
    /// The base URL of the path.
    pub server: String,
    /// What the tool does, for the model.
    pub description: String,
    /// The effects of the operation, derived from its method.
    pub annotations: Annotations,
    /// The tags of the operation.
    pub tags: Vec<String>,
    /// JSON Schema 2020-12 of the arguments.
    pub schema: Value,
    /// The locations of the arguments, except those of the body.
    pub parameters: Vec<Parameter>,
    /// The body, if it has one.
    pub body: Option<RequestBody>,
    /// The required security schemes: one of these lists, all schemes in it together. Empty: none.
    pub security: Vec<Vec<String>>,
    /// Whether calls need no approval although the tool is imported.
    pub trusted: bool,
    /// Fixed query parameters.
    pub(super) query: Vec<(String, String)>,
    pub(super) auth: Option<Auth>,
    pub(super) header_keys: Vec<(String, Secret)>,
}

impl Plan {
    /// Method and path: `GET /pets/{id}`.
    #[must_use]
    pub fn operation(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// The host of the service and its address range, if requests to it are refused because it is a private or local address and
    /// these hosts do not name it. Addresses that only a DNS lookup would find are not considered.
    #[must_use]
    pub fn refused_host(&self, allow_hosts: &[String]) -> Option<(String, &'static str)> {
        let url = Url::parse(&self.server).ok()?;
        let range = AddressPolicy::PublicOrHosts(allow_hosts.to_vec()).refusal_without_lookup(&url)?;
        Some((url.host_str()?.to_owned(), range))
    }

    /// The request, to be changed and passed to [`Plan::tool_with_request`]: timeouts, allowed hosts, a session.
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

    /// The request without credentials, whose availability does not depend on the document.
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
            // `rest` sets these three by itself.
            let default = ["application/json", "application/x-www-form-urlencoded", "text/plain"];
            if !default.contains(&body.media_type.as_str()) {
                request = request.header("Content-Type", escape_template(&body.media_type));
            }
        }
        request
    }

    /// Builds the tool.
    pub fn tool(&self) -> ToolBuilder {
        self.tool_with_request(self.request())
    }

    /// Builds the tool with a request that is based on [`Plan::request`].
    pub fn tool_with_request(&self, request: Rest) -> ToolBuilder {
        let split_body = self.body.as_ref().filter(|body| !body.members.is_empty());
        let assembler = split_body.map(|body| Arc::new(BodyAssembler::new(request.executor(), body)));
        let annotations = self.annotations.clone();
        let mut tool = request
            .tool_with(&self.name, self.schema.clone())
            .description(&self.description)
            .annotations(|own| *own = annotations)
            .origin(&self.source, &self.original_name);
        for tag in &self.tags {
            tool = tool.tag(tag);
        }
        if let Some(assembler) = assembler {
            tool = tool.executor(assembler);
        }
        if self.trusted { tool.trusted() } else { tool }
    }

    /// Sets the credentials of the requests. Several are possible only if all but one are keys in headers. Returns what was omitted for
    /// them.
    pub(super) fn apply_signing(
        &mut self,
        signing: SigningPlan,
        default: Option<&Auth>,
    ) -> Result<Vec<String>, String> {
        self.security = signing.alternatives;
        if signing.signatures.is_empty() {
            self.auth = default.filter(|_| !signing.is_public).cloned();
            return Ok(self.drop_key_parameters());
        }
        for signature in signing.signatures {
            match signature.key {
                Some(key) => self.header_keys.push(key),
                None if self.auth.is_none() => self.auth = Some(signature.auth),
                None => return Err("it needs several credentials that cannot be sent together".into()),
            }
        }
        let omissions = self.drop_key_parameters();
        // Key names and token URLs come from the document, and an invalid one must affect only this operation. The check uses dummy
        // secrets, because the availability of the real ones is checked later.
        let dummy = || Secret::literal("any");
        let mut request = self.unsigned_request();
        if let Some(auth) = &self.auth {
            request = request.auth(auth.clone().with_secret(dummy()));
        }
        for (name, _) in &self.header_keys {
            request = request.secret_header(name, dummy());
        }
        request.problems().into_iter().next().map_or(Ok(omissions), |problem| Err(problem.to_string()))
    }

    /// Drops parameters with the name of an API key: some documents describe a key both as a security scheme and as a parameter, and a
    /// configured key is no argument.
    fn drop_key_parameters(&mut self) -> Vec<String> {
        let in_headers = self.header_keys.iter().map(|(name, _)| (KeyLocation::Header, name.as_str()));
        let keys: Vec<_> = self.auth.as_ref().and_then(Auth::key_parameter).into_iter().chain(in_headers).collect();
        let is_key = |parameter: &Parameter| {
            keys.iter().any(|(location, key)| match (location, parameter.location) {
                (KeyLocation::Header, ParameterLocation::Header) => parameter.name.eq_ignore_ascii_case(key),
                (KeyLocation::Query, ParameterLocation::Query) | (KeyLocation::Cookie, ParameterLocation::Cookie) => {
                    parameter.name == *key
                }
                _ => false,
            })
        };
        let (dropped, remaining): (Vec<Parameter>, _) =
            std::mem::take(&mut self.parameters).into_iter().partition(is_key);
        self.parameters = remaining;
        for Parameter { argument, .. } in &dropped {
            if let Some(properties) = self.schema.get_mut("properties").and_then(Value::as_object_mut) {
                properties.remove(argument);
            }
            if let Some(required) = self.schema.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|name| name != argument);
            }
        }
        dropped
            .iter()
            .map(|parameter| format!("its parameter `{}` is the API key, which requests already carry", parameter.name))
            .collect()
    }
}

/// Escapes a literal text for a template.
fn escape_template(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}
