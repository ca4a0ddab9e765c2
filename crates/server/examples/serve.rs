//! A server with a few tools, for checks that need a real one. Prints its address, and a key with `--keys`; stops when
//! its standard input is closed.

use std::{error::Error, io::Read, sync::Arc};

use serde_json::{Value, json};
use toolhub_agent::{
    AgentDefinition, AgentService, Message, Model, ModelError, Prompt, Reply, StopReason, StreamPart, StreamSink,
    ToolCall,
};
use toolhub_core::{
    BoxFuture, CallContext, JsonReply, RateLimit, StoreRole, ToolError, ToolHub,
    backend::Memory,
    dynamic, dynamic_stateful,
    export::Format,
    ids::{Tenant, ThreadId},
};
use toolhub_server::{
    Auth, Backup, HostControl, HostControlError, KeySetting, NewKey, ReloadReport, Scope, Server, Settings,
    ToolChangeError,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Arc::new(Memory::default());
    let hub = tools(ToolHub::builder().shared_store(store.clone())).build().await?;
    hub.create_thread(&Tenant::default(), Some(ThreadId::new("demo")?)).await?;
    let mut settings = Settings::default();
    settings.port = 0;
    let mut key = None;
    if std::env::args().any(|argument| argument == "--keys") {
        let new = NewKey::make()?;
        settings.auth = Auth::Keys(vec![KeySetting {
            name: "check".into(),
            tenant: "main".into(),
            hash: new.hash,
            scopes: Scope::ALL.to_vec(),
            expires: None,
        }]);
        key = Some(new.key);
    }
    let host_control = Arc::new(EchoHost(hub.clone()));
    let agents = AgentService::new(&hub);
    agents.define("default", AgentDefinition::new(Arc::new(WeatherModel)));
    let bound = Server::with_host_control(hub, store, settings, host_control).agents(agents).bind().await?;
    println!("http://{}", bound.address());
    if let Some(key) = key {
        println!("{key}");
    }
    let (stop, stopped) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || stop.send(std::io::stdin().read_to_end(&mut Vec::new())));
    bound.serve(async { drop(stopped.await) }).await?;
    Ok(())
}

fn tools(hub: toolhub_core::HubBuilder) -> toolhub_core::HubBuilder {
    let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let any = json!({"type": "object"});
    let weather =
        dynamic("weather", city, async |input: Value, _: CallContext| Ok(json!({"city": input["city"], "celsius": 4})));
    let notes = dynamic_stateful("notes", "notes", text, async |input: Value, _: CallContext| {
        let mut notes = input["state"]["notes"].as_array().cloned().unwrap_or_default();
        notes.push(input["text"].clone());
        Ok::<_, ToolError>(JsonReply::with_state(json!(notes.len()), json!({"notes": notes})))
    });
    let broken =
        dynamic("broken", any.clone(), async |_: Value, _: CallContext| Err(ToolError::new("the wire is cut")));
    let order = dynamic("order", any.clone(), async |input: Value, _: CallContext| Ok(input));
    let rare = dynamic("rare", any.clone(), async |_: Value, _: CallContext| Ok(json!(1)));
    let report = dynamic("report", any, async |_: Value, _: CallContext| Ok(json!("cold")));
    hub.tool(weather.description("The weather in a city").read_only().tag("weather"))
        .tool(notes.description("Writes a line down"))
        .tool(broken.description("Fails"))
        .tool(order.description("Orders something, if a person agrees").confirm())
        .tool(rare.description("May be called twice an hour").rate_limit(RateLimit::per_hour(2)))
        .tool(report.description("Comes after `weather`").read_only().after("weather"))
}

/// A model that understands one sentence, `weather in …`, and repeats the result of its call.
struct WeatherModel;

impl Model for WeatherModel {
    fn name(&self) -> &str {
        "weatherman"
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, sink: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let mut reply = Reply::default();
        match prompt.messages.last() {
            Some(Message::User { content }) => match content.split_once("weather in ") {
                Some((_, city)) => {
                    let (arguments, stop) = (json!({ "city": city }), StopReason::Calls);
                    let call =
                        ToolCall { id: "c1".into(), tool: "weather".into(), arguments, malformed: None, extra: None };
                    reply = Reply { calls: vec![call], stop, ..reply };
                }
                None => reply.text = "Ask me for the weather in a city.".into(),
            },
            Some(Message::Tool { results }) => {
                let texts: Vec<&str> = results.iter().map(|result| result.text.as_str()).collect();
                reply.text = format!("The station says {}", texts.join(", "));
            }
            _ => {}
        }
        for word in reply.text.split_inclusive(' ') {
            sink(StreamPart::Text(word));
        }
        Box::pin(async { Ok(reply) })
    }
}

/// A host program whose tools return their arguments.
struct EchoHost(ToolHub);

impl EchoHost {
    fn register_echo(&self, tool: &Value) -> Result<(), ToolChangeError> {
        let refuse = |why: &str| ToolChangeError::Refused(why.into());
        let name = tool["name"].as_str().ok_or_else(|| refuse("a tool needs a name"))?;
        if tool["builtin"] != "echo" {
            return Err(refuse("the only builtin is `echo`"));
        }
        let echo = dynamic(name, json!({"type": "object"}), async |input: Value, _: CallContext| Ok(input));
        let echo = echo.category("created through the API");
        self.0.register(echo).map_err(|_| {
            if self.is_created_over_api(name) { ToolChangeError::NameTaken } else { ToolChangeError::Configured }
        })
    }

    fn is_created_over_api(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|tool| tool.definition.metadata.category.is_some())
    }
}

impl HostControl for EchoHost {
    fn config(&self) -> Value {
        json!({"server": {"host": "127.0.0.1"}})
    }

    fn reload(&self) -> BoxFuture<'_, Result<ReloadReport, HostControlError>> {
        Box::pin(async { Ok(ReloadReport::default()) })
    }

    fn backup(&self, store: StoreRole) -> BoxFuture<'_, Result<Backup, HostControlError>> {
        Box::pin(async move { Ok(Backup { path: "copy.db".into(), store, bytes: 0, sha256: String::new() }) })
    }

    fn create_tool(&self, tool: Value) -> BoxFuture<'_, Result<(), ToolChangeError>> {
        let result = self.register_echo(&tool);
        Box::pin(async { result })
    }

    fn replace_tool<'a>(&'a self, name: &'a str, tool: Value) -> BoxFuture<'a, Result<(), ToolChangeError>> {
        Box::pin(async move {
            self.remove_tool(name).await?;
            self.register_echo(&tool)
        })
    }

    fn remove_tool<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ToolChangeError>> {
        Box::pin(async move {
            if !self.is_created_over_api(name) {
                return Err(ToolChangeError::Configured);
            }
            self.0.unregister(name).await;
            Ok(())
        })
    }
}
