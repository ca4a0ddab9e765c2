//! State over HTTP: entries, entity tags, preconditions, history.

use std::sync::Arc;

use serde_json::{Value, json};
use toolhub_core::{
    BoxFuture,
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, StoreError, Table, Watcher},
    clock::Timestamp,
};

use crate::support_state::{Reply, StateFixture, state_fixture, state_fixture_on};

const CART: &str = "/api/v1/state/contexts/t1%2Fcart/business";

async fn put(server: &StateFixture, data: Value, headers: &[(&str, &str)]) -> Reply {
    server.request("ann", &format!("PUT {CART}"), Some(json!({"data": data})), headers).await
}

/// The tag of the cart as it is now.
async fn current_tag(server: &StateFixture) -> String {
    server.get(CART).await.header("etag").to_owned()
}

/// The version in a tag.
fn tag_version(tag: &str) -> &str {
    tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap().split_once('-').unwrap().0
}

#[tokio::test]
async fn a_state_is_written_read_patched_and_forgotten() {
    let server = state_fixture().await;
    server.get(CART).await.expect_problem(404, "state_not_found");
    let written = put(&server, json!({"tea": 1, "cake": {"n": 2}}), &[]).await;
    let tag = written.header("etag").to_owned();
    let entry = written.expect_status(201);
    assert_eq!((tag_version(&tag), &json!(tag.trim_matches('"'))), ("1", &entry["etag"]));
    assert_eq!(
        (&entry["contextId"], &entry["kind"], &entry["version"]),
        (&json!("t1/cart"), &json!("business"), &json!(1))
    );
    assert_eq!((&entry["expiresAt"], &entry["durability"]), (&Value::Null, &Value::Null));
    assert!(entry["createdAt"].as_str().unwrap().ends_with('Z') && entry["createdAt"] == entry["updatedAt"]);
    let read = server.get(CART).await;
    assert_eq!((read.header("etag"), read.expect_status(200)), (tag.as_str(), entry));
    let patched = server.send_json(&format!("PATCH {CART}"), json!({"data": {"tea": null, "cake": {"m": 3}}})).await;
    assert_eq!(tag_version(patched.header("etag")), "2");
    assert_eq!(patched.expect_status(200)["data"], json!({"cake": {"n": 2, "m": 3}}));
    put(&server, json!({}), &[]).await.expect_status(200);
    assert_eq!(
        server.get("/api/v1/threads/t1").await.expect_status(200)["calls"],
        0,
        "a state write creates the thread"
    );
    server.request("ann", &format!("DELETE {CART}"), None, &[]).await.expect_status(204);
    server.request("ann", &format!("DELETE {CART}"), None, &[]).await.expect_problem(404, "state_not_found");
    server.send_json(&format!("PATCH {CART}"), json!({"data": {}})).await.expect_problem(404, "state_not_found");
}

#[tokio::test]
async fn a_write_with_if_match_is_made_only_on_that_version() {
    let server = state_fixture().await;
    let old = "\"1-00000000000000ab\"";
    put(&server, json!({"n": 1}), &[("if-match", "*")]).await.expect_problem(412, "state_conflict");
    put(&server, json!({"n": 1}), &[("if-match", old)]).await.expect_problem(412, "state_conflict");
    put(&server, json!({"n": 1}), &[("if-none-match", "*")]).await.expect_status(201);
    let conflict = put(&server, json!({"n": 2}), &[("if-none-match", "*")]).await.expect_problem(412, "state_conflict");
    assert_eq!(conflict["version"], 1);
    let first = current_tag(&server).await;
    put(&server, json!({"n": 2}), &[("if-match", &first)]).await.expect_status(200);
    let second = current_tag(&server).await;
    for stale in [&first, old, "\"2\"", "2", &format!("W/{second}"), "\"x\"", &format!("{first}, {old}")] {
        put(&server, json!({"n": 9}), &[("if-match", stale)]).await.expect_problem(412, "state_conflict");
    }
    let good: [fn(String) -> String; 4] =
        [|tag| tag, |tag| tag.trim_matches('"').into(), |tag| format!("\"9\", {tag}"), |_| "*".into()];
    for good in good {
        let tag = good(current_tag(&server).await);
        put(&server, json!({"n": 3}), &[("if-match", &tag)]).await.expect_status(200);
    }
    let with = async |method: &str, body: Option<Value>, tag: &str| {
        server.request("ann", &format!("{method} {CART}"), body, &[("if-match", tag)]).await
    };
    let sixth = current_tag(&server).await;
    with("PATCH", Some(json!({"data": {"m": 1}})), &second).await.expect_problem(412, "state_conflict");
    with("PATCH", Some(json!({"data": {"m": 1}})), &sixth).await.expect_status(200);
    with("DELETE", None, &sixth).await.expect_problem(412, "state_conflict");
    with("DELETE", None, &current_tag(&server).await).await.expect_status(204);
}

