//! Tools over the API: listed, looked at, set by hand, exported.

use serde_json::{Value, json};

use crate::support_api::shop;

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_are_listed_by_name_and_filtered() {
    let shop = shop().await;
    let all = shop.get("/api/v1/tools").await.is(200);
    assert_eq!(names(&all), ["add", "broken", "look", "order", "rare", "report", "slow"]);
    assert_eq!(all["nextCursor"], Value::Null);
    let add = &all["items"][0];
    assert_eq!(
        (&add["status"], &add["reason"], &add["kind"]),
        (&json!("available"), &json!("never run"), &json!("stateless"))
    );
    assert_eq!(add["stats"]["calls"], 0);
    assert_eq!(names(&shop.get("/api/v1/tools?tag=numbers").await.is(200)), ["add"]);
    assert_eq!(names(&shop.get("/api/v1/tools?q=SOMETHING").await.is(200)), ["order"]);
    assert_eq!(names(&shop.get("/api/v1/tools?status=failed").await.is(200)), [""; 0]);
    assert_eq!(names(&shop.get("/api/v1/tools?kind=rest").await.is(200)), [""; 0]);
    shop.get("/api/v1/tools?status=gone").await.problem(422, "invalid_request");
    shop.get("/api/v1/tools?color=red").await.problem(422, "invalid_request");
}

#[tokio::test]
async fn a_list_of_tools_goes_on_where_a_page_ended() {
    let shop = shop().await;
    let (mut path, mut found) = ("/api/v1/tools?limit=3".to_owned(), Vec::new());
    loop {
        let reply = shop.get(&path).await;
        let page = reply.is(200);
        found.extend(names(&page).into_iter().map(str::to_owned));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/api/v1/tools?limit=3&cursor={cursor}");
        assert_eq!(reply.header("link"), format!("<{path}>; rel=\"next\""));
    }
    assert_eq!(found, ["add", "broken", "look", "order", "rare", "report", "slow"]);
    shop.get("/api/v1/tools?cursor=elsewhere").await.problem(422, "invalid_request");
    shop.get("/api/v1/tools?limit=0").await.problem(422, "invalid_request");
}

#[tokio::test]
async fn one_tool_is_shown_whole_and_an_unknown_one_suggests_others() {
    let shop = shop().await;
    let add = shop.get("/api/v1/tools/add").await.is(200);
    assert_eq!(add["parameters"]["required"], json!(["a", "b"]));
    assert!(add["policy"]["timeoutMs"].is_u64() && add["standing"]["shouldRebind"] == false, "{add}");
    let unknown = shop.get("/api/v1/tools/ad").await.problem(404, "tool_not_found");
    assert_eq!(unknown["suggestions"][0], "add");
}

#[tokio::test]
async fn a_status_set_by_hand_holds_for_everybody_until_it_is_reset() {
    let shop = shop().await;
    let body = json!({"status": "maintenance", "reason": "new disk", "until": "2999-01-01T00:00:00.000Z"});
    let set = shop.ask("PUT", "/api/v1/tools/add/status", Some(body), &[]).await.is(200);
    assert_eq!((&set["status"], &set["reason"]), (&json!("maintenance"), &json!("under maintenance: new disk")));
    let call = shop.post("/api/v1/tools/add/calls", json!({"arguments": {"a": 1, "b": 2}})).await;
    call.problem(503, "tool_maintenance");
    assert_eq!(names(&shop.get("/api/v1/tools?status=maintenance").await.is(200)), ["add"]);
    let reset = shop.ask("POST", "/api/v1/tools/add/reset", None, &[]).await.is(200);
    assert_eq!(reset["status"], "available");
    let wrong = shop.ask("PUT", "/api/v1/tools/add/status", Some(json!({"status": "ready"})), &[]).await;
    wrong.problem(422, "invalid_request");
    let wrong =
        shop.ask("PUT", "/api/v1/tools/add/status", Some(json!({"status": "failed", "raeson": "x"})), &[]).await;
    let wrong = wrong.problem(422, "invalid_request");
    assert_eq!(wrong["errors"][0]["pointer"], "/raeson");
    assert!(wrong["errors"][0]["detail"].as_str().unwrap().contains("did you mean `reason`?"), "{wrong}");
    let unknown = shop.ask("PUT", "/api/v1/tools/ad/status", Some(json!({"status": "failed"})), &[]).await;
    unknown.problem(404, "tool_not_found");
}

#[tokio::test]
async fn tools_are_exported_for_a_provider_and_a_thread_gets_what_it_is_offered() {
    let shop = shop().await;
    let named = |list: &Value, at: &str| -> Vec<String> {
        let tools = list["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool.pointer(at).unwrap().as_str().unwrap().to_owned()).collect()
    };
    let all = shop.get("/api/v1/tools/export?format=openai").await.is(200);
    assert_eq!(named(&all, "/function/name").len(), 7);
    let offered = shop.get("/api/v1/tools/export?format=anthropic&threadId=t1").await.is(200);
    assert!(!named(&offered, "/name").contains(&"report".into()), "{offered}");
    shop.post("/api/v1/tools/look/calls", json!({"threadId": "t1"})).await.is(200);
    let offered = shop.get("/api/v1/tools/export?format=anthropic&threadId=t1").await.is(200);
    assert!(named(&offered, "/name").contains(&"report".into()), "{offered}");
    for format in ["openai-responses", "gemini", "mcp"] {
        assert_eq!(shop.get(&format!("/api/v1/tools/export?format={format}")).await.is(200)["format"], format);
    }
    shop.get("/api/v1/tools/export?format=fax").await.problem(422, "invalid_request");
    shop.get("/api/v1/tools/export").await.problem(422, "invalid_request");
}

#[tokio::test]
async fn tools_do_not_come_over_the_api_where_nobody_makes_them_and_commands_never() {
    let shop = shop().await;
    shop.post("/api/v1/tools", json!({"name": "x", "builtin": "clock"})).await.problem(422, "invalid_request");
    let refused =
        shop.post("/api/v1/tools", json!({"name": "x", "command": "rm"})).await.problem(422, "invalid_request");
    assert!(refused["detail"].as_str().unwrap().contains("never"), "{refused}");
    shop.ask("DELETE", "/api/v1/tools/ad", None, &[]).await.problem(404, "tool_not_found");
}

#[tokio::test]
async fn a_disabled_tool_is_refused_until_it_is_enabled() {
    let shop = shop().await;
    let off = shop.post("/api/v1/tools/add/disable", json!({"reason": "too dear"})).await.is(200);
    assert_eq!(off["status"], "unavailable");
    assert!(off["reason"].as_str().unwrap().contains("too dear"), "{off}");
    let call = json!({"arguments": {"a": 1, "b": 2}});
    shop.post("/api/v1/tools/add/calls", call.clone()).await.problem(503, "tool_unavailable");
    assert_eq!(shop.ask("POST", "/api/v1/tools/add/enable", None, &[]).await.is(200)["status"], "available");
    shop.post("/api/v1/tools/add/calls", call).await.is(200);
    assert_eq!(shop.ask("POST", "/api/v1/tools/add/disable", None, &[]).await.is(200)["status"], "unavailable");
    shop.ask("POST", "/api/v1/tools/ad/enable", None, &[]).await.problem(404, "tool_not_found");
}
