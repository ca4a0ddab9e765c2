//! Tells a client that listens what has changed, until it leaves.

use std::sync::Arc;

use rmcp::{ErrorData, service::SubscriptionContext};
use toolhub_core::CancellationToken;

use super::{
    super::{call, list_watch::ListChange, request::McpContext, resource_updates::ResourceUpdates},
    HubServer,
};

pub(super) async fn announce_changes(
    server: &HubServer,
    context: &SubscriptionContext,
    stopping: &CancellationToken,
) -> Result<(), ErrorData> {
    let request_context = McpContext::of(context.request_context())?;
    let (request, thread) = (&request_context.request, call::named_thread(&request_context)?);
    let _listener = server.meters().listener();
    let updates = Arc::new(ResourceUpdates::new(request.principal.tenant.clone(), Vec::new()));
    let lists = server.lists(&request_context);
    for uri in context.sink().accepted().resource_subscriptions.iter().flatten() {
        lists.subscribe(&updates, uri)?;
    }
    let mut watch = server.watch_lists(request, thread, updates).await?;
    let (sink, accepted) = (context.sink(), context.sink().accepted().clone());
    loop {
        let change = tokio::select! {
            () = context.cancelled() => return Ok(()),
            () = stopping.cancelled() => return Ok(()),
            change = watch.changed() => change,
        };
        let Some(change) = change else { return Ok(()) };
        let wants = |wanted: Option<bool>| wanted == Some(true);
        let send = async {
            match change {
                ListChange::Tools if wants(accepted.tools_list_changed) => sink.notify_tool_list_changed().await,
                ListChange::Prompts if wants(accepted.prompts_list_changed) => sink.notify_prompt_list_changed().await,
                ListChange::Resources if wants(accepted.resources_list_changed) => {
                    sink.notify_resource_list_changed().await
                }
                ListChange::Updated(uri) => sink.notify_resource_updated(uri).await,
                _ => Ok(()),
            }
        };
        let sent = stopping.run_until_cancelled(send).await;
        if !matches!(sent, Some(Ok(()))) {
            return Ok(());
        }
    }
}
