//! Tenant isolation of every route, generated from the OpenAPI document: another tenant requests resources that exist.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{Method, Request, header},
};
use serde_json::{Value, json};
use toolhub_agent::{AgentDefinition, AgentService, RunStatus};
use toolhub_core::{
    Answer, ApprovalOutcome, CallContext, CallReceipt, Content, JsonReply, ToolError, ToolHub,
    backend::Memory,
    dynamic, dynamic_stateful,
    ids::{Caller, Tenant, ThreadId},
};
use toolhub_server::{Scope, Server};

use crate::support_agents::EchoModel;
use crate::support_listener::{make_key, read_json, send_raw, settings_with_keys};

/// Part of everything that tenant `a` has.
const CANARY: &str = "canary-of-tenant-a";

/// Everything that a key may do without affecting other tenants.
const TENANT_SCOPES: [Scope; 5] =
    [Scope::ToolsRead, Scope::ToolsCall, Scope::ApprovalsWrite, Scope::StateRead, Scope::StateWrite];

/// Routes that create resources of the caller's own under any given name. For all others, another tenant's resource
/// does not exist.
const CREATES_OWN_RESOURCE: [(&str, &str); 4] = [
    ("POST", "/api/v1/threads/{id}/messages"),
    ("POST", "/api/v1/threads/{id}/batches"),
    ("PUT", "/api/v1/state/contexts/{contextId}/{kind}"),
    ("PUT", "/api/v1/threads/{id}/snapshot"),
];

