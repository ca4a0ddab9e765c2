//! Prompts, resources and artifacts: listed and read.
//!
//! In: requests of clients. Out: what the MCP servers of the hub bring, and artifacts of calls. Reading is a call of an unlisted tool, so
//! that rules, limits, status and journal hold; what is outside the toolset of the address does not exist.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use rmcp::{
    ErrorData,
    model::{
        CompleteRequestParams, CompleteResult, GetPromptRequestParams, GetPromptResponse, InputRequiredResult,
        InputResponses, Prompt, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Reference,
        Resource, ResourceContents, ResourceTemplate,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use toolhub_core::{
    CallError, CallRequest, CompletionTarget, ErrorKind, HubLists, ReadCall, SubscribeError, ToolHub, Toolset,
    ids::{ArtifactId, Caller},
};

use super::{
    call::{Calls, Pause, check_capabilities, named_thread},
    input::{ClientInput, accepted_kinds},
    interactive_calls::{InteractiveCall, ResumeKey},
    request::McpContext,
    resource_updates::{ResourceUpdates, SubscriptionRefused},
    result::{self, ARTIFACTS},
};
use crate::settings::McpApproval;

/// What a request may see.
pub(super) struct Lists<'a> {
    pub(super) hub: &'a ToolHub,
    pub(super) calls: &'a Calls,
    pub(super) context: &'a McpContext,
}

/// What came of a call that reads something.
enum Read {
    Ended(Result<Value, CallError>),
    InputRequired(InputRequiredResult),
}

/// What a client sends to a call that asked it.
struct Answers {
    responses: InputResponses,
    state: Option<String>,
}

impl Answers {
    fn new(responses: Option<InputResponses>, state: Option<String>) -> Self {
        Self { responses: responses.unwrap_or_default(), state }
    }
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

    pub(super) async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = params.uri.as_str();
        let unknown =
            || ErrorData::resource_not_found("there is no such resource", Some(serde_json::json!({"uri": uri})));
        if let Some(id) = uri.strip_prefix(ARTIFACTS) {
            return self.read_artifact(uri, id).await?.map(ReadResourceResponse::Complete).ok_or_else(unknown);
        }
        let call = self.visible(|lists| lists.read_resource(uri)).ok_or_else(unknown)?;
        match self.read(call, Answers::new(params.input_responses, params.request_state)).await? {
            Read::InputRequired(result) => Ok(ReadResourceResponse::InputRequired(result)),
            // What a server refuses is most often a resource that it does not have.
            Read::Ended(Err(error)) if error.kind == ErrorKind::ToolRefused => {
                Err(ErrorData::resource_not_found(error.model, Some(serde_json::json!({"uri": uri}))))
            }
            Read::Ended(Err(error)) => Err(read_error(&error)),
            Read::Ended(Ok(output)) => parse(output).map(ReadResourceResponse::Complete),
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
        let artifact = self.hub.artifact(&self.context.request.principal.tenant, &id).await;
        let artifact = artifact.map_err(|error| result::fault(&CallError::from(error)))?;
        Ok(artifact.map(|artifact| {
            let contents = match String::from_utf8(artifact.bytes) {
                Ok(text) => ResourceContents::text(text, uri),
                Err(bytes) => ResourceContents::blob(BASE64_STANDARD.encode(bytes.as_bytes()), uri),
            };
            ReadResourceResult::new(vec![contents.with_mime_type(artifact.mime_type)])
        }))
    }

    pub(super) async fn get_prompt(&self, params: GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
        let unknown = || ErrorData::invalid_params(format!("there is no prompt `{}`", truncate(&params.name)), None);
        let arguments = params.arguments.clone().unwrap_or_default();
        let call = self.visible(|lists| lists.get_prompt(&params.name, arguments)).ok_or_else(unknown)?;
        match self.read(call, Answers::new(params.input_responses, params.request_state)).await? {
            Read::InputRequired(result) => Ok(GetPromptResponse::InputRequired(result)),
            Read::Ended(Err(error)) => Err(read_error(&error)),
            Read::Ended(Ok(output)) => parse(output).map(GetPromptResponse::Complete),
        }
    }

