//! Invalid settings are reported by name, before anything is sent.

use std::time::Duration;

use serde_json::json;
use toolhub_connect::rest::{Auth, Body, KeyLocation, Parameter, Rest, Secret, Style};
use toolhub_core::{ConnectionStateConfig, Kind, ToolHub, testing::AssertOutcome};

use super::support::{Server, allow_local, any_object_schema};

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "callers pass temporary values")]
fn check(rest: Rest, setting: &str, fragment: &str) {
    let problems = rest.problems();
    let found = problems.iter().any(|problem| problem.setting == setting && problem.problem.contains(fragment));
    assert!(found, "`{setting}` … {fragment} …, not {problems:?}");
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
    check(Rest::get(URL).header("a b", "c"), "headers.a b", "not a valid header name");
    check(Rest::get(URL).header("Host", "c"), "headers.host", "the HTTP client itself");
    check(Rest::get(URL).header("Cookie", "c"), "headers.cookie", "`cookies`");
    for text in ["a\r\nx-admin: 1", "a\nb", "a\rb", "a\0b", "{x}\n"] {
        check(Rest::get(URL).header("a", text), "headers.a", "control character");
    }
    check(Rest::get(URL).json(json!({})), "body", "GET");
    check(Rest::post(URL).json(json!({"a": ["{"]})), "body", "`{`");
    check(Rest::post(URL).body(Body::Text("{".into())), "body", "`{`");
    check(Rest::get(URL).parameter(Parameter::path("id")), "parameters", "`{id}`");
    check(Rest::get(URL).parameter(Parameter::query("id").style(Style::Matrix)), "parameters", "Matrix");
    check(Rest::get(URL).select("now"), "select", "`/now`");
    check(Rest::get(URL).health_url("/health"), "health_url", "not a valid URL");
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
    check(Rest::get(URL).auth(Auth::header_key("a b", Secret::literal("x"))), "auth", "not a valid header name");
    // The service would get two values under one name, and might use the wrong one.
    let key = || Auth::query_key("key", Secret::literal("x"));
    check(Rest::get("https://api.example/x?key=1").auth(key()), "auth", "`key` is already set in the query");
    check(Rest::get("https://api.example/x?k%65y=1").auth(key()), "auth", "`key` is already set in the query");
    check(Rest::get(URL).query("key", "{k}").auth(key()), "auth", "`key` is already set in the query");
    let parameter = Parameter::query("key").argument("k");
    check(Rest::get(URL).parameter(parameter).auth(key()), "auth", "`key` is already set in the query");
    let key = || Auth::ApiKey { location: KeyLocation::Cookie, name: "key".into(), key: Secret::literal("x") };
    check(Rest::get(URL).cookie("key", "1").auth(key()), "auth", "`key` is already set in the cookies");
    check(
        Rest::get(URL).parameter(Parameter::cookie("key")).auth(key()),
        "auth",
        "`key` is already set in the cookies",
    );
    assert!(Rest::get(URL).query("key", "1").auth(key()).problems().is_empty());
    check(Rest::get(URL).auth(Auth::client_credentials("token", "", Secret::literal("x"))), "auth", "`token_url`");
    let unusable =
        ConnectionStateConfig { pool_size: 0, max_overflow: 0, timeout: Duration::ZERO, ..Default::default() };
    check(Rest::get(URL).connection(unusable.clone()), "connection.pool_size", "no request");
    check(Rest::get(URL).connection(unusable), "connection.timeout", "is 0");
}

#[tokio::test]
async fn all_problems_are_told_at_once_when_the_tool_is_registered() {
    let rest = Rest::get("ftp://x").select("a").header("a b", "");
    assert_eq!(rest.problems().len(), 3);
    let refused =
        ToolHub::builder().tool(rest.tool_with("it", any_object_schema())).build().await.unwrap_err().to_string();
    for fragment in ["`it` cannot be registered", "`url`", "`select`", "`headers.a b`"] {
        assert!(refused.contains(fragment), "{refused}");
    }
}

#[tokio::test]
async fn a_tool_is_what_its_method_says_unless_its_owner_says_otherwise() {
    let annotations = async |method: &str| {
        let hub = super::support::hub(Rest::new(method, URL)).await;
        let definition = hub.get("it").unwrap().definition.clone();
        let annotations = &definition.annotations;
        assert_eq!(definition.kind.as_str(), "rest");
        (annotations.read_only, annotations.destructive, annotations.idempotent)
    };
    assert_eq!((annotations("GET").await, annotations("head").await), ((true, false, true), (true, false, true)));
    assert_eq!((annotations("PUT").await, annotations("DELETE").await), ((false, true, true), (false, true, true)));
    assert_eq!((annotations("POST").await, annotations("PATCH").await), ((false, true, false), (false, true, false)));
}

#[tokio::test]
async fn a_request_is_registered_by_its_kind_and_called() {
    let server = Server::echo().await;
    let hub = ToolHub::builder().build().await.unwrap();
    let rest = allow_local(Rest::get(server.url("/v1/{city}")).header("X-From", "toolhub"));
    hub.register_rest(rest.tool_with("weather", any_object_schema())).unwrap();
    let outcome = hub.call("weather", json!({"city": "Oslo"})).await;
    assert_eq!(outcome.assert_success(), &json!({"target": "/v1/Oslo"}));
    assert_eq!(server.single_request().header("x-from"), "toolhub");
    assert_eq!(hub.get("weather").unwrap().definition.kind, Kind::Rest);
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
