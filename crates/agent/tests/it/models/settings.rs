//! Model clients from plain settings.

use serde_json::json;
use toolhub_agent::{
    Anthropic, Model as _, ModelFault, ModelSettings, OpenAi, Prompt, Provider, Secret, SettingsError, build_model,
};
use toolhub_core::{TraceContext, export::Format};

use super::{CannedResponse, KEY, MockServer, anthropic, ask, hello_messages, openai, prompt};

#[tokio::test]
async fn settings_become_a_model_of_their_provider() {
    let openai = json!({"choices": [{"message": {"content": "from openai"}}]});
    let anthropic = json!({"content": [{"type": "text", "text": "from anthropic"}]});
    let server =
        MockServer::start([CannedResponse::json(200, "", &openai), CannedResponse::json(200, "", &anthropic)]).await;
    for (provider, format, path) in [
        ("openai", Format::OpenAi, "POST /v1/chat/completions "),
        ("anthropic", Format::Anthropic, "POST /v1/messages "),
    ] {
        let mut settings = ModelSettings::new(provider.parse().unwrap(), "small");
        // With and without a trailing slash.
        settings.base_url = Some(server.url() + if provider == "openai" { "/" } else { "" });
        settings.max_tokens = Some(77);
        let model = build_model(settings).unwrap();
        assert_eq!((model.name(), model.format()), ("small", format));
        let (reply, _) = ask(&*model, prompt(&hello_messages())).await;
        assert_eq!(reply.unwrap().text, format!("from {provider}"));
        let request = server.requests().pop().unwrap();
        assert!(request.head.starts_with(path), "{}", request.head);
        assert!(!request.head.contains("authorization") && !request.head.contains("x-api-key"), "{}", request.head);
        assert_eq!((&request.body["model"], &request.body["max_tokens"]), (&json!("small"), &json!(77)));
    }
}

#[test]
fn settings_that_cannot_work_are_refused_before_anybody_is_asked() {
    let address = |url: &str| match OpenAi::new("m").base_url(url).check() {
        Err(SettingsError::Address { address, .. }) => address,
        other => panic!("{url}: {other:?}"),
    };
    assert_eq!(address("api.deepseek.com"), "api.deepseek.com");
    assert_eq!(address("ftp://example.com/v1"), "ftp://example.com/v1");
    assert_eq!(address("https://user:hunter2@example.com/v1?key=hunter2"), "example.com/v1");
    assert_eq!(Anthropic::new("m").key(Secret::new("two\nlines")).check(), Err(SettingsError::Key));
    assert_eq!(Anthropic::new("m").key(Secret::new(" one \n")).check(), Ok(()));
    assert!(matches!(build_model(ModelSettings::new(Provider::OpenAi, " ")), Err(SettingsError::NoModel)));
    let unknown = "gemini".parse::<Provider>().unwrap_err();
    assert!(unknown.to_string().contains("`openai`"), "{unknown}");
}

#[tokio::test]
async fn a_model_is_told_the_trace_it_is_asked_in() {
    let answer = || CannedResponse::json(200, "", &json!({"choices": [{"message": {"content": "ok"}}]}));
    let server = MockServer::start([answer(), answer(), answer()]).await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let messages = hello_messages();
    let request_head = async |state: &str| {
        let trace = TraceContext::parse(parent).unwrap().with_state(state);
        ask(&openai(&server), Prompt { trace: Some(&trace), ..prompt(&messages) }).await.0.unwrap();
        server.requests().pop().unwrap().head
    };
    let head = request_head("vendor=1").await;
    assert!(head.contains(&format!("traceparent: {parent}")) && head.contains("tracestate: vendor=1"), "{head}");
    // A caller's trace state cannot inject a header.
    let head = request_head("a\r\nx-evil: 1").await;
    assert!(head.contains(parent) && !head.contains("tracestate") && !head.contains("evil"), "{head}");
    ask(&openai(&server), prompt(&messages)).await.0.unwrap();
    assert!(!server.requests().pop().unwrap().head.contains("trace"));
}

#[tokio::test]
async fn a_server_says_which_models_it_has_without_one_being_asked() {
    let list = json!({"object": "list", "data": [{"id": "small"}, {"id": "large"}, {"name": "odd"}]});
    let server = MockServer::start([
        CannedResponse::json(200, "", &list),
        CannedResponse::json(200, "", &list),
        CannedResponse::json(404, "", &json!({"error": {"message": "no such page"}})),
        CannedResponse::body(200, "content-type: text/html\r\n", "<html>"),
        CannedResponse::json(401, "", &json!({"error": {"message": "no such key"}})),
    ])
    .await;
    let names = Some(vec!["small".to_owned(), "large".to_owned()]);
    assert_eq!(openai(&server).list_models().await, Ok(names.clone()));
    assert_eq!(anthropic(&server).list_models().await, Ok(names));
    // The server is reachable, but has no model list.
    assert_eq!(openai(&server).list_models().await, Ok(None));
    assert_eq!(openai(&server).list_models().await, Ok(None));
    let refused = openai(&server).list_models().await.unwrap_err();
    assert_eq!((refused.fault, refused.status), (ModelFault::Refused, Some(401)));
    let unreachable = openai(&server).list_models().await.unwrap_err();
    assert_eq!(unreachable.fault, ModelFault::Unreachable);
    let heads: Vec<String> = server.requests().into_iter().map(|request| request.head).collect();
    assert!(heads.iter().all(|head| head.starts_with("GET /v1/models HTTP/1.1")), "{heads:?}");
    assert!(heads[0].contains(&format!("authorization: Bearer {KEY}")), "{}", heads[0]);
    assert!(heads[1].contains(&format!("x-api-key: {KEY}")) && heads[1].contains("anthropic-version"), "{}", heads[1]);
}
