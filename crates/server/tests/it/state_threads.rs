//! Threads, their instances and their snapshots.

use serde_json::json;

use crate::support_state::state_fixture;

#[tokio::test]
async fn a_thread_is_made_found_and_taken_away() {
    let server = state_fixture().await;
    let created = server.send_json("POST /api/v1/threads", json!({"id": "t1"})).await;
    assert_eq!(created.header("location"), "/api/v1/threads/t1");
    let created = created.expect_status(201);
    assert_eq!((&created["id"], &created["calls"]), (&json!("t1"), &json!(0)));
    assert_eq!(server.send_json("POST /api/v1/threads", json!({"id": "t1"})).await.expect_status(200), created);
    assert_eq!(server.get("/api/v1/threads/t1").await.expect_status(200), created);
    let minted = server.request("ann", "POST /api/v1/threads", None, &[]).await.expect_status(201);
    assert!(minted["id"].as_str().unwrap().starts_with("th_"), "{minted}");
    assert_eq!(server.request("ann", "DELETE /api/v1/threads/t1", None, &[]).await.expect_status(204), json!(null));
    for what in [
        "GET /api/v1/threads/t1",
        "DELETE /api/v1/threads/t1",
        "GET /api/v1/threads/%20",
        "GET /api/v1/threads/t1/snapshot",
    ] {
        server.request("ann", what, None, &[]).await.expect_problem(404, "thread_not_found");
    }
}

#[tokio::test]
async fn what_is_no_thread_id_is_refused_and_named() {
    let server = state_fixture().await;
    let problem =
        server.send_json("POST /api/v1/threads", json!({"id": "a/b"})).await.expect_problem(422, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "/id");
    let problem =
        server.send_json("POST /api/v1/threads", json!({"ids": "a"})).await.expect_problem(422, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "/ids");
    server.send("ann", "POST /api/v1/threads", Some("{".into()), &[]).await.expect_problem(400, "invalid_json");
}

#[tokio::test]
async fn another_tenants_thread_is_not_there() {
    let server = state_fixture().await;
    server.send_json("POST /api/v1/threads", json!({"id": "t1"})).await.expect_status(201);
    server
        .send_json("PUT /api/v1/state/contexts/t1%2Fcart/business", json!({"data": {"a": 1}}))
        .await
        .expect_status(201);
    for what in [
        "GET /api/v1/threads/t1",
        "DELETE /api/v1/threads/t1",
        "GET /api/v1/threads/t1/instances",
        "DELETE /api/v1/threads/t1/instances",
        "DELETE /api/v1/threads/t1/instances/browse",
        "GET /api/v1/threads/t1/snapshot",
        "GET /api/v1/tools/look/explain?threadId=t1",
        "GET /api/v1/graph?threadId=t1",
    ] {
        server.request("bob", what, None, &[]).await.expect_problem(404, "thread_not_found");
    }
    server
        .request("bob", "GET /api/v1/state/contexts/t1%2Fcart/business", None, &[])
        .await
        .expect_problem(404, "state_not_found");
    for what in ["GET /api/v1/threads", "GET /api/v1/threads?order=active"] {
        assert_eq!(server.request("bob", what, None, &[]).await.items("id"), [""; 0]);
    }
    assert_eq!(server.request("bob", "GET /api/v1/state/contexts", None, &[]).await.items("id"), [""; 0]);
}

#[tokio::test]
async fn threads_are_listed_a_page_at_a_time_each_once() {
    let server = state_fixture().await;
    let all: Vec<String> = (0..230).map(|number| format!("t{number:03}")).collect();
    for id in &all {
        server.send_json("POST /api/v1/threads", json!({"id": id})).await.expect_status(201);
    }
    for limit in [7, 100, 115, 230, 500] {
        let (mut found, mut next) = (Vec::new(), Some(format!("/api/v1/threads?limit={limit}")));
        while let Some(path) = next {
            let page = server.get(&path).await;
            let ids = page.items("id");
            assert!(ids.len() <= limit);
            found.extend(ids);
            next = page.next_link();
        }
        assert_eq!(found, all, "limit {limit}");
    }
    assert_eq!(server.get("/api/v1/threads").await.items("id").len(), 50);
}

