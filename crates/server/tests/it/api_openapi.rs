//! The OpenAPI document: complete, valid, and correct.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use toolhub_server::Server;

use crate::support_api::api_fixture;

fn operations() -> Vec<(String, String, Value)> {
    let document = Server::openapi();
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, item)| {
        item.as_object().unwrap().iter().map(|(method, operation)| (method.clone(), path.clone(), operation.clone()))
    });
    operations.collect()
}

#[test]
fn every_operation_says_what_it_does_and_what_it_answers() {
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations() {
        let name = format!("{method} {path}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{name}: duplicate operation id");
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{name} has no summary");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with(['2', '3'])), "{name} never succeeds");
        assert!(responses.values().all(|answer| !answer["description"].as_str().unwrap().is_empty()), "{name}");
        // A login has a key in its body.
        let guarded = operation["security"].is_array() || name == "post /ui/login";
        assert_eq!(guarded, responses.contains_key("401"), "{name}");
        let expected: BTreeSet<&str> =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let none = Vec::new();
        let parameters = operation["parameters"].as_array().unwrap_or(&none);
        let described = parameters.iter().filter(|one| one["in"] == "path").map(|one| one["name"].as_str().unwrap());
        assert_eq!(expected, described.collect(), "{name}: its path parameters");
        assert!(parameters.iter().all(|one| one["schema"].is_object()), "{name}");
    }
    assert!(ids.len() > 20, "{ids:?}");
}

#[test]
fn the_headers_that_a_client_needs_are_described() {
    let all = operations();
    let described = |method: &str, path: &str, status: &str, header: &str| {
        let (_, _, operation) = all.iter().find(|(m, p, _)| m == method && p == path).expect("it is there");
        operation["responses"][status]["headers"][header]["description"].is_string()
    };
    for (method, path, status, header) in [
        ("post", "/api/v1/tools/{name}/calls", "202", "Location"),
        ("post", "/api/v1/tools/{name}/calls", "202", "Preference-Applied"),
        ("post", "/api/v1/tools/{name}/calls", "200", "Idempotency-Replayed"),
        ("post", "/api/v1/tools/{name}/calls", "429", "RateLimit"),
        ("post", "/api/v1/tools/{name}/calls", "429", "Retry-After"),
        ("post", "/api/v1/threads/{id}/messages", "202", "Location"),
        ("post", "/api/v1/threads", "201", "Location"),
        ("get", "/api/v1/calls", "200", "Link"),
        ("get", "/api/v1/calls", "401", "WWW-Authenticate"),
        ("get", "/api/v1/state/contexts/{contextId}/{kind}", "304", "ETag"),
    ] {
        assert!(described(method, path, status, header), "{method} {path} {status} {header}");
    }
    assert!(!described("get", "/api/v1/calls", "200", "Location"));
}

#[test]
fn every_reference_leads_somewhere() {
    fn walk(value: &Value, document: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(to)) = members.get("$ref") {
                    let pointer = to.strip_prefix('#').unwrap_or_else(|| panic!("{to} is not a local reference"));
                    assert!(document.pointer(pointer).is_some(), "{to} does not resolve");
                }
                members.values().for_each(|member| walk(member, document));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, document)),
            _ => {}
        }
    }
    let document = Server::openapi();
    walk(&document, &document);
}

#[tokio::test]
async fn the_server_gives_its_description_and_every_address_in_it_is_served() {
    let api = api_fixture().await;
    let served = api.get("/openapi.json").await.expect_status(200);
    assert_eq!((&served["openapi"], &served["info"]["title"]), (&json!("3.1.0"), &json!("Toolhub")));
    for (method, path, operation) in operations() {
        let streams = operation["responses"]["200"]["content"]["text/event-stream"].is_object();
        if streams && !path.contains('{') {
            continue;
        }
        let parts: Vec<String> =
            path.split('/').map(|part| if part.starts_with('{') { "nobody".into() } else { part.to_owned() }).collect();
        let reply = api.request(&method.to_uppercase(), &parts.join("/"), None, &[]).await;
        let known = operation["responses"].as_object().unwrap().contains_key(&reply.status.to_string());
        assert!(known, "{method} {path} answered {}, which is not documented: {}", reply.status, reply.text);
        if reply.status == 404 {
            assert_ne!(reply.json()["hint"], "GET /openapi.json lists every path", "{method} {path} is not served");
        }
    }
}
