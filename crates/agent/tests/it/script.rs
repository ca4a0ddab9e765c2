//! Replies of a scripted model, and the problems of invalid scripts.

mod demo;
mod docs;
mod invalid;

use serde_json::{Value, json};
use toolhub_agent::{CallResult, Conversation, Message, Script, ToolCall};

/// A conversation with a script; the test provides the results of its calls.
pub(crate) struct ScriptedConversation<'a> {
    script: &'a Script,
    pub(crate) conversation: Conversation,
}

impl<'a> ScriptedConversation<'a> {
    pub(crate) fn new(script: &'a Script, tools: &[&str]) -> Self {
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        Self { script, conversation: Conversation { tools, may_call: true, ..Conversation::default() } }
    }

    /// Sends a user message; returns the text and the calls as `tool{arguments}`.
    pub(crate) fn user(&mut self, text: &str) -> String {
        self.conversation.messages.push(Message::User { content: text.into() });
        self.answer()
    }

    /// Sends the results of the requested calls.
    pub(crate) fn results(&mut self, texts: &[&str]) -> String {
        let Some(Message::Assistant { calls, .. }) = self.conversation.messages.last() else {
            panic!("the script requested no calls")
        };
        assert_eq!(calls.len(), texts.len(), "a result for each call");
        let result = |(call, text): (&ToolCall, &&str)| CallResult {
            id: call.id.clone(),
            call_id: None,
            tool: call.tool.clone(),
            text: (*text).into(),
            is_error: false,
            images: vec![],
        };
        let results = calls.iter().zip(texts).map(result).collect();
        self.conversation.messages.push(Message::Tool { results });
        self.answer()
    }

    fn answer(&mut self) -> String {
        let reply = self.script.answer(&self.conversation);
        let calls: Vec<ToolCall> = reply.calls.iter().map(to_tool_call).collect();
        let mut text = reply.text.clone();
        for call in &calls {
            text += &format!("{}{}", call.tool, call.arguments);
        }
        self.conversation.messages.push(Message::Assistant { content: reply.text, reasoning: String::new(), calls });
        text
    }
}

fn to_tool_call((id, tool, arguments): &(String, String, Value)) -> ToolCall {
    let id = format!("call_{id}").into();
    ToolCall { id, tool: tool.as_str().into(), arguments: arguments.clone(), malformed: None, extra: None }
}

