//! The scripted model as a process: it prints its URL, answers, logs each request, and stops on a signal.

use serde_json::json;
use toolhub_testkit::TempFolder;

use super::{connection::HttpConnection, process::Process};
use crate::config::run_toolhub;

#[test]
fn a_scripted_model_answers_until_it_is_told_to_stop() {
    let folder = TempFolder::new();
    folder.write("hello.toml", "[[turn]]\nwhen = { user = 'hello' }\nsay = 'Hello to you.'\n");
    for (signal, arguments) in
        [("TERM", ["stub-llm", "--script", "hello.toml", "--port", "0"].as_slice()), ("INT", &["stub-llm"])]
    {
        let stub = Process::start(folder.path(), arguments, &[]);
        let mut connection = HttpConnection::connect(stub.port);
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).to_string();
        let response = connection.send("POST /v1/chat/completions", "authorization: Bearer sk-any\r\n", &body);
        let content = response.json()["choices"][0]["message"]["content"].as_str().expect("a text").to_owned();
        let expected = if arguments.len() > 1 { "Hello to you." } else { "I am a scripted model" };
        assert!(response.status == 200 && content.starts_with(expected), "{}", response.text);
        stub.signal(signal);
        let port = stub.port;
        let (code, out, err) = stub.wait_for_exit();
        assert_eq!((code, out), (Some(0), format!("http://127.0.0.1:{port}/v1\n")));
        assert!(err.contains("openai, complete, 1 messages: line"), "{err}");
        assert!(!err.contains("sk-any") && !err.contains("hello"), "contents and keys are not logged: {err}");
    }
}

#[test]
fn the_doctor_says_whether_the_model_is_to_be_had() {
    let folder = TempFolder::new();
    let stub = Process::start(folder.path(), &["stub-llm"], &[]);
    let base = format!("http://127.0.0.1:{}/v1", stub.port);
    let check = |provider: &str, model: &str, more: &str| {
        let llm = format!("[llm]\nprovider = {provider:?}\nmodel = {model:?}\n{more}");
        folder.write("toolhub.toml", &format!("[server]\nport = 1\n{llm}"));
        let ran = run_toolhub(folder.path(), &["doctor", "--json"], &[]);
        let document: serde_json::Value = serde_json::from_str(&ran.out).expect("a document");
        let checks = document["checks"].as_array().expect("checks").clone();
        let found = checks.into_iter().find(|check| check["name"] == "model").expect("the model is looked at");
        (ran.code, found["status"].as_str().unwrap().to_owned(), format!("{} {}", found["detail"], found["fix"]))
    };
    let endpoint = format!("base_url = {base:?}\napi_key = \"sk-any\"\n");
    for provider in ["openai", "anthropic"] {
        let (_, status, words) = check(provider, "scripted", &endpoint);
        assert_eq!(status, "ok", "{provider}: {words}");
    }
    let (_, status, words) = check("openai", "scriptd", &endpoint);
    assert!(status == "warning" && words.contains("`scriptd`") && words.contains("did you mean"), "{status}: {words}");
    let (_, status, words) = check("scripted", "demo", "");
    assert!(status == "ok" && words.contains("script"), "{status}: {words}");
    drop(stub);
    let (code, status, words) = check("openai", "scripted", &endpoint);
    assert!(code == 4 && status == "error" && words.contains("base_url"), "{code} {status}: {words}");
    assert!(!words.contains("sk-any"), "{words}");
}