/// A valid body per route, so that the request is not refused for its form.
const BODIES: [(&str, &str); 8] = [
    ("POST /api/v1/threads/{id}/messages", r#"{"content": "hello"}"#),
    ("POST /api/v1/calls/{id}/result", r#"{"output": 1}"#),
    ("POST /api/v1/approvals/{id}", r#"{"outcome": "proceed_once"}"#),
    ("POST /api/v1/threads/{id}/batches", r#"{"role": "assistant", "tool_calls": []}"#),
    ("PUT /api/v1/state/contexts/{contextId}/{kind}", r#"{"data": {"of": "b"}}"#),
    ("PATCH /api/v1/state/contexts/{contextId}/{kind}", r#"{"data": {"of": "b"}}"#),
    ("POST /api/v1/state/contexts/{contextId}/{kind}/rollback", r#"{"version": 1}"#),
    ("POST /agents/{threadId}/tool-states/reset", "{}"),
];

struct TwoTenants {
    router: Router,
    keys: BTreeMap<String, String>,
    /// The value of a path parameter, by the beginning of the path.
    ids: Vec<(&'static str, String)>,
}

/// A server on which tenant `a` has one resource of each type.
async fn two_tenants() -> TwoTenants {
    let any = || json!({"type": "object"});
    let echo =
        |name: &str| dynamic(name, any(), |given: Value, _: CallContext| async move { Ok::<_, ToolError>(given) });
    let cart = dynamic_stateful("cart", "cart", any(), |mut given: Value, _: CallContext| async move {
        given.as_object_mut().map(|given| given.remove("state"));
        Ok::<_, ToolError>(JsonReply::with_state(given.clone(), given))
    });
    let store = Arc::new(Memory::default());
    let builder = ToolHub::builder().store(store.clone()).tool(echo("order").confirm()).tool(cart);
    let hub = builder.tool(echo("long").read_only().text_limit(10)).build().await.unwrap();
    let (a, arguments) = (Tenant::new("a").unwrap(), json!({"said": CANARY}));
    let call = |tool: &'static str| hub.call(tool, arguments.clone()).tenant(a.clone()).thread("t-a");
    let ended = call("cart").await;
    assert!(ended.error.is_none(), "{ended:?}");
    let refused = hub.call(CANARY, json!({})).tenant(a.clone()).await;
    assert!(refused.error.is_some());
    let long = call("long").await;
    let pointed = |piece: &Content| if let Content::Artifact { id, .. } = piece { Some(id.to_string()) } else { None };
    let artifact = long.content.iter().find_map(pointed).expect("an artifact");
    let ask = async |thread: &str| match call("order").thread(thread).until_approval().await {
        CallReceipt::AwaitingApproval { approval, .. } => approval,
        other => panic!("{other:?}"),
    };
    let always = Answer::new(ApprovalOutcome::ProceedAlways, Caller::new(CANARY).unwrap());
    let allowed = ask("t-b").await;
    hub.resolve_approval(&a, allowed, always).await.unwrap();
    while hub.running_calls() > 0 {
        tokio::task::yield_now().await;
    }
    let grant = hub.grants(&a).await.unwrap().remove(0).id.to_string();
    let question = ask("t-a").await;
    let agents = AgentService::new(&hub);
    agents.define("default", AgentDefinition::new(Arc::new(EchoModel::default())));
    let mut run = agents.send(&a, &ThreadId::new("t-a").unwrap(), CANARY).await.unwrap();
    assert_eq!(run.wait_ended().await.status, RunStatus::Completed);
    let resources = [
        make_key("a", "a", &TENANT_SCOPES),
        make_key("b", "b", &TENANT_SCOPES),
        make_key("b-admin", "b", &[Scope::Admin]),
    ];
    let keys = resources.iter().map(|(setting, text)| (setting.name.clone(), text.clone())).collect();
    let server =
        Server::new(hub, store, settings_with_keys(resources.into_iter().map(|(setting, _)| setting))).agents(agents);
    let ids = vec![
        ("/api/v1/approvals/", question.to_string()),
        ("/api/v1/artifacts/", artifact),
        ("/api/v1/calls/", ended.id.to_string()),
        ("/api/v1/grants/", grant),
        ("/api/v1/runs/", run.id().to_string()),
        ("/api/v1/state/contexts/", "t-a%2Fcart".into()),
        ("/api/v1/threads/", "t-a".into()),
        ("/agents/", "t-a".into()),
    ];
    TwoTenants { router: server.router(), keys, ids }
}

impl TwoTenants {
    /// The path with resources of tenant `a` as its parameters; `None` if it has no parameter for one.
    fn fill_path(&self, path: &str) -> Option<String> {
        let (_, id) = self.ids.iter().find(|(begins, _)| path.starts_with(begins) && path.contains('{'))?;
        let parts = path.split('/').map(|part| match part {
            "{kind}" => "business",
            "{tool}" => "cart",
            _ if part.starts_with('{') => id,
            _ => part,
        });
        Some(parts.collect::<Vec<_>>().join("/"))
    }

    async fn request(&self, who: &str, method: &str, path: &str, body: Option<&str>) -> (u16, Value) {
        let request = Request::builder().method(method.parse::<Method>().unwrap()).uri(path);
        let request = request.header(header::HOST, "localhost");
        let request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.keys[who]));
        let request = if body.is_some() { request.header(header::CONTENT_TYPE, "application/json") } else { request };
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_owned()));
        let (status, body) = read_json(send_raw(&self.router, request.body(body).unwrap()).await).await;
        (status.as_u16(), body)
    }

    /// Everything that tenant `a` can read, by path.
    async fn readable_by_a(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for (method, path) in routes() {
            let lists =
                ["approvals", "calls", "grants", "threads", "state/contexts"].map(|list| format!("/api/v1/{list}"));
            let filled = if lists.contains(&path) { Some(path.clone()) } else { self.fill_path(&path) };
            if let (Some(filled), "GET") = (filled, method.as_str()) {
                let (status, mut body) = self.request("a", "GET", &filled, None).await;
                assert_eq!(status, 200, "{filled}: {body}");
                // The time of the request differs each time.
                for place in ["/data/timestamp", "/toolStates/timestamp", "/timestamp", "/savedAt"] {
                    body.pointer_mut(place).map(Value::take);
                }
                all.insert(filled, body);
            }
        }
        all
    }
}

fn routes() -> Vec<(String, String)> {
    let document = Server::openapi();
    let of = |(path, methods): (&String, &Value)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
    };
    document["paths"].as_object().unwrap().iter().flat_map(of).collect()
}

#[tokio::test]
async fn whatever_another_tenant_asks_for_is_not_there_and_stays_as_it_is() {
    let two = two_tenants().await;
    let before = two.readable_by_a().await;
    let recognised: Vec<_> =
        before.iter().filter(|(_, body)| body.to_string().contains(CANARY)).map(|(path, _)| path).collect();
    assert!(recognised.len() > 8, "too few paths show data of tenant a: {recognised:?}");
    let (mut tried, mut wrong) = (0, Vec::new());
    let mut all = routes();
    // Routes that create something come last: from then on the other tenant has a resource of that name too.
    all.sort_by_key(|(method, path)| CREATES_OWN_RESOURCE.contains(&(method.as_str(), path.as_str())));
    for (method, path) in all {
        let route_name = format!("{method} {path}");
        let body = BODIES.iter().find(|(route, _)| *route == route_name).map(|(_, body)| *body);
        let filled = two.fill_path(&path);
        let batch = if path.ends_with("/batches") { "?format=openai" } else { "" };
        let own = CREATES_OWN_RESOURCE.contains(&(method.as_str(), path.as_str()));
        let address = format!("{}{batch}", filled.clone().unwrap_or_else(|| path.clone()));
        for who in ["b", "b-admin"] {
            let (status, response) = two.request(who, &method, &address, body).await;
            if response.to_string().contains(CANARY) {
                wrong.push(format!("{who} sees data of tenant a: {route_name} {response}"));
            }
            if filled.is_some() && !own && status != 404 {
                wrong.push(format!("{who} gets {status}: {route_name} {response}"));
            }
            if method == "GET" && response["items"].as_array().is_some_and(|items| items.iter().any(belongs_to_a)) {
                wrong.push(format!("{who} gets a list with data of tenant a: {route_name} {response}"));
            }
            tried += usize::from(filled.is_some());
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(tried > 30, "only {tried} routes have a parameter for a tenant's resource");
    for (path, after) in two.readable_by_a().await {
        assert_eq!(after, before[&path], "{path}");
    }
}

/// Whether an item of a list belongs to tenant `a`.
fn belongs_to_a(item: &Value) -> bool {
    item["threadId"] == "t-a" || item["contextId"] == "t-a/cart"
}
