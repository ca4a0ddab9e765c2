//! The hub as `rmcp` sees it: one handler per method of the protocol.
#![allow(deprecated, reason = "log levels and subscriptions of sessions are deprecated, but clients still have them")]

mod listen;
mod params;

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult,
        CustomRequest, CustomResult, ErrorCode, GetPromptRequestParams, GetPromptResponse, GetTaskParams,
        GetTaskResult, Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
        ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
        ServerConfig, SetLevelRequestMethod, SetLevelRequestParams, SubscribeRequestMethod, SubscribeRequestParams,
        SubscriptionFilter, Tool, UnsubscribeRequestMethod, UnsubscribeRequestParams, UpdateTaskParams,
    },
    service::{RequestContext, SubscriptionContext},
};
use toolhub_core::{CallError, CancellationToken, ToolHub, ids::ThreadId};

pub(super) use params::unfit_params;

use super::{
    approvals::ApprovalForms,
    call::{self, Calls, InteractiveTasks},
    interactive_calls::SuspendedCalls,
    list_watch::ListWatch,
    lists::Lists,
    meters::{EndpointMeters, METHODS},
    request::{McpContext, McpRequest},
    resource_updates::ResourceUpdates,
    result, search,
    session::Session,
    stored_sessions::SessionSettings,
    tool_list::ToolList,
};
use crate::{
    audit::Audit,
    cursor,
    settings::{McpMode, Settings},
};

/// How long a client may use a list of tools without asking again, in milliseconds.
const LIST_TTL_MS: u64 = 60_000;

/// The list that cursors of tools belong to.
const TOOLS: &str = "tools/list";

/// Number of tools of a page. Large, because many clients read the first page only.
const PAGE_SIZE: usize = 1_000;

/// The hub, as an MCP server. Cheap to clone: there is one per session.
#[derive(Clone)]
pub(super) struct HubServer(Arc<Inner>);

struct Inner {
    calls: Calls,
    tools: Arc<ToolList>,
    version: String,
    meters: Arc<EndpointMeters>,
    /// Ends what would last until its client leaves.
    stopping: CancellationToken,
}

impl HubServer {
    pub(super) fn new(hub: &ToolHub, audit: &Arc<Audit>, settings: &Settings, stopping: &CancellationToken) -> Self {
        let forms = ApprovalForms { hub: hub.clone(), audit: audit.clone(), mode: settings.mcp.approval };
        let tools = Arc::new(ToolList::new(hub));
        let suspended = SuspendedCalls::new(hub, stopping);
        let tasks = Arc::<InteractiveTasks>::default();
        call::answer_other_nodes(hub, &suspended, &tasks);
        let calls = Calls {
            hub: hub.clone(),
            suspended,
            forms,
            tools: tools.clone(),
            task_after: settings.mcp.task_after,
            tasks,
            stopping: stopping.clone(),
        };
        Self(Arc::new(Inner {
            calls,
            tools,
            version: settings.build.version.clone(),
            meters: Arc::default(),
            stopping: stopping.clone(),
        }))
    }
}

impl HubServer {
    pub(super) fn meters(&self) -> &Arc<EndpointMeters> {
        &self.0.meters
    }

    /// Says when the lists of a client have changed.
    pub(super) async fn watch_lists(
        &self,
        request: &McpRequest,
        thread: Option<ThreadId>,
        updates: Arc<ResourceUpdates>,
    ) -> Result<ListWatch, ErrorData> {
        ListWatch::new(&self.0.calls.hub, request, thread, updates).await
    }
}

impl HubServer {
    /// Handles a request: measures it, and answers also if its handler panics. The handlers are boxed, because `rmcp` keeps the largest of
    /// their futures for every request.
    fn handle<'a, T>(
        &'a self,
        method: &'static str,
        handler: impl Future<Output = Result<T, ErrorData>> + Send + 'a,
    ) -> impl Future<Output = Result<T, ErrorData>> + Send + 'a {
        let handler = Box::pin(handler);
        async move {
            let _timer = self.0.meters.time(method);
            self.guard(method, handler).await
        }
    }

    /// Without this, `rmcp` would never answer a request whose handler panicked.
    async fn guard<T>(
        &self,
        method: &'static str,
        handler: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, ErrorData> {
        AssertUnwindSafe(handler).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(method, "the handler of an MCP request panicked");
            Err(ErrorData::internal_error("internal error: the request handler panicked", None))
        })
    }

    /// Calls a tool.
    pub(super) async fn call(
        &self,
        params: CallToolRequestParams,
        context: &McpContext,
    ) -> Result<CallToolResponse, ErrorData> {
        self.handle("tools/call", self.0.calls.run(params, context)).await
    }

    /// Whether headers repeat arguments of a tool, which `rmcp` compares.
    pub(super) fn has_parameter_headers(&self, tool: &str) -> bool {
        self.0.tools.has_parameter_headers(tool)
    }

    fn lists<'a>(&'a self, context: &'a McpContext) -> Lists<'a> {
        Lists { hub: &self.0.calls.hub, calls: &self.0.calls, context }
    }
}

