//! HTML pages: problem codes and the API documentation.

use serde_json::Value;
use toolhub_server::Server;

use crate::support_state::state_fixture;

#[tokio::test]
async fn every_code_the_api_may_answer_has_a_page() {
    let server = state_fixture().await;
    let document = Server::openapi();
    let texts = document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    let problems = texts.flat_map(|operation| operation["responses"].as_object().unwrap().values().cloned());
    let problems = problems.filter(|answer| answer["content"].get("application/problem+json").is_some());
    let mut codes: Vec<String> = problems
        .flat_map(|answer| {
            let parts = answer["description"].as_str().unwrap().split('`').map(str::to_owned);
            parts.skip(1).step_by(2).collect::<Vec<_>>()
        })
        .collect();
    codes.sort_unstable();
    codes.dedup();
    assert!(codes.len() > 20, "{codes:?}");
    for code in codes {
        let body = server.request("nobody", &format!("GET /problems/{code}"), None, &[]).await.expect_status(200);
        assert_eq!(body["code"], code.as_str());
        assert!(!body["advice"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_code_is_a_page_for_browsers() {
    let server = state_fixture().await;
    let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    for path in ["/problems", "/problems/state_conflict"] {
        let page = server.request("nobody", &format!("GET {path}"), None, &browser).await;
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"), "{path}");
        assert!(page.text().contains("state_conflict") && !page.text().contains("<script"));
    }
    assert!(
        server.request("nobody", "GET /problems", None, &[]).await.expect_status(200)["items"]
            .as_array()
            .unwrap()
            .len()
            > 40
    );
    server.request("nobody", "GET /problems/nothing", None, &browser).await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn the_pages_of_the_api_need_nothing_from_outside() {
    let server = state_fixture().await;
    for (path, media) in [("/docs", "text/html"), ("/docs/page.js", "text/javascript"), ("/docs/page.css", "text/css")]
    {
        let file = server.request("nobody", &format!("GET {path}"), None, &[]).await;
        assert_eq!(file.status, 200);
        assert_eq!(file.header("content-type"), format!("{media}; charset=utf-8"));
        let policy = file.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe-"), "{policy}");
        assert_eq!(file.header("x-content-type-options"), "nosniff");
        for outside in ["http://", "https://", "innerHTML", "eval(", " style=", "onclick="] {
            assert!(!file.text().contains(outside), "{path} has `{outside}`");
        }
    }
    let described = server.request("nobody", "GET /openapi.json", None, &[]).await.expect_status(200);
    assert_eq!(described, Server::openapi());
    assert_eq!(described["openapi"], Value::from("3.1.0"));
}
