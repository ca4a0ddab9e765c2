//! Checks `docs/config.md` against the schema: a row per key, with its default and description.
//!
//! `TOOLHUB_BLESS=1` regenerates the tables; the text above them is written by hand.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::Value;
use toolhub_testkit::TempFolder;

use crate::config::run_toolhub;

const GENERATED_MARK: &str = "<!-- Generated from the schema from here on: TOOLHUB_BLESS=1 cargo test -p toolhub-cli --profile ci --test it config_docs -->\n";

#[test]
fn the_page_has_a_row_for_every_key() {
    let folder = TempFolder::new();
    let schema: Value =
        serde_json::from_str(&run_toolhub(folder.path(), &["config", "schema"], &[]).out).expect("it is JSON");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let text = std::fs::read_to_string(&page).expect("docs/config.md exists");
    let (by_hand, found) = text.split_once(GENERATED_MARK).expect("the page has its mark");
    let tables = render_tables(&schema);
    if std::env::var_os("TOOLHUB_BLESS").is_some() {
        std::fs::write(&page, format!("{by_hand}{GENERATED_MARK}{tables}")).expect("it can be written");
    } else {
        assert_eq!(found, tables, "docs/config.md does not match the schema");
    }
    assert!(tables.lines().count() > 120);
}

/// A document for samples with an import.
const PETS: &str = "openapi: 3.1.0
info: { title: Pets, version: '1' }
servers: [{ url: 'https://pets.example/v1' }]
components: { securitySchemes: { api_key: { type: apiKey, in: header, name: X-Key } } }
security: [{ api_key: [] }]
paths: { /pets: { get: { operationId: listPets } } }
";

#[test]
fn the_configs_of_the_guides_are_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut checked = 0;
    for page in [
        "README.md",
        "docs/guide/policies.md",
        "docs/guide/rest.md",
        "docs/guide/commands.md",
        "docs/guide/openapi.md",
        "docs/guide/agents.md",
        "docs/guide/mcp.md",
    ] {
        let text = std::fs::read_to_string(root.join(page)).expect("the page is there");
        let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
        for block in blocks.filter(|block| !block.starts_with("[dependencies]")) {
            let folder = TempFolder::new();
            std::fs::create_dir_all(folder.path().join("specs")).expect("a folder can be made");
            folder.write("specs/pets.yaml", PETS);
            folder.write("toolhub.toml", block);
            write_programs(block, &folder);
            let secrets =
                ["WEATHER_KEY", "TICKETS_TOKEN", "WEATHER_TOKEN", "SHOP_TOKEN", "PET_API_KEY", "DEEPSEEK_API_KEY"]
                    .map(|name| (name, "a-secret"));
            let path = format!("{}:/usr/bin:/bin", folder.path().display());
            let variables = [&secrets[..], &[("PATH", &path)]].concat();
            let ran = run_toolhub(folder.path(), &["config", "check"], &variables);
            assert_eq!(ran.code, 0, "{page}\n{block}\n{}", ran.err);
            checked += 1;
        }
    }
    assert!(checked >= 4, "only {checked} samples were found");
}

/// Creates the scripts and programs that a config names: the check finds missing ones.
fn write_programs(config: &str, folder: &TempFolder) {
    let is_file = |text: &&str| {
        text.starts_with("./") || *text == "npx" || [".py", ".mjs", ".js", ".sh"].iter().any(|end| text.ends_with(end))
    };
    for name in config.split('"').skip(1).step_by(2).filter(is_file) {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it is in the folder")).expect("a folder can be made");
        std::fs::write(&path, "").expect("it can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it can be changed");
    }
}

fn render_tables(schema: &Value) -> String {
    let mut text = String::new();
    let writer = TableWriter { schema };
    for (name, section) in schema["properties"].as_object().expect("there are sections") {
        let is_list = section["type"] == "array";
        let is_map = section.get("additionalProperties").is_some_and(Value::is_object);
        let head = if is_list {
            format!("[[{name}]]")
        } else if is_map {
            format!("[{name}.NAME]")
        } else {
            format!("[{name}]")
        };
        let description = section["description"].as_str().unwrap_or_default();
        let columns = "| key | type | default | description |\n|---|---|---|---|";
        text += &format!("\n## `{head}`\n\n{}\n\n{columns}\n", escape_cell(description));
        let inner = if is_list {
            &section["items"]
        } else if is_map {
            &section["additionalProperties"]
        } else {
            section
        };
        writer.write_rows(writer.resolve_ref(inner), "", &mut text);
    }
    text
}