    pub(super) async fn complete(&self, params: CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
        let argument = serde_json::to_value(&params.argument).unwrap_or_default();
        let context = params.context.as_ref().and_then(|context| serde_json::to_value(context).ok());
        let (target, is_known, text) = match &params.r#ref {
            Reference::Prompt(prompt) => {
                let is_known = self.visible(|lists| lists.get_prompt(&prompt.name, Default::default())).is_some();
                (Some(CompletionTarget::Prompt(&prompt.name)), is_known, format!("prompt `{}`", truncate(&prompt.name)))
            }
            Reference::Resource(resource) => {
                let text = format!("resource template `{}`", truncate(&resource.uri));
                (Some(CompletionTarget::ResourceTemplate(&resource.uri)), self.has_template(&resource.uri), text)
            }
            _ => (None, false, "reference of this type".to_owned()),
        };
        if !is_known {
            return Err(ErrorData::invalid_params(format!("there is no {text}"), None));
        }
        match target.and_then(|target| self.visible(|lists| lists.complete(target, argument, context))) {
            // A server that completes nothing has no suggestions.
            None => Ok(CompleteResult::default()),
            // The protocol has no questions about completions.
            Some(call) => self
                .request_of(call)
                .cancel_on(&self.context.cancelled)
                .await
                .into_result()
                .map_err(|error| read_error(&error))
                .and_then(parse),
        }
    }

    /// Whether the address has this template, or a resource of this address: both can be completed.
    fn has_template(&self, uri: &str) -> bool {
        let lists = self.hub.lists();
        let is_listed = lists.templates().iter().any(|template| template.uri_template == uri)
            || lists.resources().iter().any(|resource| resource.uri == uri);
        uri == format!("{ARTIFACTS}{{id}}") || is_listed && self.is_visible(lists.read_resource(uri).as_ref())
    }

    /// The call that reads something, if the address has it.
    fn visible(&self, find: impl FnOnce(&HubLists) -> Option<ReadCall>) -> Option<ReadCall> {
        find(&self.hub.lists()).filter(|call| self.is_visible(Some(call)))
    }

    fn is_visible(&self, call: Option<&ReadCall>) -> bool {
        call.is_some_and(|call| {
            is_visible(self.hub, &self.context.request.toolset, &self.context.request.principal.caller, call)
        })
    }

    /// Makes a call that reads something, or goes on with one that asked its caller.
    async fn read(&self, call: ReadCall, answers: Answers) -> Result<Read, ErrorData> {
        let context = self.context;
        let accepted = accepted_kinds(&context.capabilities);
        if !context.is_modern {
            let input = ClientInput { client: context.client.clone(), accepted };
            let call = self.request_of(call).cancel_on(&context.cancelled).input(Arc::new(input));
            return Ok(Read::Ended(call.await.into_result()));
        }
        let thread = named_thread(context)?;
        let key = ResumeKey::new(&self.context.request.principal, thread.as_ref(), call.tool.as_str(), &call.arguments);
        let responses = answers.responses.into_iter().collect();
        let pause = match answers.state {
            None => {
                let running = InteractiveCall::start(self.request_of(call), accepted, self.hub.clock());
                self.calls.run_until_pause(running.answered_before(responses), &key, context).await?
            }
            Some(state) => self.calls.resume_until_pause(state, &key, responses, context).await?,
        };
        match pause {
            Pause::Ended { outcome, missing } => {
                check_capabilities(&outcome, missing, context)?;
                Ok(Read::Ended(outcome.into_result()))
            }
            Pause::InputRequired(result) => Ok(Read::InputRequired(result)),
        }
    }

    fn request_of(&self, call: ReadCall) -> CallRequest<'_> {
        let principal = &self.context.request.principal;
        let call = self.hub.call(call.tool.as_str(), call.arguments).tenant(principal.tenant.clone());
        let mut call = call.caller(principal.caller.clone()).no_wait();
        if self.calls.forms.mode == McpApproval::Deny {
            call = call.refuse_approval();
        }
        // A thread that is not valid is refused where it is read first.
        match named_thread(self.context).ok().flatten() {
            Some(thread) => call.thread(thread.as_str()),
            None => call,
        }
    }
}

/// Whether a caller may read this at an address with this toolset.
pub(super) fn is_visible(hub: &ToolHub, toolset: &Toolset, caller: &Caller, call: &ReadCall) -> bool {
    let is_denied = |name: &str| hub.get(name).is_some_and(|tool| tool.denied_to(caller).is_some());
    toolset.contains(&call.tool) && !is_denied(&call.tool)
}

/// The error of something that could not be read.
fn read_error(error: &CallError) -> ErrorData {
    match error.kind {
        kind if result::is_fault(kind) => result::fault(error),
        kind => ErrorData::invalid_params(error.model.clone(), Some(serde_json::json!({"code": kind.name()}))),
    }
}

/// An entry of a list in the type of the protocol.
fn convert<T: DeserializeOwned>(entry: &impl Serialize) -> Option<T> {
    serde_json::from_value(serde_json::to_value(entry).ok()?).ok()
}

/// The result of a server in the type of the protocol.
fn parse<T: DeserializeOwned>(mut output: Value) -> Result<T, ErrorData> {
    // The modern era requires it; `rmcp` leaves it out for clients of the legacy one.
    if let Some(output) = output.as_object_mut() {
        output.insert("resultType".into(), "complete".into());
    }
    serde_json::from_value(output)
        .map_err(|_| ErrorData::internal_error("the answer of the MCP server is not as the protocol says", None))
}

fn truncate(text: &str) -> String {
    text.chars().take(128).collect()
}
