//! The hub as `rmcp` sees it: one handler per method of the protocol.
#![allow(deprecated, reason = "log levels are deprecated, but clients still set them")]

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult,
        GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
        ServerCapabilities, ServerConfig, SetLevelRequestMethod, SetLevelRequestParams, SubscriptionFilter, Tool,
    },
    service::{RequestContext, SubscriptionContext},
};
use toolhub_core::{CancellationToken, ToolHub, ids::ThreadId};

use super::{
    approvals::ApprovalForms,
    call::{self, Calls},
    list_watch::ListWatch,
    lists::Lists,
    request::McpRequest,
    tool_list::ToolList,
};
use crate::{audit::Audit, settings::Settings};

/// How long a client may use a list of tools without asking again, in milliseconds.
const LIST_TTL_MS: u64 = 60_000;

/// The hub, as an MCP server. Cheap to clone: there is one per session.
#[derive(Clone)]
pub(super) struct HubServer(Arc<Inner>);

struct Inner {
    calls: Calls,
    tools: ToolList,
    version: String,
    /// Ends what would last until its client leaves.
    stopping: CancellationToken,
}

impl HubServer {
    pub(super) fn new(hub: &ToolHub, audit: &Arc<Audit>, settings: &Settings, stopping: &CancellationToken) -> Self {
        let forms = ApprovalForms { hub: hub.clone(), audit: audit.clone(), mode: settings.mcp.approval };
        let calls = Calls { hub: hub.clone(), suspended: Arc::default(), forms };
        Self(Arc::new(Inner {
            calls,
            tools: ToolList::new(hub),
            version: settings.build.version.clone(),
            stopping: stopping.clone(),
        }))
    }
}

impl HubServer {
    /// Says when the list of a client has changed.
    pub(super) async fn watch_list(
        &self,
        request: &McpRequest,
        thread: Option<ThreadId>,
    ) -> Result<ListWatch, ErrorData> {
        ListWatch::new(&self.0.calls.hub, request, thread).await
    }
}

impl HubServer {
    fn lists<'a>(&'a self, request: &'a McpRequest, context: &'a RequestContext<RoleServer>) -> Lists<'a> {
        Lists { hub: &self.0.calls.hub, request, cancel: &context.ct }
    }
}

impl ServerHandler for HubServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_resources()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        let implementation = Implementation::new("toolhub", self.0.version.clone()).with_title("Toolhub");
        ServerConfig::new(capabilities).with_server_info(implementation)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let request = McpRequest::of(&context)?;
        let thread = call::named_thread(&request, &context.meta)?;
        let mut list = ListToolsResult::with_all_items(self.0.tools.list(&request, thread.as_ref()).await?);
        (list.ttl_ms, list.cache_scope) = (Some(LIST_TTL_MS), Some(CacheScope::Private));
        Ok(list)
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        if context.sink().accepted() == &SubscriptionFilter::default() {
            return Err(ErrorData::invalid_params("nothing of this server can be listened to by this filter", None));
        }
        let request = McpRequest::of(context.request_context())?;
        let thread = call::named_thread(&request, &context.request_context().meta)?;
        let mut watch = self.watch_list(&request, thread).await?;
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = self.0.stopping.cancelled() => return Ok(()),
                is_open = watch.changed() => {
                    if !is_open || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn set_level(
        &self,
        params: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let request = McpRequest::of(&context)?;
        match &request.session {
            Some(session) => session.set_log_level(params.level),
            None => return Err(ErrorData::method_not_found::<SetLevelRequestMethod>()),
        }
        Ok(())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let request = McpRequest::of(&context)?;
        let list = ListResourcesResult::with_all_items(self.lists(&request, &context).resources());
        Ok(list.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let request = McpRequest::of(&context)?;
        let list = ListResourceTemplatesResult::with_all_items(self.lists(&request, &context).templates());
        Ok(list.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private))
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let request = McpRequest::of(&context)?;
        self.lists(&request, &context).read_resource(&params.uri).await.map(ReadResourceResponse::Complete)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let request = McpRequest::of(&context)?;
        let list = ListPromptsResult::with_all_items(self.lists(&request, &context).prompts());
        Ok(list.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private))
    }

    async fn get_prompt(
        &self,
        params: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let request = McpRequest::of(&context)?;
        self.lists(&request, &context).get_prompt(params).await.map(GetPromptResponse::Complete)
    }

    async fn complete(
        &self,
        params: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let request = McpRequest::of(&context)?;
        self.lists(&request, &context).complete(params).await
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.tools.get(name)
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.0.calls.run(params, context).await
    }
}