#[tokio::test]
async fn a_tag_does_not_return_when_a_state_is_deleted_and_created_again() {
    let server = state_fixture().await;
    let session = "/api/v1/state/contexts/t1%2Fcart/session";
    let connection = "/api/v1/state/contexts/t1%2Fcart/connection";
    let send = async |what: String, tag: &str| {
        let body = what.starts_with("PUT").then(|| json!({"data": {"active": true}}));
        let headers = [("if-match", tag)];
        server.request("ann", &what, body, if tag.is_empty() { &[] } else { &headers }).await
    };
    for path in [CART, session, connection] {
        let old = send(format!("PUT {path}"), "").await.header("etag").to_owned();
        send(format!("DELETE {path}"), "").await.expect_status(204);
        let new = send(format!("PUT {path}"), "").await;
        assert_eq!(new.expect_status(201)["version"], 1, "{path}");
        assert_ne!(new.header("etag"), old, "{path}");
        for tag in [old.as_str(), "\"1\""] {
            let problem = send(format!("PUT {path}"), tag).await.expect_problem(412, "state_conflict");
            assert!(problem.to_string().contains("again") || problem.to_string().contains("ETag"), "{problem}");
            send(format!("DELETE {path}"), tag).await.expect_problem(412, "state_conflict");
        }
        assert_eq!(server.request("ann", &format!("GET {path}"), None, &[("if-none-match", &old)]).await.status, 200);
    }
    // The same when the whole thread was deleted.
    let old = current_tag(&server).await;
    server.request("ann", "DELETE /api/v1/threads/t1", None, &[]).await.expect_status(204);
    put(&server, json!({"n": 1}), &[]).await.expect_status(201);
    put(&server, json!({"n": 2}), &[("if-match", &old)]).await.expect_problem(412, "state_conflict");
}

#[tokio::test]
async fn of_many_writers_with_one_tag_exactly_one_writes() {
    let server = Arc::new(state_fixture().await);
    let tag = put(&server, json!({"n": 0}), &[]).await.header("etag").to_owned();
    let writers = (0..16).map(|number| {
        let (server, tag) = (server.clone(), tag.clone());
        tokio::spawn(async move { put(&server, json!({"n": number}), &[("if-match", &tag)]).await.status })
    });
    let mut ends = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        ends.push(writer.await.unwrap());
    }
    ends.sort_unstable();
    assert_eq!(ends[0], 200);
    assert!(ends[1..].iter().all(|status| *status == 412), "{ends:?}");
}

#[tokio::test]
async fn what_a_reader_has_already_is_not_sent_again() {
    let server = state_fixture().await;
    let tag = put(&server, json!({"n": 1}), &[]).await.header("etag").to_owned();
    let read = async |tag: &str| server.request("ann", &format!("GET {CART}"), None, &[("if-none-match", tag)]).await;
    for same in [&tag, &format!("W/{tag}"), tag.trim_matches('"'), "*", &format!("\"0\", {tag}")] {
        let response = read(same).await;
        assert_eq!((response.status, response.header("etag"), response.bytes.len()), (304, tag.as_str(), 0), "{same}");
    }
    assert_eq!(read("\"2\"").await.expect_status(200)["data"]["n"], 1);
}

