//! What is wrong with settings is told before anything is sent, by the name of the setting.

use std::time::Duration;

use serde_json::json;
use toolhub_connect::rest::{Auth, Body, KeyLocation, Parameter, Rest, Secret, Style};
use toolhub_core::{ConnectionStateConfig, ToolHub};

use super::support::any_object_schema;

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "what is wrong is written where it is checked")]
fn check(rest: Rest, setting: &str, words: &str) {
    let problems = rest.problems();
    let found = problems.iter().any(|problem| problem.setting == setting && problem.problem.contains(words));
    assert!(found, "`{setting}` … {words} …, not {problems:?}");
}

const URL: &str = "https://api.example/v1";

#[test]
fn each_problem_names_its_setting_and_what_to_do() {
    check(Rest::get("api.example/x"), "url", "https://");
    check(Rest::get("ftp://api.example/x"), "url", "http and https");
    check(Rest::get("https://u:p@api.example/x"), "url", "`auth`");
    check(Rest::get("https://{host}/x"), "url", "may not depend on an argument");
    check(Rest::get("https://api.example:{port}/x"), "url", "may not depend on an argument");
    check(Rest::get("{scheme}://api.example/x"), "url", "may not depend on an argument");
    check(Rest::get("https://api.example/x#y"), "url", "`#`");
    check(Rest::get("https://api.example/{x"), "url", "`{`");
    check(Rest::get("https://api.example/x?{n}=1"), "url", "`{n}`");
    check(Rest::get("https://api.example/a/../b"), "path", "`..`");
    check(Rest::get("https://api.example/a/%2e%2E/b"), "path", "`..`");
    check(Rest::at("GET", "https://api.example?x=1", "/y"), "base_url", "`path`");
    check(Rest::new("FETCH", URL), "method", "GET, HEAD");
    check(Rest::get(URL).query("a", "}"), "query.a", "`}`");
    check(Rest::get(URL).header("a b", "c"), "headers.a b", "no name of a header");
    check(Rest::get(URL).header("Host", "c"), "headers.host", "HTTP itself");
    check(Rest::get(URL).header("Cookie", "c"), "headers.cookie", "`cookies`");
    check(Rest::get(URL).json(json!({})), "body", "GET");
    check(Rest::post(URL).json(json!({"a": ["{"]})), "body", "`{`");
    check(Rest::post(URL).body(Body::Text("{".into())), "body", "`{`");
    check(Rest::get(URL).parameter(Parameter::path("id")), "parameters", "`{id}`");
    check(Rest::get(URL).parameter(Parameter::query("id").style(Style::Matrix)), "parameters", "Matrix");
    check(Rest::get(URL).select("now"), "select", "`/now`");
    check(Rest::get(URL).health_url("/health"), "health_url", "no address");
    check(Rest::get(URL).allow_host("http://x"), "allow_hosts", "localhost");
    check(Rest::get(URL).ca_file("/no/such/file.pem"), "ca_file", "/no/such/file.pem");
    check(
        Rest::get(URL).auth(Auth::bearer(Secret::env("NO_SUCH_VARIABLE_1"))),
        "auth",
        "NO_SUCH_VARIABLE_1 is not set",
    );
    check(Rest::get(URL).auth(Auth::bearer(Secret::file("/no/such/token"))), "auth", "/no/such/token");
    check(Rest::get(URL).auth(Auth::bearer(Secret::literal(""))), "auth", "empty");
    check(Rest::get(URL).auth(Auth::bearer(Secret::literal("a\nb"))), "auth", "line break");
    check(Rest::get(URL).auth(Auth::basic("a:b", Secret::literal("x"))), "auth", "`:`");
    check(Rest::get(URL).auth(Auth::header_key("a b", Secret::literal("x"))), "auth", "no name of a header");
    // The service would get two values under one name, and nobody knows which it takes.
    let key = || Auth::query_key("key", Secret::literal("x"));
    check(Rest::get("https://api.example/x?key=1").auth(key()), "auth", "`key` stands in the query already");
    check(Rest::get("https://api.example/x?k%65y=1").auth(key()), "auth", "`key` stands in the query already");
    check(Rest::get(URL).query("key", "{k}").auth(key()), "auth", "`key` stands in the query already");
    let parameter = Parameter::query("key").argument("k");
    check(Rest::get(URL).parameter(parameter).auth(key()), "auth", "`key` stands in the query already");
    let key = || Auth::ApiKey { location: KeyLocation::Cookie, name: "key".into(), key: Secret::literal("x") };
    check(Rest::get(URL).cookie("key", "1").auth(key()), "auth", "`key` stands in the cookies already");
    check(
        Rest::get(URL).parameter(Parameter::cookie("key")).auth(key()),
        "auth",
        "`key` stands in the cookies already",
    );
    assert!(Rest::get(URL).query("key", "1").auth(key()).problems().is_empty());
    check(Rest::get(URL).auth(Auth::client_credentials("token", "", Secret::literal("x"))), "auth", "`token_url`");
    let none = ConnectionStateConfig { pool_size: 0, max_overflow: 0, timeout: Duration::ZERO, ..Default::default() };
    check(Rest::get(URL).connection(none.clone()), "connection.pool_size", "no request");
    check(Rest::get(URL).connection(none), "connection.timeout", "is 0");
}

