//! Formats statuses, times and durations.
//!
//! In: values of the API. Out: short texts for table cells. A status always has its word, so colour is never the only signal.

use anstyle::{AnsiColor, Style};
use toolhub::clock::Timestamp;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const SUCCESS_STYLE: Style = AnsiColor::Green.on_default();
const ERROR_STYLE: Style = AnsiColor::Red.on_default();
const PENDING_STYLE: Style = AnsiColor::Yellow.on_default();
const DIMMED: Style = Style::new().dimmed();

/// A status with its symbol: of a tool, a call, an approval or an MCP server.
pub(crate) fn format_status(status: &str, ascii: bool) -> (String, Style) {
    let (symbol, ascii_symbol, style) = match status {
        "available" | "success" | "approved" | "completed" | "connected" | "registered" => ('●', '*', SUCCESS_STYLE),
        "failed" | "error" | "denied" | "disconnected" | "quarantined" => ('✖', 'x', ERROR_STYLE),
        "unavailable" | "scheduled" | "validating" | "connecting" => ('◌', 'o', PENDING_STYLE),
        "maintenance" => ('‖', '=', PENDING_STYLE),
        "awaiting_approval" | "pending_approval" | "pending" | "waiting" => ('?', '?', PENDING_STYLE),
        "executing" | "running" => ('▸', '>', SUCCESS_STYLE),
        "cancelled" | "timed_out" | "withdrawn" | "used" => ('–', '-', DIMMED),
        _ => ('·', '.', Style::new()),
    };
    (format!("{} {}", if ascii { ascii_symbol } else { symbol }, status.replace('_', " ")), style)
}

/// The warning symbol.
pub(crate) fn warning_sign(ascii: bool) -> &'static str {
    if ascii { "!" } else { "⚠" }
}

/// A duration in milliseconds.
pub(crate) fn format_millis(ms: f64) -> String {
    match ms {
        ms if ms < 0.05 => "<1ms".into(),
        ms if ms < 0.95 => format!("{ms:.1}ms"),
        ms if ms < 999.5 => format!("{ms:.0}ms"),
        ms if ms < 9_950.0 => format!("{:.1}s", ms / 1e3),
        ms if ms < 60_000.0 => format!("{:.0}s", ms / 1e3),
        ms => format_seconds((ms / 1e3) as u64),
    }
}

/// How long ago a timestamp was.
pub(crate) fn format_ago(at: &str, now: Timestamp) -> String {
    match at.parse::<Timestamp>() {
        Ok(at) if at > now => "just now".into(),
        Ok(at) => match now.since(at).as_secs() {
            0..10 => "just now".into(),
            seconds => format!("{} ago", format_seconds_coarse(seconds)),
        },
        Err(_) => at.into(),
    }
}

/// The time left until a timestamp.
pub(crate) fn format_remaining(at: &str, now: Timestamp) -> String {
    match at.parse::<Timestamp>() {
        Ok(at) if at <= now => "expired".into(),
        Ok(at) => format_seconds(at.since(now).as_secs().max(1)),
        Err(_) => at.into(),
    }
}

/// A timestamp to the second, for a line of its own.
pub(crate) fn format_timestamp(at: &str) -> String {
    match at.split_once('T').zip(at.find('.')) {
        Some(((day, _), dot)) if at.ends_with('Z') => format!("{day} {}Z", &at[day.len() + 1..dot]),
        _ => at.into(),
    }
}

fn format_seconds(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

fn format_seconds_coarse(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A value on one line, truncated to the maximum width.
pub(crate) fn truncate_value(value: &serde_json::Value, max_width: usize, ascii: bool) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), String::from);
    truncate(&super::strip_hidden(&text).replace(['\n', '\t'], " "), max_width, ascii).into_owned()
}

/// Truncates the text to this many cells, with an ellipsis as the last one.
pub(super) fn truncate(text: &str, cells: usize, ascii: bool) -> std::borrow::Cow<'_, str> {
    if text.width() <= cells {
        return text.into();
    }
    let ellipsis = if ascii { "~" } else { "…" };
    let (mut shortened, mut used) = (String::new(), 1);
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > cells {
            break;
        }
        shortened.push(c);
    }
    (shortened.trim_end().to_owned() + ellipsis).into()
}

/// Wraps a text of several lines to the terminal's width.
pub(crate) fn wrap_text(text: &str, cells: Option<usize>) -> String {
    text.lines().flat_map(|line| wrap_line(line, cells)).collect::<Vec<_>>().join("\n")
}

/// Wraps a line between words; a word that is longer than the width stays whole.
pub(super) fn wrap_line(text: &str, cells: Option<usize>) -> Vec<String> {
    let Some(cells) = cells.filter(|cells| text.width() > *cells) else { return vec![text.to_owned()] };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a first line");
        if !line.is_empty() && line.width() + 1 + word.width() > cells {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_exact_as_they_need_to_be() {
        let shown = [0.04, 2.4, 812.0, 1_900.0, 42_000.0, 252_000.0].map(format_millis);
        assert_eq!(shown, ["<1ms", "2ms", "812ms", "1.9s", "42s", "4m12s"]);
        let now = "2024-01-01T12:00:00.000Z".parse::<Timestamp>().unwrap();
        assert_eq!(format_ago("2024-01-01T11:58:30.000Z", now), "1m ago");
        assert_eq!(format_remaining("2024-01-01T12:04:12.500Z", now), "4m12s");
        assert_eq!(format_timestamp("2024-01-01T11:58:30.123Z"), "2024-01-01 11:58:30Z");
    }

    #[test]
    fn a_status_has_its_word_beside_its_sign() {
        assert_eq!(format_status("failed", false).0, "✖ failed");
        assert_eq!(format_status("failed", true).0, "x failed");
        assert_eq!(format_status("awaiting_approval", true).0, "? awaiting approval");
    }

    #[test]
    fn a_cut_text_says_so_and_fits() {
        assert_eq!(truncate("天气预报", 5, false), "天气…");
        assert_eq!(truncate("weather", 5, true), "weat~");
        assert_eq!(truncate("weather", 7, true), "weather");
    }
}
