//! The scripted model over HTTP with the real clients: both wire formats, complete and streamed.

mod faults;
mod validation;

use std::time::Duration;

use serde_json::{Value, json};
use toolhub_agent::{
    Anthropic, CallResult, Message, Model, ModelError, OpenAi, Prompt, Reply, Script, StopReason, StreamPart, Stub,
};

/// Serves a script.
async fn serve_script(script: &str) -> Stub {
    let script = Script::parse(script).unwrap_or_else(|error| panic!("{error}"));
    Stub::serve(script, 0).await.unwrap()
}

/// Both clients.
fn models(stub: &Stub) -> [Box<dyn Model>; 2] {
    let wait = Duration::from_millis(1);
    [
        Box::new(OpenAi::new("m").base_url(stub.base_url()).first_wait(wait)),
        Box::new(Anthropic::new("m").base_url(stub.base_url()).first_wait(wait)),
    ]
}

async fn ask(model: &dyn Model, messages: &[Message], stream: bool) -> Result<Reply, ModelError> {
    let name = |name: &str| match model.format().as_str() {
        "openai" => json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}),
        _ => json!({"name": name, "input_schema": {"type": "object"}}),
    };
    let tools: Vec<Value> = ["clock", "weather"].map(name).into();
    let time = Duration::from_secs(30);
    let prompt =
        Prompt { system: "Be brief.", messages, tools: &tools, may_call: true, stream, timeout: time, trace: None };
    model.ask(prompt, &|_: StreamPart<'_>| {}).await
}

fn user(text: &str) -> Vec<Message> {
    vec![Message::User { content: text.into() }]
}

const SCRIPT: &str = r#"
    [[turn]]
    when = { user = '(?i)weather in (?<city>\w+)', tool_available = "weather" }
    say = "Let me see."
    call = [{ tool = "weather", args = { city = "$city", note = "a longer text, so that it comes in pieces: 北京 🙂" } }, { tool = "clock" }]
    [[turn]]
    when = { tool_result = "weather" }
    say = "It is ${result.temp} °C in $city, at ${results.clock}. This is a longer text in pieces: 北京 🙂"
    [default]
    say = "I can use: ${tools}"
"#;

#[tokio::test]
async fn a_conversation_goes_through_in_both_formats_whole_and_streamed() {
    let stub = serve_script(SCRIPT).await;
    for model in models(&stub) {
        for stream in [false, true] {
            let what = format!("{:?}, streamed: {stream}", model.format());
            let reply = ask(&*model, &user("hello"), stream).await.unwrap();
            assert_eq!((reply.text.as_str(), reply.stop), ("I can use: clock, weather", StopReason::End), "{what}");
            assert!(reply.usage.input_tokens > 10 && reply.usage.output_tokens > 5, "{what}: {:?}", reply.usage);

            let mut messages = user("weather in Oslo?");
            let reply = ask(&*model, &messages, stream).await.unwrap();
            assert_eq!((reply.text.as_str(), reply.stop), ("Let me see.", StopReason::Calls), "{what}");
            let calls: Vec<(&str, &Value)> =
                reply.calls.iter().map(|call| (call.tool.as_str(), &call.arguments)).collect();
            let note = "a longer text, so that it comes in pieces: 北京 🙂";
            assert_eq!(calls, [("weather", &json!({"city": "Oslo", "note": note})), ("clock", &json!({}))], "{what}");
            let result = |index: usize, text: &str| CallResult {
                id: reply.calls[index].id.clone(),
                call_id: None,
                tool: reply.calls[index].tool.clone(),
                text: text.into(),
                is_error: index == 1,
                images: vec![],
            };
            let results = vec![result(0, r#"{"temp": 4}"#), result(1, "noon")];
            messages.push(Message::Assistant {
                content: reply.text.clone(),
                reasoning: String::new(),
                calls: reply.calls.clone(),
            });
            messages.push(Message::Tool { results });
            let reply = ask(&*model, &messages, stream).await.unwrap();
            let text = "It is 4 °C in Oslo, at noon. This is a longer text in pieces: 北京 🙂";
            assert_eq!((reply.text.as_str(), reply.stop), (text, StopReason::End), "{what}");
        }
    }
}

#[tokio::test]
async fn a_streamed_text_comes_in_several_pieces() {
    let stub = serve_script(SCRIPT).await;
    for model in models(&stub) {
        let parts = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = parts.clone();
        let sink = move |_: StreamPart<'_>| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        let messages = user("hello");
        let time = Duration::from_secs(30);
        let prompt = Prompt {
            system: "",
            messages: &messages,
            tools: &[],
            may_call: true,
            stream: true,
            timeout: time,
            trace: None,
        };
        model.ask(prompt, &sink).await.unwrap();
        assert!(parts.load(std::sync::atomic::Ordering::Relaxed) > 1);
    }
}