impl ServerHandler for HubServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
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
        self.handle("tools/list", async {
            let context = McpContext::of(&context)?;
            let thread = call::named_thread(&context)?;
            let after = params.and_then(|params| params.cursor).map(|cursor| cursor::decode(TOOLS, &cursor));
            let after = after.map(|position| position.ok_or_else(unknown_cursor)).transpose()?;
            let mut tools = match context.request.mode {
                McpMode::List => {
                    self.0.tools.list(&context.request, thread.as_ref(), after.as_deref(), PAGE_SIZE + 1).await?
                }
                McpMode::Search => search::tools(),
            };
            let has_more = tools.len() > PAGE_SIZE;
            tools.truncate(PAGE_SIZE);
            let next = tools.last().filter(|_| has_more).map(|tool| cursor::encode(TOOLS, &tool.name));
            let mut list = ListToolsResult::with_all_items(tools);
            list.next_cursor = next;
            (list.ttl_ms, list.cache_scope) = (Some(LIST_TTL_MS), Some(CacheScope::Private));
            Ok(list)
        })
        .await
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.guard("subscriptions/listen", Box::pin(listen::announce_changes(self, &context, &self.0.stopping))).await
    }

    async fn set_level(
        &self,
        params: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handle("logging/setLevel", async {
            let context = McpContext::of(&context)?;
            let session =
                context.request.session.as_ref().ok_or_else(ErrorData::method_not_found::<SetLevelRequestMethod>)?;
            save_settings(session, |settings| settings.log_level = Some(params.level)).await
        })
        .await
    }

    async fn list_resources(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.handle("resources/list", async {
            let context = McpContext::of(&context)?;
            first_page_only(params)?;
            let list = ListResourcesResult::with_all_items(self.lists(&context).resources());
            Ok(list.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private))
        })
        .await
    }

    async fn list_resource_templates(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.handle("resources/templates/list", async {
            let context = McpContext::of(&context)?;
            first_page_only(params)?;
            let list = ListResourceTemplatesResult::with_all_items(self.lists(&context).templates());
            Ok(list.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private))
        })
        .await
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.handle("resources/read", async {
            let context = McpContext::of(&context)?;
            self.lists(&context).read_resource(params).await
        })
        .await
    }

    async fn subscribe(
        &self,
        params: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handle("resources/subscribe", async {
            let context = McpContext::of(&context)?;
            let session =
                context.request.session.as_ref().ok_or_else(ErrorData::method_not_found::<SubscribeRequestMethod>)?;
            self.lists(&context).subscribe(&session.updates, &params.uri)?;
            save_settings(session, |settings| settings.subscribe(&params.uri)).await
        })
        .await
    }

    async fn unsubscribe(
        &self,
        params: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handle("resources/unsubscribe", async {
            let context = McpContext::of(&context)?;
            let session =
                context.request.session.as_ref().ok_or_else(ErrorData::method_not_found::<UnsubscribeRequestMethod>)?;
            session.updates.unsubscribe(&params.uri);
            save_settings(session, |settings| settings.unsubscribe(&params.uri)).await
        })
        .await
    }

    async fn list_prompts(
        &self,
        params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.handle("prompts/list", async {
            let context = McpContext::of(&context)?;
            first_page_only(params)?;
            let list = ListPromptsResult::with_all_items(self.lists(&context).prompts());
            Ok(list.with_ttl_ms(LIST_TTL_MS).with_cache_scope(CacheScope::Private))
        })
        .await
    }

    async fn get_prompt(
        &self,
        params: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.handle("prompts/get", async {
            let context = McpContext::of(&context)?;
            self.lists(&context).get_prompt(params).await
        })
        .await
    }

    async fn complete(
        &self,
        params: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.handle("completion/complete", async {
            let context = McpContext::of(&context)?;
            self.lists(&context).complete(params).await
        })
        .await
    }

    async fn get_task(
        &self,
        params: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.handle("tasks/get", async { self.0.calls.get_task(&params.task_id, &McpContext::of(&context)?).await })
            .await
    }

    async fn update_task(
        &self,
        params: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handle("tasks/update", async {
            let context = McpContext::of(&context)?;
            self.0.calls.update_task(&params.task_id, params.input_responses, &context).await
        })
        .await
    }

    async fn cancel_task(
        &self,
        params: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handle("tasks/cancel", async {
            self.0.calls.cancel_task(&params.task_id, &McpContext::of(&context)?).await
        })
        .await
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
        self.call(params, &McpContext::of(&context)?).await
    }
}

async fn save_settings(session: &Session, change: impl Fn(&mut SessionSettings)) -> Result<(), ErrorData> {
    session.save_settings(change).await.map_err(|error| result::fault(&CallError::from(error)))
}

/// Refuses a cursor of a list that has one page.
fn first_page_only(params: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    match params.and_then(|params| params.cursor) {
        Some(_) => Err(unknown_cursor()),
        None => Ok(()),
    }
}

fn unknown_cursor() -> ErrorData {
    ErrorData::invalid_params("the cursor does not belong to this list; send the `nextCursor` of a page, or none", None)
}
