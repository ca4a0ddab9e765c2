//! The shop with an agent in it, whose model does what the last message says.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolhub_agent::{
    AgentPlan, AgentService, AskedCall, Hear, Heard, Message, Model, ModelError, ModelFault, Prompt, Reply, Stop,
    ToolExecution, Usage,
};
use toolhub_core::{BoxFuture, Toolset, export::Format};
use toolhub_server::Server;

use crate::support_api::{LONG, Shop, settings, shop};

/// A model without a mind. `call NAME {…}` makes it ask for a call (several with ` and ` between them), `think` makes it wait for a
/// permit, `faint` makes it fall over; everything else it repeats. Of results it tells the text.
pub(crate) struct Parrot {
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) asked: Arc<Semaphore>,
}

impl Default for Parrot {
    fn default() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self { gate: none(), asked: none() }
    }
}

impl Model for Parrot {
    fn name(&self) -> &str {
        "parrot"
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, hear: &'a Hear) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let usage = Usage { input_tokens: 10, output_tokens: 5 };
            self.asked.add_permits(1);
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
                    self.gate.acquire().await.unwrap().forget();
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
                    hear(Heard::Text(piece));
                }
            }
            Ok(Reply { text, usage, ..Reply::default() })
        })
    }
}

/// The shop, its agents, and what the model waits for.
pub(crate) struct Cafe {
    pub(crate) shop: Shop,
    pub(crate) agents: AgentService,
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) asked: Arc<Semaphore>,
}

/// Agents: `default` has every tool, `sums` only `add`, `outside` leaves the work to others.
pub(crate) async fn cafe() -> Cafe {
    let mut shop = shop().await;
    let parrot = Parrot::default();
    let (gate, asked) = (parrot.gate.clone(), parrot.asked.clone());
    let model: Arc<dyn Model> = Arc::new(parrot);
    let agents = AgentService::new(&shop.hub);
    agents.define("default", AgentPlan::new(model.clone()));
    agents.define("sums", AgentPlan::new(model.clone()).toolset(Toolset::of(["add"]).unwrap()));
    agents.define("outside", AgentPlan::new(model).execution(ToolExecution::External { deadline: LONG }));
    shop.router = Server::new(shop.hub.clone(), shop.store.clone(), settings()).agents(agents.clone()).router();
    Cafe { shop, agents, gate, asked }
}

impl Cafe {
    /// Says something in a thread, and answers with what came back.
    pub(crate) async fn say(&self, thread: &str, content: &str) -> crate::support_api::Reply {
        self.shop.post(&format!("/api/v1/threads/{thread}/messages"), json!({"content": content})).await
    }

    /// A run as it is once this is true of it.
    pub(crate) async fn run_until(&self, id: &str, is: impl Fn(&Value) -> bool) -> Value {
        let looked = tokio::time::timeout(LONG, async {
            loop {
                let run = self.shop.get(&format!("/api/v1/runs/{id}")).await.is(200);
                if is(&run) {
                    return run;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        });
        looked.await.expect("the run comes that far")
    }
}
