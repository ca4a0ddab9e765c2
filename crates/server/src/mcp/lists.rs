//! Prompts, resources and artifacts: listed and read.
//!
//! In: requests of clients. Out: what the MCP servers of the hub bring, and artifacts of calls. Reading is a call of an unlisted tool, so
//! that rules, limits, status and journal hold; what is outside the toolset of the address does not exist.

use base64::{Engine, prelude::BASE64_STANDARD};
use rmcp::{
    ErrorData,
    model::{
        CompleteRequestParams, CompleteResult, GetPromptRequestParams, GetPromptResult, Prompt, ReadResourceResult,
        Reference, Resource, ResourceContents, ResourceTemplate,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use toolhub_core::{
    CallError, CancellationToken, CompletionTarget, ErrorKind, HubLists, ReadCall, SubscribeError, ToolHub,
    ids::ArtifactId,
};

use super::{
    request::McpRequest,
    resource_updates::{ResourceUpdates, SubscriptionRefused},
    result::{self, ARTIFACTS},
};

/// What a request may see.
pub(super) struct Lists<'a> {
    pub(super) hub: &'a ToolHub,
    pub(super) request: &'a McpRequest,
    /// Cancels what is read.
    pub(super) cancel: &'a CancellationToken,
}

impl Lists<'_> {
    pub(super) fn resources(&self) -> Vec<Resource> {
        let lists = self.hub.lists();
        let is_visible = |uri: &str| self.is_visible(lists.read_resource(uri).as_ref());
        lists.resources().iter().filter(|resource| is_visible(&resource.uri)).filter_map(convert).collect()
    }

    pub(super) fn templates(&self) -> Vec<ResourceTemplate> {
        let lists = self.hub.lists();
        let is_visible = |uri: &str| self.is_visible(lists.read_resource(uri).as_ref());
        let templates = lists.templates().iter().filter(|template| is_visible(&template.uri_template));
        let artifacts = ResourceTemplate::new(format!("{ARTIFACTS}{{id}}"), "artifact")
            .with_description("Content of a call that is too long for a model");
        templates.filter_map(convert).chain([artifacts]).collect()
    }

    pub(super) fn prompts(&self) -> Vec<Prompt> {
        let lists = self.hub.lists();
        let is_visible = |name: &str| self.is_visible(lists.get_prompt(name, Default::default()).as_ref());
        lists.prompts().iter().filter(|prompt| is_visible(&prompt.name)).filter_map(convert).collect()
    }

    pub(super) async fn read_resource(&self, uri: &str) -> Result<ReadResourceResult, ErrorData> {
        let unknown =
            || ErrorData::resource_not_found("there is no such resource", Some(serde_json::json!({"uri": uri})));
        if let Some(id) = uri.strip_prefix(ARTIFACTS) {
            return self.read_artifact(uri, id).await?.ok_or_else(unknown);
        }
        let call = self.visible(|lists| lists.read_resource(uri)).ok_or_else(unknown)?;
        match self.read(call).await {
            // What a server refuses is most often a resource that it does not have.
            Err(error) if error.kind == ErrorKind::ToolRefused => Err(ErrorData::resource_not_found(error.model, None)),
            Err(error) => Err(read_error(&error)),
            Ok(output) => parse(output),
        }
    }

    /// Subscribes a client to changes of a resource.
    pub(super) fn subscribe(&self, updates: &ResourceUpdates, uri: &str) -> Result<(), ErrorData> {
        let refused = match self.visible(|lists| lists.read_resource(uri)) {
            None => SubscriptionRefused::Hub(SubscribeError::NotFound),
            Some(_) => match updates.subscribe(self.hub, uri) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            },
        };
        let data = Some(serde_json::json!({"uri": uri}));
        Err(match refused {
            SubscriptionRefused::Hub(SubscribeError::NotFound) => {
                ErrorData::resource_not_found("there is no such resource", data)
            }
            refused => ErrorData::invalid_params(refused.to_string(), data),
        })
    }

    async fn read_artifact(&self, uri: &str, id: &str) -> Result<Option<ReadResourceResult>, ErrorData> {
        let Ok(id) = ArtifactId::new(id) else { return Ok(None) };
        let artifact = self.hub.artifact(&self.request.principal.tenant, &id).await;
        let artifact = artifact.map_err(|error| result::fault(&CallError::from(error)))?;
        Ok(artifact.map(|artifact| {
            let contents = match String::from_utf8(artifact.bytes) {
                Ok(text) => ResourceContents::text(text, uri),
                Err(bytes) => ResourceContents::blob(BASE64_STANDARD.encode(bytes.as_bytes()), uri),
            };
            ReadResourceResult::new(vec![contents.with_mime_type(artifact.mime_type)])
        }))
    }

    pub(super) async fn get_prompt(&self, params: GetPromptRequestParams) -> Result<GetPromptResult, ErrorData> {
        let unknown = || ErrorData::invalid_params(format!("there is no prompt `{}`", truncate(&params.name)), None);
        let arguments = params.arguments.clone().unwrap_or_default();
        let call = self.visible(|lists| lists.get_prompt(&params.name, arguments)).ok_or_else(unknown)?;
        self.read(call).await.map_err(|error| read_error(&error)).and_then(parse)
    }

    pub(super) async fn complete(&self, params: CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
        let argument = serde_json::to_value(&params.argument).unwrap_or_default();
        let context = params.context.as_ref().and_then(|context| serde_json::to_value(context).ok());
        let call = self.visible(|lists| match &params.r#ref {
            Reference::Prompt(prompt) => lists.complete(CompletionTarget::Prompt(&prompt.name), argument, context),
            Reference::Resource(resource) => {
                lists.complete(CompletionTarget::ResourceTemplate(&resource.uri), argument, context)
            }
            _ => None,
        });
        match call {
            // A server that completes nothing has no suggestions.
            None => Ok(CompleteResult::default()),
            Some(call) => self.read(call).await.map_err(|error| read_error(&error)).and_then(parse),
        }
    }

    /// The call that reads something, if the address has it.
    fn visible(&self, find: impl FnOnce(&HubLists) -> Option<ReadCall>) -> Option<ReadCall> {
        find(&self.hub.lists()).filter(|call| self.is_visible(Some(call)))
    }

    fn is_visible(&self, call: Option<&ReadCall>) -> bool {
        let caller = &self.request.principal.caller;
        let is_denied = |name: &str| self.hub.get(name).is_some_and(|tool| tool.denied_to(caller).is_some());
        call.is_some_and(|call| self.request.toolset.contains(&call.tool) && !is_denied(&call.tool))
    }

    async fn read(&self, call: ReadCall) -> Result<Value, CallError> {
        let principal = &self.request.principal;
        let call = self.hub.call(call.tool.as_str(), call.arguments).tenant(principal.tenant.clone());
        let mut call = call.caller(principal.caller.clone()).no_wait().cancel_on(self.cancel);
        if let Some(thread) = self.request.fixed_thread() {
            call = call.thread(thread.as_str());
        }
        call.await.into_result()
    }
}

/// The error of something that could not be read.
fn read_error(error: &CallError) -> ErrorData {
    match error.kind {
        ErrorKind::ToolRefused | ErrorKind::ArgumentsInvalid => ErrorData::invalid_params(error.model.clone(), None),
        _ => result::fault(error),
    }
}

/// An entry of a list in the type of the protocol.
fn convert<T: DeserializeOwned>(entry: &impl Serialize) -> Option<T> {
    serde_json::from_value(serde_json::to_value(entry).ok()?).ok()
}

/// The result of a server in the type of the protocol.
fn parse<T: DeserializeOwned>(output: Value) -> Result<T, ErrorData> {
    serde_json::from_value(output)
        .map_err(|_| ErrorData::internal_error("the answer of the MCP server is not as the protocol says", None))
}

fn truncate(text: &str) -> String {
    text.chars().take(128).collect()
}
