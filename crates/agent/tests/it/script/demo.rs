//! The script of the demo, with the demo's tools.

use toolhub_agent::Script;

use super::ScriptedConversation;

const TOOLS: [&str; 9] =
    ["calculator", "clock", "counter", "dangerous", "flaky", "notes", "report", "weather", "words"];
const OSLO: &str = r#"{"city": "Oslo", "sky": "clear", "temperature": 4.0, "unit": "°C"}"#;

#[test]
fn what_is_asked_for_is_called() {
    let script = Script::demo();
    for (message, expected) in [
        ("weather in Oslo", r#"weather{"city":"Oslo"}"#),
        ("What is the weather in New York?", r#"weather{"city":"New York"}"#),
        ("Weather in oslo, then a report", r#"weather{"city":"oslo"}"#),
        ("今天北京的天气怎么样？", r#"weather{"city":"北京"}"#),
        ("what is 2+3*4?", r#"calculator{"expression":"2+3*4"}"#),
        ("(1 + 2) * 3", r#"calculator{"expression":"(1 + 2) * 3"}"#),
        ("计算 7/2", r#"calculator{"expression":"7/2"}"#),
        ("Remember to buy tea", r#"notes{"add":"to buy tea"}"#),
        ("记住：买茶", r#"notes{"add":"买茶"}"#),
        ("show my notes", "notes{}"),
        ("count", "counter{}"),
        ("count by 5", r#"counter{"by":5}"#),
        ("count the words of: to be or not", r#"words{"text":"to be or not"}"#),
        ("call flaky", "flaky{}"),
        ("delete /tmp/old", r#"dangerous{"folder":"/tmp/old"}"#),
        ("删除 /tmp/old", r#"dangerous{"folder":"/tmp/old"}"#),
        ("what time is it?", "clock{}"),
        ("现在几点？", "clock{}"),
        ("how is the weather?", "In which city? Say for example: weather in Oslo."),
    ] {
        assert_eq!(ScriptedConversation::new(&script, &TOOLS).user(message), expected, "{message}");
    }
}

#[test]
fn a_report_follows_the_weather_in_one_message_or_over_several() {
    let script = Script::demo();
    let report = r#"report{"lines":["4.0 °C, clear"],"title":"Weather in Oslo"}"#;
    let mut chat = ScriptedConversation::new(&script, &["weather"]);
    assert_eq!(chat.user("weather in Oslo, then a report"), r#"weather{"city":"Oslo"}"#);
    // Now the tool is offered.
    chat.conversation.tools.push("report".into());
    assert_eq!(chat.results(&[OSLO]), report);
    assert_eq!(chat.results(&["# Weather in Oslo"]), "Here is the report:\n\n# Weather in Oslo");

    let mut chat = ScriptedConversation::new(&script, &["weather"]);
    chat.conversation.system = "- `report`: after `weather`".into();
    let not_yet = "`report` is not available yet: after `weather`. Ask for the weather in a city first.";
    assert_eq!(chat.user("report"), not_yet);
    chat.user("weather in Oslo");
    assert_eq!(chat.results(&[OSLO]), "It is 4.0 °C and clear in Oslo.");
    chat.conversation.tools.push("report".into());
    assert_eq!(chat.user("and now the report"), report);
}

#[test]
fn what_went_wrong_is_passed_on_and_what_is_withheld_is_said() {
    let script = Script::demo();
    let mut chat = ScriptedConversation::new(&script, &TOOLS);
    chat.user("weather in Oslo");
    assert_eq!(chat.results(&["The service cannot be reached."]), "The service cannot be reached.");
    let mut chat = ScriptedConversation::new(&script, &["clock"]);
    assert!(chat.user("flaky").contains("withheld"));
    assert_eq!(chat.user("weather in Oslo"), "I cannot look at the weather: it is not offered now.");
    assert!(chat.user("hello").starts_with("I am a scripted model, and I can use: clock."));
    assert!(ScriptedConversation::new(&script, &[]).user("hello").contains("I can use: no tools."));
}
