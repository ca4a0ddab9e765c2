//! Locations and encoding of arguments.

use serde_json::{Value, json};
use toolhub_connect::rest::{Auth, Body, FormField, KeyLocation, Parameter, Rest, Secret, Style};
use toolhub_core::{ErrorKind, testing::AssertOutcome};

use super::support::{RecordedRequest, Server, allow_local, call, hub};

async fn send(make: impl FnOnce(&Server) -> Rest, arguments: Value) -> RecordedRequest {
    let server = Server::echo().await;
    let hub = hub(allow_local(make(&server))).await;
    call(&hub, arguments).await.assert_success();
    server.single_request()
}

async fn target(make: impl FnOnce(&Server) -> Rest, arguments: Value) -> String {
    send(make, arguments).await.target
}

#[tokio::test]
async fn each_value_is_encoded_for_its_place() {
    let seen = send(
        |server| {
            Rest::post(server.url("/v1/{city}/x-{n}?q={city}&fixed=a+b%26&list={list}"))
                .header("X-City", "<{city}>")
                .cookie("c", "{city}")
                .query("more", "{n}/{n}")
                .json(json!({"city": "{city}", "n": "{n}", "list": "{list}", "text": "n={n}", "deep": [{"n": "{n}"}, 1, "{{"]}))
        },
        json!({"city": "a/b c&d?#%2f=;", "n": 1.5, "list": ["x", 2]}),
    )
    .await;
    let city = "a%2Fb%20c%26d%3F%23%252f%3D%3B";
    let query = format!("q={city}&fixed=a%20b%26&list=x&list=2&more=1.5%2F1.5");
    assert_eq!(seen.target, format!("/v1/{city}/x-1.5?{query}"));
    assert_eq!(seen.header("x-city"), "<a/b c&d?#%2f=;>");
    assert_eq!(seen.header("cookie"), format!("c={city}"));
    assert_eq!(seen.header("content-type"), "application/json");
    let expected = json!({
        "city": "a/b c&d?#%2f=;", "n": 1.5, "list": ["x", 2], "text": "n=1.5", "deep": [{"n": 1.5}, 1, "{"],
    });
    assert_eq!(seen.json(), expected);
}

#[tokio::test]
async fn what_no_template_names_goes_into_the_query_or_the_body() {
    let arguments = || json!({"id": 7, "tags": ["a", "b"], "deep": {"k": [1]}, "off": null, "on": true});
    for method in ["GET", "HEAD", "DELETE"] {
        let seen = target(|server| Rest::new(method, server.url("/things/{id}")), arguments()).await;
        assert_eq!(seen, "/things/7?deep=%7B%22k%22%3A%5B1%5D%7D&on=true&tags=a&tags=b", "{method}");
    }
    for method in ["POST", "PUT", "PATCH"] {
        let seen = send(|server| Rest::new(method, server.url("/things/{id}")), arguments()).await;
        assert_eq!(seen.target, "/things/7", "{method}");
        assert_eq!(seen.json(), json!({"tags": ["a", "b"], "deep": {"k": [1]}, "on": true}), "{method}");
    }
    let seen = send(|server| Rest::post(server.url("/x")).json(json!({"kind": "big"})), json!({"n": 1})).await;
    assert_eq!(seen.json(), json!({"kind": "big", "n": 1}));
    let seen = send(|server| Rest::post(server.url("/x")), json!({})).await;
    assert_eq!((seen.body.len(), seen.header("content-type")), (0, ""));
}