#[tokio::test]
async fn threads_are_listed_by_their_last_activity_and_found_by_a_part_of_their_id() {
    let server = state_fixture().await;
    let all: Vec<String> = (0..130).map(|number| format!("T{number:03}")).collect();
    for id in &all {
        server.send_json("POST /api/v1/threads", json!({"id": id})).await.expect_status(201);
    }
    server.call("look", "T007", json!({})).await;
    for limit in [7, 50, 131] {
        let (mut found, mut next) = (Vec::new(), Some(format!("/api/v1/threads?order=active&limit={limit}")));
        while let Some(path) = next {
            let page = server.get(&path).await;
            let body = page.expect_status(200);
            let items = body["items"].as_array().unwrap();
            assert!(items.len() <= limit);
            found.extend(items.iter().map(|item| {
                let text = |member: &str| item[member].as_str().unwrap().to_owned();
                (std::cmp::Reverse(text("lastActiveAt")), text("id"))
            }));
            next = page.next_link();
        }
        assert_eq!(found[0].1, "T007", "limit {limit}");
        assert!(found.is_sorted(), "{found:?}");
        let mut ids: Vec<String> = found.into_iter().map(|(_, id)| id).collect();
        ids.sort_unstable();
        assert_eq!(ids, all, "limit {limit}");
    }
    for order in ["id", "active"] {
        let found = server.get(&format!("/api/v1/threads?order={order}&q=t12&limit=4")).await;
        assert_eq!(found.items("id").len(), 4);
        let rest = server.get(&found.next_link().unwrap()).await;
        let mut ids = [found.items("id"), rest.items("id")].concat();
        ids.extend(server.get(&rest.next_link().unwrap()).await.items("id"));
        ids.sort_unstable();
        assert_eq!(ids, all[120..130], "{order}");
    }
    assert_eq!(server.get("/api/v1/threads?q=x").await.items("id"), [""; 0]);
    server.get("/api/v1/threads?order=newest").await.expect_problem(422, "invalid_request");
    let by_id =
        server.get("/api/v1/threads?limit=1").await.expect_status(200)["nextCursor"].as_str().unwrap().to_owned();
    let foreign = format!("/api/v1/threads?order=active&cursor={by_id}");
    server.get(&foreign).await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn what_is_no_limit_and_no_cursor_is_refused() {
    let server = state_fixture().await;
    for id in ["t1", "t2"] {
        server.send_json("POST /api/v1/threads", json!({"id": id})).await.expect_status(201);
    }
    let cursor =
        server.get("/api/v1/threads?limit=1").await.expect_status(200)["nextCursor"].as_str().unwrap().to_owned();
    let damaged = format!("{}0", &cursor[..cursor.len() - 1]);
    for query in [
        "limit=0",
        "limit=501",
        "limit=x",
        "limit=-1",
        "limit=",
        "cursor=x",
        "cursor=%00",
        &format!("cursor={damaged}"),
    ] {
        server.get(&format!("/api/v1/threads?{query}")).await.expect_problem(422, "invalid_request");
    }
    server.get(&format!("/api/v1/policies?cursor={cursor}")).await.expect_problem(422, "invalid_request");
    server.get(&format!("/api/v1/state/contexts?cursor={cursor}")).await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn instances_are_listed_and_closed_by_tool_or_all_at_once() {
    let server = state_fixture().await;
    server.call("browse", "t1", json!({})).await;
    let list = async || server.get("/api/v1/threads/t1/instances").await;
    let listed = list().await;
    assert_eq!(listed.items("tool"), ["browse"]);
    assert_eq!(listed.expect_status(200)["items"][0]["inUse"], json!(false));
    let close = async |path: &str| {
        server.request("ann", &format!("DELETE /api/v1/threads/t1/instances{path}"), None, &[]).await
    };
    assert_eq!(close("/look").await.expect_status(200), json!({"closed": []}));
    assert_eq!(close("/browse").await.expect_status(200), json!({"closed": ["browse"]}));
    assert_eq!(close("/browse").await.expect_status(200), json!({"closed": []}));
    assert_eq!(list().await.items("tool"), [""; 0]);
    server.call("browse", "t1", json!({})).await;
    assert_eq!(close("").await.expect_status(200), json!({"closed": ["browse"]}));
    let problem = close("/brows").await.expect_problem(404, "tool_not_found");
    assert_eq!(problem["suggestions"][0], "browse");
}

#[tokio::test]
async fn a_snapshot_taken_in_one_thread_is_restored_in_another() {
    let server = state_fixture().await;
    server.call("look", "t1", json!({})).await;
    server
        .send_json("POST /api/v1/tools/cart/reports", json!({"threadId": "t1", "error": {"message": "no"}}))
        .await
        .expect_status(200);
    let saved = server.get("/api/v1/threads/t1/snapshot").await;
    assert_eq!(saved.expect_status(200)["states"].as_array().unwrap().len(), 6);
    let restore =
        async |text: &str| server.send("ann", "PUT /api/v1/threads/t2/snapshot", Some(text.into()), &[]).await;
    restore(saved.text()).await.expect_problem(404, "thread_not_found");
    server.send_json("POST /api/v1/threads", json!({"id": "t2"})).await.expect_status(201);
    assert_eq!(restore(saved.text()).await.expect_status(200)["tools"], json!(["cart", "look"]));
    let explained = server.get("/api/v1/tools/cart/explain?threadId=t2").await.expect_status(200);
    assert_eq!(explained["consecutiveFailures"], 1);
    let report = server.get("/api/v1/tools/report/explain?threadId=t2").await.expect_status(200);
    assert_eq!(report["offered"], true, "the evidence was restored: {report}");
    let damaged = restore("{\"states\": 5").await.expect_status(200);
    assert!(damaged["warning"].as_str().unwrap().contains("cannot be parsed"), "{damaged}");
    let quarantined = server.get(&format!("/api/v1/artifacts/{}", damaged["kept"].as_str().unwrap())).await;
    assert_eq!(quarantined.text(), "{\"states\": 5");
    restore(" ").await.expect_problem(400, "invalid_json");
}

#[tokio::test]
async fn a_thread_goes_with_its_state() {
    let server = state_fixture().await;
    server.call("cart", "t1", json!({"tea": 1})).await;
    assert_eq!(server.get("/api/v1/state/contexts?threadId=t1").await.items("id"), ["t1/basket"]);
    server.request("ann", "DELETE /api/v1/threads/t1", None, &[]).await.expect_status(204);
    assert_eq!(server.get("/api/v1/state/contexts?threadId=t1").await.items("id"), [""; 0]);
}
