//! The hub as `rmcp` sees it: one handler per method of the protocol.
#![allow(deprecated, reason = "log levels are deprecated, but clients still set them")]

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult,
        CustomRequest, CustomResult, ErrorCode, GetPromptRequestParams, GetPromptResponse, GetTaskParams,
        GetTaskResult, Implementation, InitializeRequestParams, ListPromptsResult, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
        ServerCapabilities, ServerConfig, SetLevelRequestMethod, SetLevelRequestParams, SubscriptionFilter, Tool,
        UpdateTaskParams,
    },
    service::{RequestContext, SubscriptionContext},
};
use serde::Deserialize;
use toolhub_core::{CancellationToken, ToolHub, ids::ThreadId};

use super::{
    approvals::ApprovalForms,
    call::{self, Calls, InteractiveTasks},
    list_watch::ListWatch,
    lists::Lists,
    request::McpRequest,
    search,
    tool_list::ToolList,
};
use crate::{
    audit::Audit,
    settings::{McpMode, Settings},
};

/// How long a client may use a list of tools without asking again, in milliseconds.
const LIST_TTL_MS: u64 = 60_000;

/// Number of tools of a page. Large, because many clients read the first page only.
const PAGE_SIZE: usize = 1_000;

/// The hub, as an MCP server. Cheap to clone: there is one per session.
#[derive(Clone)]
pub(super) struct HubServer(Arc<Inner>);

struct Inner {
    calls: Calls,
    tools: Arc<ToolList>,
    version: String,
    /// Ends what would last until its client leaves.
    stopping: CancellationToken,
}

impl HubServer {
    pub(super) fn new(hub: &ToolHub, audit: &Arc<Audit>, settings: &Settings, stopping: &CancellationToken) -> Self {
        let forms = ApprovalForms { hub: hub.clone(), audit: audit.clone(), mode: settings.mcp.approval };
        let tools = Arc::new(ToolList::new(hub));
        let calls = Calls {
            hub: hub.clone(),
            suspended: Arc::default(),
            forms,
            tools: tools.clone(),
            task_after: settings.mcp.task_after,
            tasks: InteractiveTasks::default(),
        };
        Self(Arc::new(Inner { calls, tools, version: settings.build.version.clone(), stopping: stopping.clone() }))
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
            .enable_tasks()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        let implementation = Implementation::new("toolhub", self.0.version.clone()).with_title("Toolhub");
        ServerConfig::new(capabilities).with_server_info(implementation)
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let request = McpRequest::of(&context)?;
        let thread = call::named_thread(&request, &context.meta)?;
        let tools = match request.mode {
            McpMode::List => self.0.tools.list(&request, thread.as_ref()).await?,
            McpMode::Search => search::tools(),
        };
        let (page, next) = page_of(tools, params.and_then(|params| params.cursor).as_deref());
        let mut list = ListToolsResult::with_all_items(page);
        list.next_cursor = next;
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

    async fn get_task(
        &self,
        params: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.0.calls.get_task(&params.task_id, &context).await
    }

    async fn update_task(
        &self,
        params: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.calls.update_task(&params.task_id, params.input_responses, &context).await
    }

    async fn cancel_task(
        &self,
        params: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.calls.cancel_task(&params.task_id, &context).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if METHODS.contains(&request.method.as_str()) {
            return Err(ErrorData::invalid_params(unfit_params(&request), None));
        }
        let method: String = request.method.chars().take(128).collect();
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("there is no method `{method}`"), None))
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

/// The tools after those of the page before, which ends at `cursor`, and the cursor of the next page.
fn page_of(mut tools: Vec<Tool>, cursor: Option<&str>) -> (Vec<Tool>, Option<String>) {
    if let Some(cursor) = cursor {
        tools.retain(|tool| tool.name.as_ref() > cursor);
    }
    let has_more = tools.len() > PAGE_SIZE;
    tools.truncate(PAGE_SIZE);
    let next = tools.last().filter(|_| has_more).map(|tool| tool.name.to_string());
    (tools, next)
}

/// The methods that are served. `rmcp` takes a request whose parameters do not fit for one of an unknown method.
const METHODS: [&str; 17] = [
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "server/discover",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/update",
    "tools/call",
    "tools/list",
    "notifications/cancelled",
];

/// Why the parameters of a request were not understood.
pub(super) fn unfit_params(request: &CustomRequest) -> String {
    let params = request.params.clone().unwrap_or_default();
    let error = match request.method.as_str() {
        "completion/complete" => CompleteRequestParams::deserialize(params).err(),
        "initialize" => InitializeRequestParams::deserialize(params).err(),
        "logging/setLevel" => SetLevelRequestParams::deserialize(params).err(),
        "prompts/get" => GetPromptRequestParams::deserialize(params).err(),
        "resources/read" => ReadResourceRequestParams::deserialize(params).err(),
        "tasks/cancel" => CancelTaskParams::deserialize(params).err(),
        "tasks/get" => GetTaskParams::deserialize(params).err(),
        "tasks/update" => UpdateTaskParams::deserialize(params).err(),
        "tools/call" => CallToolRequestParams::deserialize(params).err(),
        _ => None,
    };
    let reason = error.map(|error| format!(": {error}")).unwrap_or_default();
    format!("the parameters of `{}` do not fit{reason}", request.method)
}