#[tokio::test]
async fn an_absent_argument_takes_its_place_with_it_but_a_path_needs_it() {
    let make = |server: &Server| {
        Rest::post(server.url("/x?a={a}&b=x{a}&c={c}"))
            .header("X-A", "{a}")
            .json(json!({"a": "{a}", "c": "{c}", "l": ["{a}"]}))
    };
    for absent in [json!({"c": 1}), json!({"c": 1, "a": null})] {
        let seen = send(make, absent).await;
        assert_eq!((seen.target.as_str(), seen.headers.get("x-a")), ("/x?c=1", None));
        assert_eq!(seen.json(), json!({"c": 1, "l": []}));
    }
    let server = Server::echo().await;
    let hub = hub(allow_local(Rest::get(server.url("/{city}/now")))).await;
    let text = call(&hub, json!({})).await.assert_error(ErrorKind::ToolRefused);
    assert!(text.contains("`city`"), "{text}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn arguments_are_written_in_the_styles_of_openapi() {
    let colors = || json!(["blue", "black"]);
    let path = |style, explode| {
        move |server: &Server| {
            Rest::get(server.url("/c/{color}/end"))
                .parameter(Parameter::path("color").argument("which color").style(style).explode(explode))
        }
    };
    for (style, explode, expected) in [
        (Style::Simple, false, "blue,black"),
        (Style::Label, true, ".blue.black"),
        (Style::Matrix, false, ";color=blue,black"),
        (Style::Matrix, true, ";color=blue;color=black"),
    ] {
        let seen = target(path(style, explode), json!({"which color": colors()})).await;
        assert_eq!(seen, format!("/c/{expected}/end"), "{style:?} {explode}");
    }
    let query = |style, explode| {
        move |server: &Server| {
            Rest::get(server.url("/")).parameter(Parameter::query("color").style(style).explode(explode))
        }
    };
    for (style, explode, expected) in [
        (Style::Form, true, "color=blue&color=black"),
        (Style::Form, false, "color=blue,black"),
        (Style::SpaceDelimited, false, "color=blue%20black"),
        (Style::PipeDelimited, false, "color=blue%7Cblack"),
        (Style::Json, false, "color=%5B%22blue%22%2C%22black%22%5D"),
    ] {
        let seen = target(query(style, explode), json!({"color": colors()})).await;
        assert_eq!(seen, format!("/?{expected}"), "{style:?} {explode}");
    }
    let deep = query(Style::DeepObject, true);
    let seen = target(deep, json!({"color": {"R": 100, "more": {"G": [1, 2]}}})).await;
    assert_eq!(seen, "/?color%5BR%5D=100&color%5Bmore%5D%5BG%5D%5B0%5D=1&color%5Bmore%5D%5BG%5D%5B1%5D=2");
    let seen = send(
        |server| {
            Rest::get(server.url("/"))
                .parameter(Parameter::header("X-C"))
                .parameter(Parameter::cookie("k").explode(false))
        },
        json!({"X-C": ["a", "b"], "k": ["1", "2"]}),
    )
    .await;
    assert_eq!((seen.header("x-c"), seen.header("cookie")), ("a,b", "k=1,2"));
}

#[tokio::test]
async fn bodies_are_json_forms_or_text() {
    let body = |body: Body| move |server: &Server| Rest::post(server.url("/")).body(body);
    let seen = send(body(Body::Json(json!("{body}"))), json!({"body": [1, {"a": null}]})).await;
    assert_eq!(seen.json(), json!([1, {"a": null}]));
    let seen = send(body(Body::Json(json!("{body}"))), json!({})).await;
    assert_eq!((seen.body.len(), seen.header("content-type")), (0, ""));
    let form = Body::Form(vec![("a".into(), "{a}".into()), ("b".into(), "is {b}".into()), ("c".into(), "{c}".into())]);
    let seen = send(body(form), json!({"a": ["1", "&"], "b": "x y", "left": 3})).await;
    assert_eq!(seen.body, "a=1&a=%26&b=is%20x%20y&left=3");
    assert_eq!(seen.header("content-type"), "application/x-www-form-urlencoded");
    let fields = vec![FormField { name: "l".into(), style: Style::Form, explode: false }];
    let seen = send(
        body(Body::FormFromArgument { argument: "b".into(), fields }),
        json!({"b": {"l": [1, 2], "o": {"k": 1}, "m": [1, 2]}}),
    )
    .await;
    assert_eq!(seen.body, "l=1,2&m=1&m=2&o=%7B%22k%22%3A1%7D");
    let seen = send(body(Body::Text("note: {n}".into())), json!({"n": "ü"})).await;
    assert_eq!(
        (seen.body, seen.headers["content-type"].to_str().unwrap()),
        ("note: ü".into(), "text/plain; charset=utf-8")
    );
    let seen = send(
        |server| Rest::patch(server.url("/")).header("Content-Type", "application/merge-patch+json").json(json!("{b}")),
        json!({"b": {}}),
    )
    .await;
    assert_eq!(seen.header("content-type"), "application/merge-patch+json");
}

#[tokio::test]
async fn what_has_no_place_or_would_take_anothers_is_refused() {
    let server = Server::echo().await;
    let refused = async |rest: Rest, arguments: Value, fragment: &str| {
        let hub = hub(allow_local(rest)).await;
        let text = call(&hub, arguments).await.assert_error(ErrorKind::ToolRefused);
        assert!(text.contains(fragment), "{text}");
    };
    let key = toolhub_connect::rest::Auth::query_key("appid", toolhub_connect::rest::Secret::literal("k3y"));
    refused(Rest::get(server.url("/?units=metric")), json!({"units": "x"}), "`units`").await;
    refused(Rest::get(server.url("/")).auth(key.clone()), json!({"appid": "mine"}), "`appid`").await;
    let spread = Rest::get(server.url("/")).auth(key).parameter(Parameter::query("more"));
    refused(spread, json!({"more": {"appid": "mine"}}), "`appid`").await;
    refused(Rest::post(server.url("/")).json(json!({"a": 1})), json!({"a": 2}), "`a`").await;
    refused(Rest::post(server.url("/")).json(json!("{b}")), json!({"b": 1, "c": 2}), "`c`").await;
    refused(Rest::post(server.url("/")).body(Body::Text("{b}".into())), json!({"b": 1, "c": 2}), "`c`").await;
    for dots in [".", "..", "", "a/../b", "..\\x", "\0"] {
        refused(Rest::get(server.url("/a/{x}/b")), json!({"x": dots}), "`x`").await;
    }
    refused(Rest::get(server.url("/a/{x}{y}")), json!({"x": ".", "y": "."}), "`y`").await;
    for bad in ["a\r\nX-Evil: 1", "a\nb", "a\0b", "\u{7f}"] {
        refused(Rest::get(server.url("/")).header("X-A", "{x}"), json!({"x": bad}), "`x`").await;
    }
    assert!(server.requests().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn no_argument_takes_the_place_of_what_the_request_says_itself() {
    let server = Server::echo().await;
    let auth =
        |rest: Rest, location| rest.auth(Auth::ApiKey { location, name: "key".into(), key: Secret::literal("ours") });
    let form = Body::Form(vec![("kind".into(), "small".into()), ("n".into(), "{n}".into())]);
    let exploded = |parameter: Parameter, style| parameter.style(style).explode(true);
    let url = || server.url("/x?fixed=1");
    for (rest, arguments) in [
        (Rest::post(url()).body(form), json!({"n": 1, "kind": "big"})),
        (
            Rest::get(url()).parameter(exploded(Parameter::query("o"), Style::SpaceDelimited)),
            json!({"o": {"fixed": 2}}),
        ),
        (Rest::get(url()).parameter(exploded(Parameter::query("o"), Style::PipeDelimited)), json!({"o": {"fixed": 2}})),
        (auth(Rest::get(url()), KeyLocation::Query), json!({"key": "mine"})),
        (auth(Rest::get(url()).parameter(Parameter::cookie("o")), KeyLocation::Cookie), json!({"o": {"key": "mine"}})),
        (Rest::get(url()).cookie("own", "1").parameter(Parameter::cookie("o")), json!({"o": {"own": "2"}})),
    ] {
        let hub = hub(allow_local(rest)).await;
        let outcome = call(&hub, arguments.clone()).await;
        outcome.assert_error(ErrorKind::ToolRefused);
        assert!(outcome.error.unwrap().model.contains("the request sets it itself"), "{arguments}");
    }
    assert!(server.requests().is_empty());
    let fine = hub(allow_local(Rest::get(url()).cookie("own", "1").parameter(Parameter::cookie("o")))).await;
    call(&fine, json!({"o": {"a": 1}})).await.assert_success();
    assert_eq!(server.single_request().header("cookie"), "own=1; a=1");
}
