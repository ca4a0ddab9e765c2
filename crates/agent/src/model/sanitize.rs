//! What every provider must be told alike: names and texts that none of them refuses.

use smol_str::SmolStr;

/// Stands for a picture that cannot be shown.
pub(super) const IMAGE_OMITTED: &str = "(a picture is left out)";

/// A tool's name that no provider refuses. A model may have made one up, and has to be told that there is no such tool; the request that
/// tells it must not fail for that name.
pub(super) fn tool_name(tool: &str) -> SmolStr {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: SmolStr = tool.chars().take(64).map(legal).collect();
    if name.is_empty() { SmolStr::new_static("unknown") } else { name }
}

/// A line more.
pub(super) fn push_line(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}