#[tokio::test]
async fn all_problems_are_told_at_once_when_the_tool_is_registered() {
    let rest = Rest::get("ftp://x").select("a").header("a b", "");
    assert_eq!(rest.problems().len(), 3);
    let refused =
        ToolHub::builder().tool(rest.tool_with("it", any_object_schema())).build().await.unwrap_err().to_string();
    for word in ["`it` cannot be registered", "`url`", "`select`", "`headers.a b`"] {
        assert!(refused.contains(word), "{refused}");
    }
}

#[tokio::test]
async fn a_tool_is_what_its_method_says_unless_its_owner_says_otherwise() {
    let tool = async |method: &str| {
        let hub = super::support::hub(Rest::new(method, URL)).await;
        let definition = hub.get("it").unwrap().definition.clone();
        let it = &definition.annotations;
        assert_eq!(definition.kind.as_str(), "rest");
        (it.read_only, it.destructive, it.idempotent)
    };
    assert_eq!((tool("GET").await, tool("head").await), ((true, false, true), (true, false, true)));
    assert_eq!((tool("PUT").await, tool("DELETE").await), ((false, true, true), (false, true, true)));
    assert_eq!((tool("POST").await, tool("PATCH").await), ((false, true, false), (false, true, false)));
}

#[test]
fn a_base_and_a_path_are_one_address() {
    for (base, path) in
        [("https://a.example/v1", "/x"), ("https://a.example/v1/", "x"), ("https://a.example", "/{id}?q={q}")]
    {
        assert_eq!(Rest::at("GET", base, path).problems(), [], "{base} {path}");
    }
}

#[test]
fn no_problem_shows_what_may_be_secret() {
    for rest in [
        Rest::get("https://me:hunter2@api.example/x"),
        Rest::get("https://me:hunter2@api.example:99999/x"),
        Rest::at("GET", "https://me:hunter2@api.example", "/x"),
        Rest::get(URL).health_url("https://me:hunter2@api.example/"),
        Rest::get(URL).health_url("https://api.example:99999/?key=hunter2"),
        Rest::get(URL).header("Authorization", "hunter2{"),
        Rest::get(URL).query("key", "hunter2}"),
        Rest::get("https://api.example/?key=hunter2}"),
        Rest::get(URL).cookie("c", "hunter2{"),
        Rest::post(URL).json(json!({"password": "hunter2{"})),
    ] {
        let problems = format!("{:?}", rest.problems());
        assert!(problems.contains("RestError") && !problems.contains("hunter2"), "{problems}");
    }
}
