//! Changes a file of another program: a copy is kept, and the file is replaced as a whole.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use toolhub::clock::{Clock, SystemClock};

use crate::{commands::import::config_file, failure::Failure};

/// What was done to a file.
pub(super) struct FileChange {
    pub(super) is_changed: bool,
    /// The copy of the file from before.
    pub(super) backup: Option<PathBuf>,
}

/// Changes a file, or creates it.
///
/// # Errors
/// When it cannot be read, changed or written. It is then as before.
pub(super) fn change(file: &Path, edit: impl FnOnce(&str) -> Result<String, String>) -> Result<FileChange, Failure> {
    let refused = |reason: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot change {}: {reason}", file.display()))
            .help("correct the file, or print the lines without --write and add them yourself")
    };
    let before = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        read => Some(read.map_err(|error| refused(&error))?),
    };
    let after = edit(before.as_deref().unwrap_or_default()).map_err(|reason| refused(&reason))?;
    if before.as_ref() == Some(&after) {
        return Ok(FileChange { is_changed: false, backup: None });
    }
    let Some(_) = before else {
        fs::write(file, after).map_err(|error| refused(&error))?;
        return Ok(FileChange { is_changed: true, backup: None });
    };
    let backup = copy(file).map_err(|error| refused(&error))?;
    config_file::atomic_replace(file, &after).map_err(|error| refused(&error))?;
    Ok(FileChange { is_changed: true, backup: Some(backup) })
}

/// Copies a file beside itself.
fn copy(file: &Path) -> io::Result<PathBuf> {
    let time: String = SystemClock.now().to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".bak-{time}"));
    let backup = file.with_file_name(name);
    fs::copy(file, &backup)?;
    Ok(backup)
}

/// A TOML text with a section, which replaces the one at its path. Everything else stays as it is.
///
/// # Errors
/// When the text is not TOML, or what is at the path is not written as a section.
pub(super) fn set_section(before: &str, path: &[String; 2], section: &str) -> Result<String, String> {
    let mut expected: toml::Table = before.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let added: toml::Table = section.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let [table, name] = path;
    let entry = added[table][name].clone();
    let servers = expected.entry(table).or_insert_with(|| toml::Table::new().into());
    let servers = servers.as_table_mut().ok_or_else(|| format!("`{table}` is not a table"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_added_or_replaced_and_the_rest_stays() {
        let path = ["mcp_servers".to_owned(), "toolhub".to_owned()];
        let section = "[mcp_servers.toolhub]\nurl = \"http://x/mcp\"\n";
        let set = |before: &str| set_section(before, &path, section);
        assert_eq!(set("").unwrap(), section);
        let model = "# mine\nmodel = \"o3\" # fast\n";
        let once = set(model).unwrap();
        assert_eq!(once, format!("{}\n\n{section}", model.trim_end()));
        assert_eq!(set(&once).unwrap(), once);
        let old = "[mcp_servers.toolhub]\ncommand = \"x\"\n[mcp_servers.toolhub.env]\nA = \"1\"\n\n[mcp_servers.b]\nurl = \"u\"\n";
        assert_eq!(set(old).unwrap(), format!("[mcp_servers.b]\nurl = \"u\"\n\n{section}"));
        assert!(set("mcp_servers = 1").is_err());
        assert!(set("mcp_servers = { toolhub = { url = \"u\" } }").is_err());
        assert!(set("[").is_err());
    }
}
