//! Artifacts over HTTP.

use serde_json::json;

use crate::support_state::state_fixture;

#[tokio::test]
async fn an_artifact_is_fetched_whole_and_a_browser_runs_nothing_of_it() {
    let server = state_fixture().await;
    let outcome = server.call("long", "t1", json!({})).await;
    let pieces = outcome["content"].as_array().unwrap();
    let find = |mime_type: &str| {
        let found = pieces.iter().find(|piece| piece["type"] == "artifact" && piece["mimeType"] == mime_type);
        found.and_then(|piece| piece["id"].as_str()).unwrap_or_else(|| panic!("{outcome}"))
    };
    let id = find("text/plain");
    let path = format!("/api/v1/artifacts/{id}");
    let fetched = server.get(&path).await;
    assert_eq!((fetched.status, fetched.text()), (200, "<b>ä</b>".repeat(20).as_str()));
    assert_eq!(fetched.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(fetched.header("content-disposition"), format!("attachment; filename=\"{id}.txt\""));
    assert_eq!(fetched.header("x-content-type-options"), "nosniff");
    assert_eq!(fetched.header("content-security-policy"), "default-src 'none'; sandbox");
    let sound = server.get(&format!("/api/v1/artifacts/{}", find("audio/wav"))).await;
    assert_eq!((sound.status, sound.text()), (200, "RIF".repeat(300).as_str()));
    assert_eq!(sound.header("content-type"), "audio/wav");
    server.request("bob", &format!("GET {path}"), None, &[]).await.expect_problem(404, "artifact_not_found");
    for unknown in ["art_0", "%20", "..%2f..%2fetc"] {
        server.get(&format!("/api/v1/artifacts/{unknown}")).await.expect_problem(404, "artifact_not_found");
    }
}
