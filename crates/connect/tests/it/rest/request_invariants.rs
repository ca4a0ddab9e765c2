//! Property test: no argument value can change the host, the path structure, the query names or the headers of a request. The sent
//! requests are parsed by hyper and by the WHATWG URL parser.

use std::{collections::BTreeSet, sync::Mutex};

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Value, json};
use toolhub_connect::rest::{Parameter, Rest, Style};
use toolhub_core::ToolHub;
use toolhub_testkit::soak;
use url::Url;

use super::support::{RecordedRequest, Server, allow_local, call, hub};

/// Known attack strings, and random texts.
fn text() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "",
        ".",
        "..",
        "/",
        "//",
        "\\",
        "../..",
        "..%2f",
        "%2e%2e",
        "%2F",
        "%00",
        "a/b",
        "a?b=c",
        "a#b",
        "a&b=c",
        "a;b",
        "a=b",
        "@evil.example",
        ":80",
        "//evil.example",
        "http://evil.example/",
        "\r\nX-Evil: 1",
        "\n",
        "\r",
        "\0",
        "a b",
        "+",
        "%",
        "%zz",
        "\u{feff}",
        "ü",
        "日本",
        "\u{202e}",
        "{city}",
        "{{x}}",
        "\"",
        "'",
        "<>",
        "|",
        "^",
        "`",
        "\t",
        "\u{7f}",
        "\u{85}",
        "x\u{0}y",
    ]);
    let random = prop_oneof![any::<String>(), "[./\\\\%?#&=;: \r\n\t@+a-c]{0,12}"];
    prop_oneof![known.prop_map(str::to_owned), random]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![4 => text().prop_map(Value::String), 1 => any::<i64>().prop_map(Value::from), 1 => any::<bool>().prop_map(Value::from)]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => scalar(),
        1 => prop::collection::vec(scalar(), 0..4).prop_map(Value::from),
        1 => prop::collection::btree_map(text(), scalar(), 0..3).prop_map(|members| json!(members)),
    ]
}

const STYLES: [Style; 3] = [Style::Simple, Style::Label, Style::Matrix];

/// One tool per path style, each with placeholders in every location.
async fn style_hubs(server: &Server) -> Vec<ToolHub> {
    let mut hubs = Vec::new();
    for style in STYLES {
        let rest = Rest::post(server.url("/first/{p}/mid-{t}/last?fixed=1&q={q}"))
            .parameter(Parameter::path("p").style(style).explode(true))
            .header("X-Hole", "{h}")
            .header("X-Fixed", "1")
            .cookie("c", "{c}")
            .json(json!({"b": "{b}", "fixed": 1}));
        hubs.push(hub(allow_local(rest)).await);
    }
    hubs
}

fn header_names(seen: &RecordedRequest) -> BTreeSet<&str> {
    seen.headers.keys().map(hyper::header::HeaderName::as_str).collect()
}

fn check(server: &Server, seen: &RecordedRequest, arguments: &Value) {
    assert_eq!(seen.method, "POST");
    assert_eq!(seen.header("host"), server.address.to_string());
    let url = Url::parse(&format!("http://{}{}", server.address, seen.target)).unwrap();
    assert_eq!((url.host_str(), url.port()), (Some("127.0.0.1"), Some(server.address.port())));
    // The parser removes dot segments; there must be none.
    assert_eq!(&format!("{}?{}", url.path(), url.query().unwrap()), &seen.target);
    let segments: Vec<&str> = url.path_segments().unwrap().collect();
    let [first, p, mid, last] = segments[..] else { panic!("{segments:?}") };
    assert_eq!((first, last, mid.starts_with("mid-"), p.is_empty()), ("first", "last", true, false));
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    assert!(pairs.iter().all(|(name, _)| name == "fixed" || name == "q"), "{pairs:?}");
    assert_eq!(pairs.iter().filter(|(name, _)| name == "fixed").count(), 1);
    if let Some(text) = arguments["q"].as_str() {
        assert!(pairs.contains(&("q".into(), text.into())), "{pairs:?}");
    }
    let expected = [
        "accept",
        "accept-encoding",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "user-agent",
        "x-fixed",
        "x-hole",
    ];
    let unexpected: Vec<&str> = header_names(seen).into_iter().filter(|name| !expected.contains(name)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    assert!(seen.headers.get_all("x-hole").iter().count() <= 1 && seen.headers.get_all("cookie").iter().count() <= 1);
    let cookie = seen.header("cookie");
    assert!(cookie.split("; ").all(|pair| pair.is_empty() || pair.starts_with("c=")), "{cookie}");
    let body = seen.json();
    assert_eq!(body["fixed"], json!(1));
    assert_eq!((&body["b"], body.as_object().unwrap().len() <= 2), (&arguments["b"], true));
}

#[test]
fn no_argument_changes_where_a_request_goes_or_what_it_is() {
    let cases = soak(300, 20_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (server, hubs) = runtime.block_on(async {
        let server = Server::echo().await;
        let hubs = style_hubs(&server).await;
        (server, hubs)
    });
    let (sent, refused) = (Mutex::new(0), Mutex::new(0));
    let arguments = (value(), scalar(), value(), scalar(), scalar(), value());
    let mut runner = TestRunner::new(ProptestConfig { cases, ..ProptestConfig::default() });
    let run = runner.run(&(arguments, 0..STYLES.len()), |((p, t, q, h, c, b), style)| {
        let arguments = json!({"p": p, "t": t, "q": q, "h": h, "c": c, "b": b});
        let outcome = runtime.block_on(async { call(&hubs[style], arguments.clone()).await });
        let seen = server.take_requests();
        if outcome.is_success() {
            assert_eq!(seen.len(), 1);
            check(&server, &seen[0], &arguments);
            *sent.lock().unwrap() += 1;
        } else {
            assert!(seen.is_empty(), "a refused call sent a request");
            assert!(outcome.error.as_ref().unwrap().refused, "{outcome:?}");
            *refused.lock().unwrap() += 1;
        }
        Ok(())
    });
    run.unwrap();
    let (sent, refused) = (*sent.lock().unwrap(), *refused.lock().unwrap());
    assert!(sent > cases / 10 && refused > cases / 20, "too few of one kind: {sent} sent, {refused} refused");
}