#[tokio::test]
async fn a_cache_must_end_and_has_no_versions_to_compare() {
    let server = state_fixture().await;
    let cache = "/api/v1/state/contexts/~%2Fprices/cache";
    let write = async |body: Value, headers: &[(&str, &str)]| {
        server.request("ann", &format!("PUT {cache}"), Some(body), headers).await
    };
    let problem = write(json!({"data": {}}), &[]).await.expect_problem(422, "invalid_request");
    assert!(problem["detail"].as_str().unwrap().contains("time to live"), "{problem}");
    let first = write(json!({"data": {"a": 1}, "ttl": "1h"}), &[]).await;
    assert!(first.expect_status(201)["expiresAt"].is_string() && first.expect_status(201)["version"] == 0);
    let tag = first.header("etag").to_owned();
    let same = server.request("ann", &format!("GET {cache}"), None, &[("if-none-match", &tag)]).await;
    assert_eq!(same.status, 304);
    let second = write(json!({"data": {"a": 2}, "ttl": "1h"}), &[]).await;
    assert!(second.status == 200 && second.header("etag") != tag, "different content has a different tag");
    write(json!({"data": {}, "ttl": "1h"}), &[("if-match", &tag)]).await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn what_cannot_be_written_is_refused_in_words() {
    let server = state_fixture().await;
    for (body, pointer) in [
        (json!({}), ""),
        (json!({"data": 5}), "/data"),
        (json!({"data": [], "ttl": "1h"}), "/data"),
        (json!({"data": {}, "ttl": "soon"}), "/ttl"),
        (json!({"data": {}, "ttl": 60}), "/ttl"),
        (json!({"data": {}, "tttl": "1h"}), "/tttl"),
    ] {
        let problem =
            server.send_json(&format!("PUT {CART}"), body.clone()).await.expect_problem(422, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}: {problem}");
    }
    let large = json!({"data": {"a": "x".repeat(1_100_000)}});
    server.send_json(&format!("PUT {CART}"), large).await.expect_problem(413, "state_too_large");
    put(&server, json!({}), &[("if-none-match", "\"1\"")]).await.expect_problem(422, "invalid_request");
    for path in ["t1/business", "t1%2Fcart/odd", "cart/business", "t1%2Fa%2Fb/business", "%ff/business", "~/business"] {
        server
            .send_json(&format!("PUT /api/v1/state/contexts/{path}"), json!({"data": {}}))
            .await
            .expect_problem(404, "not_found");
    }
    server.get(CART).await.expect_problem(404, "state_not_found");
}

#[tokio::test]
async fn every_kind_can_be_written_and_is_listed() {
    let server = state_fixture().await;
    for kind in ["connection", "session", "business", "cache"] {
        let path = format!("/api/v1/state/contexts/t1%2Fcart/{kind}");
        let entry = server
            .send_json(&format!("PUT {path}"), json!({"data": {"k": kind}, "ttl": "1h30m"}))
            .await
            .expect_status(201);
        assert_eq!(server.get(&path).await.expect_status(200), entry);
    }
    let listed = server.get("/api/v1/state/contexts").await.expect_status(200);
    let context = &listed["items"][0];
    assert_eq!(
        (&context["id"], &context["toolType"], &context["threadId"]),
        (&json!("t1/cart"), &json!("cart"), &json!("t1"))
    );
    assert_eq!(context["kinds"].as_object().unwrap().len(), 4, "{context}");
    assert!(context["kinds"]["business"]["expiresAt"].is_string());
}

#[tokio::test]
async fn contexts_are_listed_by_thread_and_by_tool_each_once() {
    let server = state_fixture().await;
    let contexts = ["~%2Fbasket", "t1%2Fbasket", "t2%2Fbasket", "t1%2Fnotes", "t3%2Fnotes", "t1%2Fzoo"];
    for context in contexts {
        for kind in ["business", "session"] {
            server
                .send_json(&format!("PUT /api/v1/state/contexts/{context}/{kind}"), json!({"data": {}}))
                .await
                .expect_status(201);
        }
    }
    let all = async |query: &str| {
        let (mut found, mut next) = (Vec::new(), Some(format!("/api/v1/state/contexts?{query}")));
        while let Some(path) = next {
            let page = server.get(&path).await;
            found.extend(page.items("id"));
            next = page.next_link();
        }
        found.sort_unstable();
        found
    };
    for limit in [1, 2, 5, 50] {
        let every = ["t1/basket", "t1/notes", "t1/zoo", "t2/basket", "t3/notes", "~/basket"];
        assert_eq!(all(&format!("limit={limit}")).await, every, "limit {limit}");
        assert_eq!(all(&format!("threadId=t1&limit={limit}")).await, ["t1/basket", "t1/notes", "t1/zoo"]);
        // The tool `cart` stores its state under another name; no tool is called `notes`.
        assert_eq!(all(&format!("tool=cart&limit={limit}")).await, ["t1/basket", "t2/basket", "~/basket"]);
        assert_eq!(all(&format!("tool=notes&limit={limit}")).await, ["t1/notes", "t3/notes"]);
    }
    assert_eq!(all("threadId=unknown").await, [""; 0]);
    server.get("/api/v1/state/contexts?threadId=a%2Fb").await.expect_problem(422, "invalid_request");
    server.get("/api/v1/state/contexts?tool=a%2Fb").await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn what_a_tool_wrote_is_read_over_http_and_the_other_way_round() {
    let server = state_fixture().await;
    server.call("cart", "t1", json!({"tea": 1})).await;
    let basket = "/api/v1/state/contexts/t1%2Fbasket/business";
    assert_eq!(server.get(basket).await.expect_status(200)["data"], json!({"tea": 1}));
    server.send_json(&format!("PUT {basket}"), json!({"data": {"tea": 5}})).await.expect_status(200);
    server.call("cart", "t1", json!({"tea": 6})).await;
    assert_eq!(tag_version(server.get(basket).await.header("etag")), "3");
}

#[tokio::test]
async fn the_past_is_told_the_newest_first_and_can_be_gone_back_to() {
    let server = state_fixture().await;
    for n in 1..=5 {
        put(&server, json!({"n": n, "password": "canary"}), &[]).await;
    }
    let versions = server.get(&format!("{CART}/versions?limit=2")).await;
    assert_eq!(versions.items("version"), ["5", "4"]);
    let next = server.get(&versions.next_link().unwrap()).await;
    assert_eq!(next.items("version"), ["3", "2"]);
    assert_eq!(server.get(&next.next_link().unwrap()).await.items("version"), ["1"]);
    let (mut listed, mut next) = (Vec::new(), Some(format!("{CART}/history?limit=2")));
    while let Some(path) = next {
        let page = server.get(&path).await;
        assert!(!page.text().contains("canary"));
        listed.extend(page.items("version"));
        next = page.next_link();
    }
    assert_eq!(listed, ["5", "4", "3", "2", "1"]);
    let rollback = async |version: u64, tag: &str| {
        server
            .request("ann", &format!("POST {CART}/rollback"), Some(json!({"version": version})), &[("if-match", tag)])
            .await
    };
    rollback(2, "\"4-00000000000000ab\"").await.expect_problem(412, "state_conflict");
    let entry = rollback(2, &current_tag(&server).await).await;
    assert_eq!((tag_version(entry.header("etag")), &entry.expect_status(200)["data"]["n"]), ("6", &json!(2)));
    server
        .send_json(&format!("POST {CART}/rollback"), json!({"version": 99}))
        .await
        .expect_problem(404, "state_not_found");
    for what in ["history", "versions"] {
        server
            .get(&format!("/api/v1/state/contexts/t1%2Fother/business/{what}"))
            .await
            .expect_problem(404, "state_not_found");
        server.get(&format!("/api/v1/state/contexts/t1%2Fcart/session/{what}")).await.expect_problem(404, "not_found");
    }
}

#[tokio::test]
async fn pages_of_history_and_versions_are_bounded_by_size() {
    const MAX_PAGE: usize = 5 << 20;
    let server = state_fixture().await;
    for n in 1..=300 {
        put(&server, json!({"n": n, "text": "x".repeat(15_000)}), &[]).await;
    }
    for n in 301..=310 {
        put(&server, json!({"n": n, "text": "x".repeat(990_000)}), &[]).await;
    }
    for (what, count) in [("history", 310), ("versions", 10)] {
        let (mut listed, mut pages, mut next) = (Vec::new(), 0, Some(format!("{CART}/{what}?limit=500")));
        while let Some(path) = next {
            let page = server.get(&path).await;
            assert!(page.text().len() < MAX_PAGE, "{what}: {} bytes", page.text().len());
            listed.extend(page.items("version"));
            next = page.next_link();
            pages += 1;
        }
        let expected: Vec<String> = (311 - count..=310).rev().map(|version: u32| version.to_string()).collect();
        assert_eq!(listed, expected, "{what}");
        assert!(pages > 1, "{what}");
    }
}

#[tokio::test]
async fn a_reader_may_not_write_and_a_caller_may_not_read() {
    let server = state_fixture().await;
    let body = Some(json!({"data": {}}));
    server.request("caller", &format!("PUT {CART}"), body, &[]).await.expect_problem(403, "forbidden");
    server.request("caller", &format!("GET {CART}"), None, &[]).await.expect_problem(403, "forbidden");
    server.request("nobody", &format!("GET {CART}"), None, &[]).await.expect_problem(401, "unauthenticated");
}

#[tokio::test]
async fn session_cookies_of_a_service_are_not_readable() {
    let server = state_fixture().await;
    // As a REST tool with a session stores them.
    let path = "/api/v1/state/contexts/t1%2Fcookies:api.example/cache";
    let data = json!({"host": "api.example", "cookies": {"sid;/": {"name": "sid", "value": "canary-cookie"}}});
    let written = server.send_json(&format!("PUT {path}"), json!({"data": data, "ttl": "1h"})).await;
    written.expect_status(201);
    let read = server.get(path).await;
    assert_eq!(read.expect_status(200)["data"], json!({"host": "api.example", "redacted": true}));
    for reply in [written, read] {
        assert!(!String::from_utf8_lossy(&reply.bytes).contains("canary"), "{reply:?}");
    }
}

/// A store that reports itself as write-behind.
struct WriteBehindStore(Memory);

impl Backend for WriteBehindStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.0.load(keys, now)
    }
    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        self.0.commit(batch, now)
    }
    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.0.scan(scan, now)
    }
    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.0.sweep(most, now)
    }
    fn watch(&self, table: Table) -> Watcher {
        self.0.watch(table)
    }
    fn is_write_behind(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_write_that_is_not_durable_yet_says_so() {
    let server = state_fixture_on(Arc::new(WriteBehindStore(Memory::default()))).await;
    assert_eq!(put(&server, json!({"n": 1}), &[]).await.expect_status(201)["durability"], "behind");
    let patched = server.send_json(&format!("PATCH {CART}"), json!({"data": {"n": 2}})).await.expect_status(200);
    assert_eq!(patched["durability"], "behind");
    assert_eq!(server.get(CART).await.expect_status(200)["durability"], Value::Null);
    let deleted = server.request("ann", &format!("DELETE {CART}"), None, &[]).await;
    assert_eq!((deleted.status, deleted.header("durability")), (204, "behind"));
}