struct TableWriter<'a> {
    schema: &'a Value,
}

impl<'a> TableWriter<'a> {
    fn resolve_ref(&self, schema: &'a Value) -> &'a Value {
        let target = schema["$ref"].as_str().and_then(|to| self.schema.pointer(to.trim_start_matches('#')));
        target.map_or(schema, |inner| self.resolve_ref(inner))
    }

    fn write_rows(&self, table: &'a Value, prefix: &str, text: &mut String) {
        let required: Vec<&str> =
            table["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, key) in table["properties"].as_object().into_iter().flatten() {
            let inner = self.resolve_ref(key);
            let path = format!("{prefix}{name}");
            let default = match (key.get("default"), required.contains(&name.as_str())) {
                (Some(value), _) => format!("`{value}`"),
                (None, true) => "required".into(),
                (None, false) => "–".into(),
            };
            let description = escape_cell(key["description"].as_str().unwrap_or_default());
            *text += &format!("| `{path}` | {} | {default} | {description} |\n", self.type_name(inner));
            let nested = match inner["anyOf"].as_array() {
                Some(choices) => choices
                    .iter()
                    .map(|choice| self.resolve_ref(choice))
                    .find(|choice| choice.get("properties").is_some()),
                None => Some(inner),
            };
            let items = inner["type"] == "array" && self.resolve_ref(&inner["items"]).get("properties").is_some();
            match nested {
                _ if items => self.write_rows(self.resolve_ref(&inner["items"]), &format!("{path}[]."), text),
                Some(table) => self.write_rows(table, &format!("{path}."), text),
                None => {}
            }
        }
    }

    /// The type in the tables.
    fn type_name(&self, schema: &Value) -> String {
        if let Some(choices) = schema["oneOf"].as_array() {
            let words = choices.iter().flat_map(|choice| match choice["enum"].as_array() {
                Some(words) => words.clone(),
                None => choice.get("const").cloned().into_iter().collect(),
            });
            return words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        }
        if let Some(choices) = schema["anyOf"].as_array() {
            if let Some(words) = choices.iter().find_map(|choice| choice["enum"].as_array()) {
                return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            }
            return choices
                .iter()
                .map(|choice| self.type_name(self.resolve_local_ref(choice)))
                .collect::<Vec<_>>()
                .join(" or ");
        }
        let range = match (schema["minimum"].as_f64(), schema["maximum"].as_f64()) {
            (Some(min), Some(max)) if max < 100_000.0 => format!(", {min} to {max}"),
            (Some(min), _) if min > 0.0 => format!(", at least {min}"),
            _ => String::new(),
        };
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (_, Some("toolhub-size")) => "size".into(),
            (_, Some("toolhub-time-or-never")) => "duration or `\"never\"`".into(),
            (_, Some("toolhub-moment")) => "date".into(),
            (_, Some("toolhub-time" | "toolhub-delay")) => "duration".into(),
            (Some("string"), _) => "string".into(),
            (Some("integer"), _) => format!("integer{range}"),
            (Some("number"), _) => format!("number{range}"),
            (Some("boolean"), _) => "true, false".into(),
            (Some("array"), _) => format!("list of {}", self.type_name(self.resolve_local_ref(&schema["items"]))),
            (Some("object"), _) => "table".into(),
            _ => "any".into(),
        }
    }

    fn resolve_local_ref<'b>(&'b self, schema: &'b Value) -> &'b Value {
        let target = schema["$ref"].as_str().and_then(|to| self.schema.pointer(to.trim_start_matches('#')));
        target.map_or(schema, |inner| self.resolve_local_ref(inner))
    }
}

fn escape_cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}
