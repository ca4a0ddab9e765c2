//! The requests of imported tools, sent through a real hub to a recording server.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use toolhub_connect::{
    openapi::{self, Credential, ImportedDocument, Options, SchemeKind},
    rest::{Auth, Rest, Secret},
};
use toolhub_core::{ErrorKind, Status, ToolHub};

use super::{document, import};

/// A server that records every request, and responds `{"ok": true}`.
struct Recorder {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let shared = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { address, requests }
    }

    /// The only request since the last call of this.
    #[track_caller]
    fn take_request(&self) -> RecordedRequest {
        let mut requests = std::mem::take(&mut *self.requests.lock().unwrap());
        assert_eq!(requests.len(), 1, "{requests:?}");
        RecordedRequest(requests.remove(0))
    }
}

struct RecordedRequest(String);

impl RecordedRequest {
    /// Method and target.
    fn line(&self) -> &str {
        self.0.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1")
    }

    fn header(&self, name: &str) -> Option<&str> {
        let head = self.0.split("\r\n\r\n").next().unwrap_or_default();
        let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.body()).unwrap()
    }
}

async fn serve(mut stream: TcpStream, requests: Arc<Mutex<Vec<String>>>) {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let Ok(count @ 1..) = stream.read(&mut chunk).await else { return };
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() < length.unwrap_or(0) {
            continue;
        }
        requests.lock().unwrap().push(text);
        bytes.clear();
        let response = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"ok\": true}";
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_document_is_fetched_like_everything_else_behind_the_guard() {
    let recorder = Recorder::start().await;
    let url = format!("{}/openapi.json", recorder.address);
    // A local host must be allowed explicitly.
    let error = openapi::import_url(&url, &Options::default()).await.unwrap_err().to_string();
    assert!(error.starts_with("the document cannot be fetched: ") && error.contains("127.0.0.1"), "{error}");
    assert!(recorder.requests.lock().unwrap().is_empty());
    let text = openapi::fetch(Rest::get(&url).allow_host("127.0.0.1").header("X-Who", "me")).await.unwrap();
    assert_eq!(text, "{\"ok\": true}");
    let request = recorder.take_request();
    assert_eq!((request.line(), request.header("x-who")), ("GET /v1/openapi.json", Some("me")));
}

fn options(recorder: &Recorder) -> Options {
    Options { base_url: Some(recorder.address.clone()), trust: true, ..Options::default() }
}

async fn hub(imported: &ImportedDocument) -> ToolHub {
    let tools = imported.plans.iter().map(|plan| plan.tool_with_request(plan.request().allow_host("127.0.0.1")));
    ToolHub::builder().tools(tools.collect::<Vec<_>>()).build().await.unwrap_or_else(|error| panic!("{error}"))
}

/// Calls the only tool of a document and returns its request.
async fn call_and_record(paths: Value, arguments: Value) -> RecordedRequest {
    let recorder = Recorder::start().await;
    let imported = import(&document("3.0.3", paths), &options(&recorder));
    let hub = hub(&imported).await;
    let outcome = hub.call(imported.plans[0].name.as_str(), arguments).await;
    assert_eq!(outcome.output, json!({"ok": true}), "{}", outcome.model_text());
    recorder.take_request()
}

#[tokio::test]
async fn every_parameter_goes_to_its_place_in_its_style() {
    let string = json!({"type": "string"});
    let list = json!({"type": "array", "items": string});
    let object = json!({"type": "object", "properties": {"a": string, "b": string}});
    let parameter = |name: &str, location: &str, schema: &Value, extra: Value| {
        let mut parameter = json!({"name": name, "in": location, "schema": schema, "required": location == "path"});
        parameter.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        parameter
    };
    let request = call_and_record(
        json!({"/pets/{pet-id}/toys/{toys}.json": {"get": {"parameters": [
            parameter("pet-id", "path", &string, json!({})),
            parameter("toys", "path", &list, json!({})),
            parameter("tag", "query", &list, json!({})),
            parameter("near", "query", &list, json!({"style": "pipeDelimited", "explode": false})),
            parameter("short", "query", &list, json!({"explode": false})),
            parameter("filter", "query", &object, json!({"style": "deepObject", "explode": true})),
            parameter("where", "query", &json!({}), json!({"schema": null, "content": {"application/json": {"schema": object}}})),
            parameter("unused", "query", &string, json!({})),
            parameter("X-Mood", "header", &string, json!({})),
            parameter("crumb", "cookie", &string, json!({})),
        ]}}}),
        json!({
            "pet_id": "a/b ü", "toys": ["x", "y,z"], "tag": ["one", "t&wo"], "near": ["p", "q"], "short": ["r", "s"], "filter": {"a": "1", "b": "2"},
            "where": {"a": "="}, "X_Mood": "fine, thanks", "crumb": "c;d",
        }),
    )
    .await;
    let expected = "GET /v1/pets/a%2Fb%20%C3%BC/toys/x,y%2Cz.json?tag=one&tag=t%26wo&near=p%7Cq&short=r,s&filter%5Ba%5D=1&filter%5Bb%5D=2\
                    &where=%7B%22a%22%3A%22%3D%22%7D";
    assert_eq!(request.line(), expected);
    assert_eq!(request.header("X-Mood"), Some("fine, thanks"));
    assert_eq!(request.header("Cookie"), Some("crumb=c%3Bd"));
    assert_eq!(request.body(), "");
}

fn patch_with_body(kind: &str, content: Value, required: bool) -> Value {
    json!({"/pets": {"patch": {"requestBody": {"required": required, "content": {kind: content}}}}})
}

#[tokio::test]
async fn members_of_a_body_come_together_again() {
    let schema = json!({"schema": {"type": "object", "properties": {
        "name": {"type": "string", "nullable": true}, "x-age": {"type": "integer"}, "other": {"type": "string"},
    }}});
    let request =
        call_and_record(patch_with_body("application/json", schema.clone(), true), json!({"name": null, "x_age": 3}))
            .await;
    assert_eq!(request.line(), "PATCH /v1/pets");
    assert_eq!(request.header("content-type"), Some("application/json"));
    // A null member is sent; an absent one is not.
    assert_eq!(request.json(), json!({"name": null, "x-age": 3}));
    let request =
        call_and_record(patch_with_body("application/merge-patch+json", schema.clone(), true), json!({})).await;
    assert_eq!((request.header("content-type"), request.body()), (Some("application/merge-patch+json"), "{}"));
    let request = call_and_record(patch_with_body("application/json", schema, false), json!({})).await;
    assert_eq!((request.header("content-type"), request.body()), (None, ""));
}

#[tokio::test]
async fn a_body_may_be_anything_a_form_or_text() {
    let list = json!({"schema": {"type": "array", "items": {}}});
    let request =
        call_and_record(patch_with_body("application/json", list, true), json!({"body": [1, {"a": null}]})).await;
    assert_eq!(request.json(), json!([1, {"a": null}]));
    let form = json!({
        "schema": {"type": "object", "properties": {"a": {"type": "string"}, "many": {"type": "array"}, "deep": {"type": "object"}}},
        "encoding": {"deep": {"style": "deepObject", "explode": true}},
    });
    let arguments = json!({"a": "x y&z", "many": [1, 2], "deep": {"k": {"l": true}}});
    let request = call_and_record(patch_with_body("application/x-www-form-urlencoded", form, true), arguments).await;
    assert_eq!(request.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(request.body(), "a=x%20y%26z&deep%5Bk%5D%5Bl%5D=true&many=1&many=2");
    let request = call_and_record(
        patch_with_body("text/plain", json!({"schema": {"type": "string"}}), true),
        json!({"body": "Grüße"}),
    )
    .await;
    assert_eq!((request.header("content-type"), request.body()), (Some("text/plain; charset=utf-8"), "Grüße"));
}

#[tokio::test]
async fn what_a_path_always_asks_for_is_sent_too() {
    let request = call_and_record(json!({"/pets?action=list&x=%7B": {"get": {}}}), json!({})).await;
    assert_eq!(request.line(), "GET /v1/pets?action=list&x=%7B");
}

fn secured_document() -> Value {
    let mut document = document(
        "3.0.0",
        json!({
            "/header": {"get": {"operationId": "header", "security": [{"key": []}]}},
            "/both": {"get": {"operationId": "both", "security": [{"missing": []}, {"key": [], "cookie": []}]}},
            "/basic": {"get": {"operationId": "basic", "security": [{"basic": []}]}},
            "/bearer": {"get": {"operationId": "bearer"}},
            "/query": {"get": {"operationId": "query", "security": [{"query": []}]}},
            "/open": {"get": {"operationId": "open", "security": []}},
            "/other": {"get": {"operationId": "other", "security": [{"missing": []}]}},
        }),
    );
    document["security"] = json!([{"bearer": []}]);
    document["components"] = json!({"securitySchemes": {
        "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
        "query": {"type": "apiKey", "in": "query", "name": "k"},
        "cookie": {"type": "apiKey", "in": "cookie", "name": "crumb"},
        "basic": {"type": "http", "scheme": "Basic"},
        "bearer": {"type": "http", "scheme": "bearer"},
        "missing": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://auth.example/token", "scopes": {}}}},
        "unused": {"type": "mutualTLS"},
    }});
    document
}

#[tokio::test]
async fn requests_are_signed_as_their_operation_asks() {
    let recorder = Recorder::start().await;
    let token = |text: &str| Credential::Token(Secret::literal(text));
    let credentials = [
        ("key", token("in-header")),
        ("query", token("in query")),
        ("cookie", token("in-cookie")),
        ("basic", Credential::Password { user: "ann".into(), password: Secret::literal("pw") }),
        ("bearer", token("in-bearer")),
    ];
    let credentials = credentials.map(|(name, credential)| (name.to_owned(), credential)).into();
    let options = Options { credentials, auth: Some(Auth::bearer(Secret::literal("otherwise"))), ..options(&recorder) };
    let imported = import(&secured_document(), &options);
    let hub = hub(&imported).await;
    for (tool, line, header, expected) in [
        ("header", "GET /v1/header", "x-key", Some("in-header")),
        ("header", "GET /v1/header", "authorization", None),
        ("both", "GET /v1/both", "x-key", Some("in-header")),
        ("both", "GET /v1/both", "cookie", Some("crumb=in-cookie")),
        ("basic", "GET /v1/basic", "authorization", Some("Basic YW5uOnB3")),
        ("bearer", "GET /v1/bearer", "authorization", Some("Bearer in-bearer")),
        ("query", "GET /v1/query?k=in%20query", "authorization", None),
        ("open", "GET /v1/open", "authorization", None),
        ("other", "GET /v1/other", "authorization", Some("Bearer otherwise")),
    ] {
        let outcome = hub.call(tool, json!({})).await;
        assert_eq!(outcome.status, Status::Success, "{tool}: {}", outcome.model_text());
        let request = recorder.take_request();
        assert_eq!((request.line(), request.header(header)), (line, expected), "{tool}");
    }
}

#[tokio::test]
async fn a_key_that_a_document_describes_as_a_parameter_too_is_sent_once() {
    let recorder = Recorder::start().await;
    let mut document = secured_document();
    for (path, location, name) in [("/query", "query", "k"), ("/header", "header", "x-key"), ("/other", "query", "o")] {
        let parameter =
            |name: &str| json!({"name": name, "in": location, "required": true, "schema": {"type": "string"}});
        document["paths"][path]["get"]["parameters"] = json!([parameter(name), parameter("word")]);
    }
    let token = |text: &str| Credential::Token(Secret::literal(text));
    let credentials = [("query".to_owned(), token("q")), ("key".to_owned(), token("h"))].into();
    let auth = Some(Auth::query_key("o", Secret::literal("x")));
    let imported = import(&document, &Options { credentials, auth, ..options(&recorder) });
    let texts: Vec<String> = imported.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(texts.iter().filter(|text| text.contains("is the API key")).count(), 3, "{texts:?}");
    let hub = hub(&imported).await;
    for (tool, line, key) in [
        ("query", "GET /v1/query?word=w&k=q", None),
        ("header", "GET /v1/header", Some("h")),
        ("other", "GET /v1/other?word=w&o=x", None),
    ] {
        let outcome = hub.call(tool, json!({"word": "w"})).await;
        assert_eq!(outcome.status, Status::Success, "{tool}: {}", outcome.model_text());
        let request = recorder.take_request();
        assert_eq!((request.line(), request.header("x-key")), (line, key), "{tool}");
    }
}

#[test]
fn an_import_says_which_secrets_it_needs() {
    let options = Options { prefix: Some("pet".into()), ..Options::default() };
    let imported = import(&secured_document(), &options);
    let variables: Vec<_> =
        imported.schemes.iter().map(|scheme| (scheme.name.as_str(), scheme.variables.join(" "))).collect();
    let expected = [
        ("basic", "PET_BASIC_USER PET_BASIC_PASSWORD"),
        ("bearer", "PET_BEARER"),
        ("cookie", "PET_COOKIE"),
        ("key", "PET_KEY"),
        ("missing", "PET_MISSING_CLIENT_ID PET_MISSING_CLIENT_SECRET"),
        ("query", "PET_QUERY"),
    ];
    assert_eq!(variables, expected.map(|(name, variables)| (name, variables.to_owned())));
    assert_eq!(imported.schemes[3].kind, SchemeKind::HeaderKey("X-Key".into()));
    assert_eq!(imported.schemes[3].kind.description(), "a key, sent in the header `X-Key`");
    assert!(imported.schemes.iter().all(|scheme| !scheme.has_credential));
    let both = imported.plans.iter().find(|plan| plan.original_name == "both").unwrap();
    assert_eq!(both.security, [vec!["missing"], vec!["cookie", "key"]]);
}

#[test]
fn a_credential_for_nothing_or_of_the_wrong_kind_is_refused() {
    let check = |name: &str, credential: Credential, expected: &str| {
        let options = Options { credentials: [(name.to_owned(), credential)].into(), ..Options::default() };
        let error = toolhub_connect::openapi::import_value(&secured_document(), &options).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("kee", Credential::Token(Secret::literal("x")), "no security scheme `kee`; it has `basic`, `bearer`");
    check(
        "basic",
        Credential::Token(Secret::literal("x")),
        "`basic` has the wrong type; the scheme needs a user and a password",
    );
}

#[tokio::test]
async fn imported_tools_ask_before_they_change_anything_unless_trusted() {
    let recorder = Recorder::start().await;
    let paths = json!({"/a": {"get": {"operationId": "read"}, "post": {"operationId": "write"}}});
    let imported = import(&document("3.0.0", paths), &Options { trust: false, ..options(&recorder) });
    let hub = hub(&imported).await;
    assert_eq!(hub.call("read", json!({})).await.status, Status::Success);
    recorder.take_request();
    let refused = hub.call("write", json!({})).no_wait().await;
    assert_eq!(refused.error_kind(), Some(ErrorKind::ApprovalRequired), "{}", refused.model_text());
    assert!(recorder.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_address_for_tokens_may_be_relative_and_a_bad_one_costs_only_its_operations() {
    let client = Credential::Client { id: "me".into(), secret: Secret::literal("s3cr3t") };
    for (token_url, document_url, expected) in [
        ("/oauth/token", Some("https://a.example/docs/openapi.json"), Ok("https://a.example/oauth/token")),
        ("https://auth.example/token", None, Ok("https://auth.example/token")),
        ("/oauth/token", None, Err("`token_url` is not a valid URL")),
        ("ftp://auth.example/", None, Err("`token_url` has the scheme `ftp`")),
    ] {
        let mut document = secured_document();
        document["components"]["securitySchemes"]["missing"]["flows"]["clientCredentials"]["tokenUrl"] =
            token_url.into();
        let credentials = [("missing".to_owned(), client.clone())].into();
        let options = Options { credentials, document_url: document_url.map(str::to_owned), ..Options::default() };
        let imported = import(&document, &options);
        let (found, warnings) = (super::tool_names(&imported), super::warnings(&imported).join("; "));
        match expected {
            Ok(address) => {
                let scheme = imported.schemes.iter().find(|scheme| scheme.name == "missing").unwrap();
                assert!(scheme.kind.description().contains(address), "{:?}", scheme.kind);
                assert!(found.contains(&"other"), "{warnings}");
            }
            Err(fragment) => {
                assert!(!found.contains(&"other") && warnings.contains(fragment), "{found:?} {warnings}");
            }
        }
        assert!(found.contains(&"header"));
        hub(&imported).await;
    }
}
