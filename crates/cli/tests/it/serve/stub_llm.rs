//! The scripted model as a process: it prints its address, answers, tells of each request, and ends when it is told to.

use serde_json::json;

use super::{line::Line, process::Process};
use crate::config::Folder;

#[test]
fn a_scripted_model_answers_until_it_is_told_to_stop() {
    let folder = Folder::new("stub-llm");
    folder.write("hello.toml", "[[turn]]\nwhen = { user = 'hello' }\nsay = 'Hello to you.'\n");
    for (signal, words) in
        [("TERM", ["stub-llm", "--script", "hello.toml", "--port", "0"].as_slice()), ("INT", &["stub-llm"])]
    {
        let stub = Process::start(folder.path(), words, &[]);
        let mut line = Line::to(stub.port);
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).to_string();
        let answer = line.ask("POST /v1/chat/completions", "authorization: Bearer sk-any\r\n", &body);
        let said = answer.json()["choices"][0]["message"]["content"].as_str().expect("a text").to_owned();
        let expected = if words.len() > 1 { "Hello to you." } else { "I am a scripted model" };
        assert!(answer.status == 200 && said.starts_with(expected), "{}", answer.text);
        stub.signal(signal);
        let port = stub.port;
        let (code, out, err) = stub.end();
        assert_eq!((code, out), (Some(0), format!("http://127.0.0.1:{port}/v1\n")));
        assert!(err.contains("openai, whole, 1 messages: line"), "{err}");
        assert!(!err.contains("sk-any") && !err.contains("hello"), "what was said and sent is not told: {err}");
    }
}
