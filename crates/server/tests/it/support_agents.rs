//! The shop with an agent in it, whose model does what the last message says.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolhub_agent::{
    AgentPlan, AgentService, AskedCall, Message, Model, ModelError, ModelFault, Prompt, Reply, Stop, StreamPart,
    StreamSink, ToolExecution, Usage,
};
use toolhub_core::{BoxFuture, Toolset, export::Format};
use toolhub_server::Server;

use crate::support_api::{ApiFixture, TEST_TIMEOUT, api_fixture, settings};

/// A model without a mind. `call NAME {…}` makes it ask for a call (several with ` and ` between them), `think` makes it wait for a
/// permit, `faint` makes it fall over; everything else it repeats. Of results it tells the text.
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
        "parrot"
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, hear: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let usage = Usage { input_tokens: 10, output_tokens: 5 };
            self.requests.add_permits(1);
            let text = match prompt.messages.last() {
                Some(Message::User { content }) if content.starts_with("call ") => {
                    let calls = content.split(" and ").enumerate().map(|(at, one)| {
                        let (_, rest) = one.split_once(' ').unwrap();
                        let (tool, arguments) = rest.split_once(' ').unwrap_or((rest, "{}"));
                        let arguments = serde_json::from_str(arguments).unwrap();
                        AskedCall {
                            id: format!("c{at}").into(),
                            tool: tool.into(),
                            arguments,
                            malformed: None,
                            extra: None,
                        }
                    });
                    return Ok(Reply { calls: calls.collect(), stop: Stop::Calls, usage, ..Reply::default() });
                }
                Some(Message::User { content }) if content == "faint" => {
                    return Err(ModelError::new(ModelFault::Failed, "the model fell over"));
                }
                Some(Message::User { content }) if content == "think" => {
                    self.release.acquire().await.unwrap().forget();
                    "thought".to_owned()
                }
                Some(Message::User { content }) => content.clone(),
                Some(Message::Tool { results }) => {
                    results.iter().map(|result| result.text.clone()).collect::<Vec<_>>().join(" and ")
                }
                other => panic!("asked with {other:?}"),
            };
            if prompt.stream {
                for piece in text.split_inclusive(' ') {
                    hear(StreamPart::Text(piece));
                }
            }
            Ok(Reply { text, usage, ..Reply::default() })
        })
    }
}

/// The shop, its agents, and what the model waits for.
pub(crate) struct AgentFixture {
    pub(crate) api: ApiFixture,
    pub(crate) agents: AgentService,
    pub(crate) release: Arc<Semaphore>,
    pub(crate) requests: Arc<Semaphore>,
}

/// Agents: `default` has every tool, `sums` only `add`, `outside` leaves the work to others.
pub(crate) async fn agent_fixture() -> AgentFixture {
    let mut shop = api_fixture().await;
    let parrot = EchoModel::default();
    let (gate, asked) = (parrot.release.clone(), parrot.requests.clone());
    let model: Arc<dyn Model> = Arc::new(parrot);
    let agents = AgentService::new(&shop.hub);
    agents.define("default", AgentPlan::new(model.clone()));
    agents.define("sums", AgentPlan::new(model.clone()).toolset(Toolset::from_patterns(["add"]).unwrap()));
    agents.define("outside", AgentPlan::new(model).execution(ToolExecution::External { deadline: TEST_TIMEOUT }));
    shop.router = Server::new(shop.hub.clone(), shop.store.clone(), settings()).agents(agents.clone()).router();
    AgentFixture { api: shop, agents, release: gate, requests: asked }
}

impl AgentFixture {
    /// Says something in a thread, and answers with what came back.
    pub(crate) async fn send_message(&self, thread: &str, content: &str) -> crate::support_api::Reply {
        self.api.post(&format!("/api/v1/threads/{thread}/messages"), json!({"content": content})).await
    }

    /// A run as it is once this is true of it.
    pub(crate) async fn run_until(&self, id: &str, is: impl Fn(&Value) -> bool) -> Value {
        let looked = tokio::time::timeout(TEST_TIMEOUT, async {
            loop {
                let run = self.api.get(&format!("/api/v1/runs/{id}")).await.expect_status(200);
                if is(&run) {
                    return run;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        });
        looked.await.expect("the run comes that far")
    }
}
