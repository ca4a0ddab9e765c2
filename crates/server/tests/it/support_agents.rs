//! The API fixture with agents whose model follows instructions in the last message.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolhub_agent::{
    AgentDefinition, AgentService, Message, Model, ModelError, ModelFault, Prompt, Reply, StopReason, StreamPart,
    StreamSink, ToolCall, ToolExecution, Usage,
};
use toolhub_core::{BoxFuture, Toolset, export::Format};
use toolhub_server::Server;

use crate::support_api::{ApiFixture, TEST_TIMEOUT, api_fixture, settings};

/// A model that follows instructions: `call NAME {…}` requests a call (several are separated by ` and `), `think` waits
/// for a permit, `faint` fails; anything else is echoed. It repeats the text of tool results.
pub(crate) struct EchoModel {
    pub(crate) release: Arc<Semaphore>,
    pub(crate) requests: Arc<Semaphore>,
}

impl Default for EchoModel {
    fn default() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self { release: none(), requests: none() }
    }
}

impl Model for EchoModel {
    fn name(&self) -> &str {
        "echo"
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, sink: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let usage = Usage { input_tokens: 10, output_tokens: 5 };
            self.requests.add_permits(1);
            let text = match prompt.messages.last() {
                Some(Message::User { content }) if content.starts_with("call ") => {
                    let calls = content.split(" and ").enumerate().map(|(at, one)| {
                        let (_, rest) = one.split_once(' ').unwrap();
                        let (tool, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
                        let arguments = serde_json::from_str(arguments).unwrap();
                        ToolCall {
                            id: format!("c{at}").into(),
                            tool: tool.into(),
                            arguments,
                            malformed: None,
                            extra: None,
                        }
                    });
                    return Ok(Reply { calls: calls.collect(), stop: StopReason::Calls, usage, ..Reply::default() });
                }
                Some(Message::User { content }) if content == "faint" => {
                    return Err(ModelError::new(ModelFault::Failed, "the model failed"));
                }
                Some(Message::User { content }) if content == "think" => {
                    self.release.acquire().await.unwrap().forget();
                    "thought".to_owned()
                }
                Some(Message::User { content }) => content.clone(),
                Some(Message::Tool { results }) => {
                    results.iter().map(|result| result.text.clone()).collect::<Vec<_>>().join(" and ")
                }
                other => panic!("unexpected last message {other:?}"),
            };
            if prompt.stream {
                for piece in text.split_inclusive(' ') {
                    sink(StreamPart::Text(piece));
                }
            }
            Ok(Reply { text, usage, ..Reply::default() })
        })
    }
}

/// The API fixture, its agents, and the semaphores of the model.
pub(crate) struct AgentFixture {
    pub(crate) api: ApiFixture,
    pub(crate) agents: AgentService,
    pub(crate) release: Arc<Semaphore>,
    pub(crate) requests: Arc<Semaphore>,
}

/// Agents: `default` has all tools, `sums` only `add`, `outside` executes its calls externally.
pub(crate) async fn agent_fixture() -> AgentFixture {
    let mut api = api_fixture().await;
    let echo = EchoModel::default();
    let (release, requests) = (echo.release.clone(), echo.requests.clone());
    let model: Arc<dyn Model> = Arc::new(echo);
    let agents = AgentService::new(&api.hub);
    agents.define("default", AgentDefinition::new(model.clone()));
    agents.define("sums", AgentDefinition::new(model.clone()).toolset(Toolset::from_patterns(["add"]).unwrap()));
    agents.define("outside", AgentDefinition::new(model).execution(ToolExecution::External { deadline: TEST_TIMEOUT }));
    api.router = Server::new(api.hub.clone(), api.store.clone(), settings()).agents(agents.clone()).router();
    AgentFixture { api, agents, release, requests }
}

impl AgentFixture {
    /// Sends a message to a thread, and returns the response.
    pub(crate) async fn send_message(&self, thread: &str, content: &str) -> crate::support_api::Reply {
        self.api.post(&format!("/api/v1/threads/{thread}/messages"), json!({"content": content})).await
    }

    /// Polls a run until the condition is true.
    pub(crate) async fn run_until(&self, id: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let polled = tokio::time::timeout(TEST_TIMEOUT, async {
            loop {
                let run = self.api.get(&format!("/api/v1/runs/{id}")).await.expect_status(200);
                if condition(&run) {
                    return run;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        });
        polled.await.expect("the run did not reach the condition")
    }
}
