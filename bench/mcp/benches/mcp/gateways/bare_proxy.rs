//! A proxy made with the SDK alone: it passes lists and calls on.

use std::sync::Arc;

use axum::Router;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
        ServerConfig,
    },
    service::RequestContext,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService, streamable_http_server::session::local::LocalSessionManager,
    },
};

use crate::clients::{self, Upstream};

#[derive(Clone)]
struct BareProxy(Arc<Upstream>);

impl ServerHandler for BareProxy {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.0.list_tools(request).await.map_err(|error| fault(&error))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.0.call_tool(request).await.map(CallToolResponse::Complete).map_err(|error| fault(&error))
    }
}

fn fault(error: &impl ToString) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

pub(super) async fn serve(upstream: Option<String>) {
    let proxy = BareProxy(Arc::new(clients::connect(upstream).await));
    let mut config = StreamableHttpServerConfig::default();
    config.json_response = true;
    let service = StreamableHttpService::new(move || Ok(proxy.clone()), Arc::<LocalSessionManager>::default(), config);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    axum::serve(listener, Router::new().nest_service("/mcp", service)).await.unwrap();
}
