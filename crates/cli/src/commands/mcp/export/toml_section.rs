//! Sets a section of a TOML text. Everything else in it stays as it is.

use serde_json::Value;

use crate::{
    commands::import::config_file,
    config::{toml_key, toml_string},
};

/// Replaces the section at a path by what `merge` makes of it.
///
/// # Errors
/// When the text is not TOML, or what is at the path is not written as a section.
pub(super) fn set(
    before: &str,
    path: &[String; 2],
    merge: impl FnOnce(Option<&Value>) -> Value,
) -> Result<String, String> {
    let mut expected: toml::Table = before.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let [table, name] = path;
    let servers = expected.entry(table).or_insert_with(|| toml::Table::new().into());
    let servers = servers.as_table_mut().ok_or_else(|| format!("`{table}` is not a table"))?;
    let existing = servers.get(name).and_then(|entry| serde_json::to_value(entry).ok());
    let entry = toml::Table::try_from(merge(existing.as_ref())).map_err(|error| error.to_string())?;
    let section = render(path, &entry);
    let entry = toml::Value::Table(entry);
    if servers.get(name) == Some(&entry) {
        return Ok(before.to_owned());
    }
    let is_new = servers.insert(name.clone(), entry).is_none();
    let rest = if is_new { before.to_owned() } else { config_file::without_sections(before, &[table, name]) };
    let gap = if rest.trim().is_empty() { "" } else { "\n\n" };
    let after = format!("{}{gap}{section}", rest.trim_end());
    match after.parse::<toml::Table>() {
        Ok(table) if table == expected => Ok(after),
        _ => Err(format!("`{name}` is not written as a section there")),
    }
}

fn render(path: &[String; 2], entry: &toml::Table) -> String {
    let lines = entry.iter().map(|(name, value)| match value {
        toml::Value::String(text) => format!("{} = {}\n", toml_key(name), toml_string(text)),
        value => format!("{} = {value}\n", toml_key(name)),
    });
    format!("[{}.{}]\n{}", toml_key(&path[0]), toml_key(&path[1]), lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_section_is_added_or_replaced_and_the_rest_stays() {
        let path = ["mcp_servers".to_owned(), "toolhub".to_owned()];
        let section = "[mcp_servers.toolhub]\nurl = \"http://x/mcp\"\n";
        let set_to = |before: &str, entry: Value| set(before, &path, |_| entry);
        let set_url = |before: &str| set_to(before, json!({"url": "http://x/mcp"}));
        assert_eq!(set_url("").unwrap(), section);
        let model = "# mine\nmodel = \"o3\" # fast\n";
        let once = set_url(model).unwrap();
        assert_eq!(once, format!("{}\n\n{section}", model.trim_end()));
        assert_eq!(set_url(&once).unwrap(), once);
        let old = "[mcp_servers.toolhub]\ncommand = \"x\"\n[mcp_servers.toolhub.env]\nA = \"1\"\n\n[mcp_servers.b]\nurl = \"u\"\n";
        assert_eq!(set_url(old).unwrap(), format!("[mcp_servers.b]\nurl = \"u\"\n\n{section}"));
        let env = set_to(old, json!({"args": ["a", "b c"], "env": {"A": "1"}})).unwrap();
        assert!(env.ends_with("[mcp_servers.toolhub]\nargs = [\"a\", \"b c\"]\nenv = { A = \"1\" }\n"), "{env}");
        assert!(set_url("mcp_servers = 1").is_err());
        assert!(set_url("mcp_servers = { toolhub = { url = \"u\" } }").is_err());
        assert!(set_url("[").is_err());
    }
}
