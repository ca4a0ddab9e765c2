//! Fault injection of the scripted model.

use std::time::Duration;

use toolhub_agent::{Anthropic, Message, Model, ModelFault, OpenAi, Reply};

use super::{ask, models, serve_script, user};

fn provider_name(model: &dyn Model) -> &'static str {
    model.format().as_str()
}

/// The results of each client without retries, complete and streamed.
async fn collect_faults(script: &str) -> Vec<(Result<Reply, ModelFault>, Option<u16>)> {
    let mut ends = Vec::new();
    for stream in [false, true] {
        let stub = serve_script(script).await;
        let models: [Box<dyn Model>; 2] = [
            Box::new(OpenAi::new("m").base_url(stub.base_url()).retries(0)),
            Box::new(Anthropic::new("m").base_url(stub.base_url()).retries(0)),
        ];
        for model in models {
            let end = ask(&*model, &user("go"), stream).await;
            let status = end.as_ref().err().and_then(|error| error.status);
            ends.push((end.map_err(|error| error.fault), status));
        }
    }
    ends
}

#[tokio::test]
async fn errors_have_the_status_of_the_script() {
    for (status, fault) in [
        (429, ModelFault::RateLimited),
        (500, ModelFault::Failed),
        (529, ModelFault::Failed),
        (401, ModelFault::Refused),
    ] {
        let script = format!("[default]\nfault = {{ status = {status} }}");
        for (end, reported) in collect_faults(&script).await {
            assert_eq!((end, reported), (Err(fault), Some(status)));
        }
    }
}

#[tokio::test]
async fn an_error_that_passes_is_survived_by_asking_again() {
    for stream in [false, true] {
        let script = "[[turn]]\nsay = 'at last'\nfault = { status = 429, retry_after = '1ms', times = 4 }";
        let stub = serve_script(script).await;
        for model in models(&stub) {
            // The two clients share the four faults.
            let reply = ask(&*model, &user("go"), stream).await.unwrap();
            assert_eq!(reply.text, "at last", "{}", provider_name(&*model));
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_is_no_answer() {
    let say = "[[turn]]\nsay = 'a text that is long enough to be cut somewhere'\nfault = { cut = true }";
    let call = "[[turn]]\ncall = [{ tool = 'weather', args = { city = 'Oslo' } }]\nfault = { cut = true }";
    for script in [say, call] {
        for (end, _) in collect_faults(script).await {
            assert_eq!(end, Err(ModelFault::Broken), "{script}");
        }
    }
    let stub = serve_script(&say.replace("cut = true", "cut = true, times = 2")).await;
    for model in models(&stub) {
        let reply = ask(&*model, &user("go"), true).await.unwrap();
        assert_eq!(reply.text, "a text that is long enough to be cut somewhere");
    }
}

#[tokio::test]
async fn arguments_that_are_no_json_are_told_as_they_came() {
    let script = "[[turn]]\ncall = [{ tool = 'weather', args = { city = 'Oslo' } }]\nfault = { malformed = true }";
    for (end, _) in collect_faults(script).await {
        let calls = end.unwrap().calls;
        let malformed = calls[0].malformed.as_deref().unwrap_or_default();
        assert!(malformed.contains("Oslo"), "{calls:?}");
        assert_eq!(calls[0].arguments, serde_json::json!({}));
    }
}

#[tokio::test]
async fn a_slow_answer_can_be_too_slow() {
    let stub = serve_script(
        "[[turn]]\nwhen = { user = 'slow' }\nsay = 'x'\nfault = { slow = '10m' }\n[default]\nsay = 'fast'",
    )
    .await;
    let model = OpenAi::new("m").base_url(stub.base_url()).request_timeout(Duration::from_millis(50)).retries(0);
    let slow: Vec<Message> = user("slow");
    assert_eq!(ask(&model, &slow, true).await.unwrap_err().fault, ModelFault::Timeout);
    let model = model.request_timeout(Duration::from_secs(30));
    assert_eq!(ask(&model, &user("quick"), true).await.unwrap().text, "fast");
}
