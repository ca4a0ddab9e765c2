//! The body of a message for Slack's incoming webhooks.
//!
//! In: a message. Out: a text and blocks. Names and reasons are escaped, so that they cannot mention people or form links.

use serde_json::{Value, json};
use toolhub_core::alerts::{Alert, AlertMessage, AlertPhase};

/// Number of alerts with a line of their own.
const MAX_LINES: usize = 10;
/// The limit of Slack for the text of a block is 3,000 characters.
const MAX_TEXT: usize = 2_800;

/// The body of a message.
pub(super) fn body(message: &AlertMessage) -> Value {
    let symbol = match message.phase {
        AlertPhase::Resolved => ":white_check_mark:",
        AlertPhase::Test => ":wave:",
        AlertPhase::Happened => ":warning:",
        _ => ":rotating_light:",
    };
    let summary = format!("{symbol} {}", escape(&message.summary()));
    let mut blocks = vec![section(&format!("*{summary}*"))];
    let lines: Vec<String> = message.alerts.iter().take(MAX_LINES).map(line).collect();
    if !lines.is_empty() {
        let rest = message.alerts.len().saturating_sub(MAX_LINES);
        let more = if rest > 0 { format!("\n… and {rest} more") } else { String::new() };
        blocks.push(section(&(lines.join("\n") + &more)));
    }
    if !message.advice().is_empty() {
        blocks.push(section(&escape(message.advice())));
    }
    json!({"text": summary, "blocks": blocks})
}

fn section(text: &str) -> Value {
    let end = text.floor_char_boundary(MAX_TEXT);
    json!({"type": "section", "text": {"type": "mrkdwn", "text": &text[..end]}})
}

fn line(alert: &Alert) -> String {
    let thing = escape(&alert.thing);
    let name = match &alert.link {
        Some(link) => format!("<{}|{thing}>", escape(link).replace('|', "%7C")),
        None => format!("`{thing}`"),
    };
    let reason = if alert.reason.is_empty() { String::new() } else { format!(": {}", escape(&alert.reason)) };
    format!("• {name} {} since {}{reason}", escape(&alert.state), alert.since)
}

/// The three characters that Slack gives a meaning to.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_mention_people() {
        assert_eq!(escape("<!channel> & co"), "&lt;!channel&gt; &amp; co");
    }
}