fn parse_script(text: &str) -> Script {
    Script::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const WEATHER: &str = r#"
    [[turn]]
    when = { user = '(?i)weather in (?<city>\w+)', tool_available = "weather" }
    call = [{ tool = "weather", args = { city = "$city", days = 2, deep = { list = ["in $city"] } } }]

    [[turn]]
    when = { tool_result = "weather" }
    say = "It is ${result.temp} °C in $city."

    [[turn]]
    when = { tool_result = "weather" }
    say = "No weather: ${result}"

    [[turn]]
    when = { user = "again" }
    say = "It was ${results.weather.temp} °C in $city."

    [[turn]]
    when = { tool_missing = "report" }
    say = "report is not available yet: ${unavailable.report}"

    [default]
    say = "I can use: ${tools}"
"#;

#[test]
fn a_turn_calls_once_and_what_came_of_it_is_said() {
    let script = parse_script(WEATHER);
    let mut chat = ScriptedConversation::new(&script, &["weather", "report"]);
    let call = r#"weather{"city":"Oslo","days":2,"deep":{"list":["in Oslo"]}}"#;
    assert_eq!(chat.user("Weather in Oslo, please"), call);
    assert_eq!(chat.results(&[r#"{"temp": 4.5}"#]), "It is 4.5 °C in Oslo.");
    // The call limit applies to each user message separately.
    assert_eq!(chat.user("weather in Oslo"), call);
    // A turn with an unresolved placeholder does not match, and the next one is tried.
    assert_eq!(chat.results(&["The service is down."]), "No weather: The service is down.");
}

#[test]
fn what_was_said_and_found_before_is_remembered() {
    let script = parse_script(WEATHER);
    let mut chat = ScriptedConversation::new(&script, &["weather", "report"]);
    assert_eq!(chat.user("again"), "I can use: weather, report");
    chat.user("weather in Oslo");
    chat.results(&[r#"{"temp": 4}"#]);
    chat.user("weather in Rome");
    chat.results(&[r#"{"temp": 20}"#]);
    assert_eq!(chat.user("again"), "It was 20 °C in Rome.");
}

#[test]
fn which_tools_are_offered_decides() {
    let script = parse_script(WEATHER);
    let mut chat = ScriptedConversation::new(&script, &["clock"]);
    assert_eq!(chat.user("weather in Oslo"), "report is not available yet: it is not offered now");
    chat.conversation.system = "Some tools wait:\n- `weather`: never\n- `report`: after `weather`\n".into();
    assert_eq!(chat.user("weather in Oslo"), "report is not available yet: after `weather`");
    let mut chat = ScriptedConversation::new(&script, &["weather", "report"]);
    chat.conversation.may_call = false;
    assert_eq!(chat.user("weather in Oslo"), "I can use: weather, report");
}

#[test]
fn a_turn_calls_again_only_as_often_as_it_says() {
    let script = parse_script(
        r#"
        [[turn]]
        when = { user = "go" }
        say = "Trying."
        call = [{ tool = "flaky" }, { tool = "clock" }]
        repeat = 2
        "#,
    );
    let mut chat = ScriptedConversation::new(&script, &[]);
    assert_eq!(chat.user("go"), "Trying.flaky{}clock{}");
    assert_eq!(chat.results(&["no", "12"]), "Trying.flaky{}clock{}");
    assert_eq!(chat.results(&["no", "13"]), "I have no line for that in my script.");
    assert_eq!(chat.user("go"), "Trying.flaky{}clock{}");
}

#[test]
fn every_condition_of_a_turn_must_hold() {
    let script = parse_script(
        r#"
        [[turn]]
        when = { user = "x", system = "(?i)pirate" }
        say = "Arr."
        [[turn]]
        when = { user = "x", tool_available = ["a", "b"], tool_missing = ["c", "d"] }
        call = [{ tool = "a" }, { tool = "b" }]
        [[turn]]
        when = { tool_result = ["b", "c"], result = "(?i)error" }
        say = "b failed: ${result}"
        [[turn]]
        when = { result = "fine" }
        say = "the last was fine"
        [[turn]]
        when = { tool_result = "*" }
        say = "something came"
        "#,
    );
    let answer = |tools: &[&str], results: &[&str]| {
        let mut chat = ScriptedConversation::new(&script, tools);
        let first = chat.user("x");
        if first.contains('{') { chat.results(results) } else { first }
    };
    let default = "I have no line for that in my script.";
    assert_eq!(answer(&["a"], &[]), default);
    assert_eq!(answer(&["a", "b", "d"], &[]), default);
    assert_eq!(answer(&["a", "b"], &["fine", "Error 7"]), "b failed: Error 7");
    assert_eq!(answer(&["a", "b"], &["Error", "fine"]), "the last was fine");
    assert_eq!(answer(&["a", "b"], &["Error", "well"]), "something came");
    let mut chat = ScriptedConversation::new(&script, &["a", "b"]);
    chat.conversation.system = "You are a pirate.".into();
    assert_eq!(chat.user("x"), "Arr.");
}

#[test]
fn the_same_conversation_gets_the_same_answer_and_ids_tell_steps_apart() {
    let script = parse_script("[[turn]]\nwhen = { user = 'x' }\ncall = [{ tool = 'a' }, { tool = 'a' }]\nrepeat = 2");
    let mut chat = ScriptedConversation::new(&script, &[]);
    chat.user("x");
    chat.results(&["1", "2"]);
    let ids: Vec<&str> = chat
        .conversation
        .messages
        .iter()
        .flat_map(|message| match message {
            Message::Assistant { calls, .. } => calls.as_slice(),
            _ => &[],
        })
        .map(|call| call.id.as_str())
        .collect();
    assert_eq!(ids, ["call_t0_m1_0", "call_t0_m1_1", "call_t0_m3_0", "call_t0_m3_1"]);
    let first_message =
        Conversation { messages: chat.conversation.messages[..1].to_vec(), ..chat.conversation.clone() };
    assert_eq!(script.answer(&first_message), script.answer(&first_message));
    assert_eq!(script.answer(&first_message).calls[0].2, json!({}));
}
