//! Tool names and placeholder texts that every provider accepts.

use smol_str::SmolStr;

/// Placeholder for an image that cannot be sent.
pub(super) const IMAGE_OMITTED: &str = "(a picture is left out)";

/// A tool name that every provider accepts. A model may have invented an invalid name; the request that reports the
/// unknown tool must not be rejected because of it.
pub(super) fn tool_name(tool: &str) -> SmolStr {
    let valid = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: SmolStr = tool.chars().take(64).map(valid).collect();
    if name.is_empty() { SmolStr::new_static("unknown") } else { name }
}

/// Appends a line.
pub(super) fn push_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}
