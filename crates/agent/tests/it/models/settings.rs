//! Models from plain settings.

use serde_json::json;
use toolhub_agent::{Anthropic, ModelSettings, OpenAi, Provider, Secret, SettingsError, connect};
use toolhub_core::export::Format;

use super::{Answer, Server, ask, hello, prompt};

#[tokio::test]
async fn settings_become_a_model_of_their_provider() {
    let openai = json!({"choices": [{"message": {"content": "from openai"}}]});
    let anthropic = json!({"content": [{"type": "text", "text": "from anthropic"}]});
    let server = Server::start([Answer::json(200, "", &openai), Answer::json(200, "", &anthropic)]).await;
    for (word, format, path) in [
        ("openai", Format::OpenAi, "POST /v1/chat/completions "),
        ("anthropic", Format::Anthropic, "POST /v1/messages "),
    ] {
        let mut settings = ModelSettings::new(word.parse().unwrap(), "small");
        // With a slash or without one.
        settings.base_url = Some(server.url() + if word == "openai" { "/" } else { "" });
        settings.max_tokens = Some(77);
        let model = connect(settings).unwrap();
        assert_eq!((model.name(), model.format()), ("small", format));
        let (reply, _) = ask(&*model, prompt(&hello())).await;
        assert_eq!(reply.unwrap().text, format!("from {word}"));
        let asked = server.asked().pop().unwrap();
        assert!(asked.head.starts_with(path), "{}", asked.head);
        assert!(!asked.head.contains("authorization") && !asked.head.contains("x-api-key"), "{}", asked.head);
        assert_eq!((&asked.body["model"], &asked.body["max_tokens"]), (&json!("small"), &json!(77)));
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
    assert!(matches!(connect(ModelSettings::new(Provider::OpenAi, " ")), Err(SettingsError::NoModel)));
    let unknown = "gemini".parse::<Provider>().unwrap_err();
    assert!(unknown.to_string().contains("`openai`"), "{unknown}");
}
