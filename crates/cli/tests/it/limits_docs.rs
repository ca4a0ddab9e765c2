//! Checks `docs/limits.md`: each default is that of the config's schema or of the constant it links to, and every key of the config
//! that is a bound has a row.

use std::{collections::BTreeMap, path::PathBuf};

/// Keys that look like bounds and are none.
const OTHER_KEYS: [&str; 1] = ["max_failure_duration"];

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The four cells of a row.
fn cells(line: &str) -> Option<[&str; 4]> {
    let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
    inner.split(" | ").map(str::trim).collect::<Vec<_>>().try_into().ok()
}

/// The keys of `docs/config.md`, which another test compares with the schema: type and default, by section and name.
fn config_keys() -> BTreeMap<(String, String), (String, String)> {
    let (text, mut keys, mut section) = (read("docs/config.md"), BTreeMap::new(), String::new());
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("## `") {
            section = head.trim_matches(['[', ']', '`']).replace(".NAME", "");
        }
        let Some([name, kind, default, description]) = cells(line) else {
            continue;
        };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else { continue };
        let described = description.split_once("Default: ").map(|(_, rest)| rest.split(". ").next().unwrap_or(rest));
        let default = if default == "–" { described.unwrap_or("no limit") } else { default };
        let default = default.trim_end_matches('.').replace(['`', '"'], "");
        keys.insert((section.clone(), name.to_owned()), (kind.to_owned(), default));
    }
    keys
}

/// A number with its unit, in bytes or seconds.
fn amount(text: &str) -> u64 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let number: u64 = digits.parse().unwrap_or_else(|_| panic!("`{text}` is no amount"));
    let unit: String = text.chars().filter(char::is_ascii_alphabetic).collect();
    number
        * match unit.as_str() {
            "" | "s" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            _ => panic!("`{text}` has an unknown unit"),
        }
}

/// The value of a constant: a product, a shift, or seconds.
fn constant(path: &str, name: &str) -> u64 {
    let source = read(path);
    let declaration = source.lines().find(|line| line.contains(&format!("const {name}: ")));
    let declaration = declaration.unwrap_or_else(|| panic!("{path} has no constant `{name}`"));
    let value = declaration.split_once(" = ").map_or("", |(_, value)| value).trim_end_matches(';').replace('_', "");
    let value = value.trim_start_matches("Duration::fromsecs(").trim_end_matches(')');
    let product = |text: &str| -> u64 { text.split(" * ").map(|factor| factor.parse::<u64>().expect(path)).product() };
    match value.split_once(" << ") {
        Some((left, right)) => product(left) << product(right),
        None => product(value),
    }
}

#[test]
fn the_page_of_limits_has_the_defaults_of_the_code() {
    let (keys, page, mut constants, mut listed) = (config_keys(), read("docs/limits.md"), 0, Vec::new());
    for line in page.lines() {
        let Some([what, default, set_by, _]) = cells(line) else { continue };
        if let Some(key) = set_by.strip_prefix("`[").and_then(|key| key.strip_suffix('`')) {
            let (section, name) = key.split_once("] ").unwrap_or_else(|| panic!("`{key}` is no key"));
            let found = keys.get(&(section.to_owned(), name.to_owned()));
            let (_, expected) = found.unwrap_or_else(|| panic!("there is no key `[{section}] {name}`"));
            let has_words = default.starts_with("no limit") || default.starts_with("the provider's");
            assert!(
                expected == default || (has_words && !expected.starts_with(|c: char| c.is_ascii_digit())),
                "{what}: {expected}"
            );
            listed.push(name.to_owned());
        } else if let Some((name, path)) = set_by.strip_prefix("[`").and_then(|link| link.split_once("`](../")) {
            assert_eq!(amount(default), constant(path.trim_end_matches(')'), name), "{what}");
            constants += 1;
        }
    }
    assert!(constants >= 30 && listed.len() > 50, "{constants} constants and {} keys", listed.len());
    for ((section, name), (kind, _)) in &keys {
        let leaf = name.rsplit('.').next().unwrap_or(name);
        let is_bound = kind == "size"
            || ["max_", "json_"].iter().any(|prefix| leaf.starts_with(prefix))
            || ["_limit", "_timeout", "_budget"].iter().any(|suffix| leaf.ends_with(suffix))
            || name.starts_with("retention.");
        let is_listed = listed.iter().any(|other| other.rsplit('.').next() == Some(leaf));
        assert!(!is_bound || is_listed || OTHER_KEYS.contains(&leaf), "docs/limits.md lacks `[{section}] {name}`");
    }
}
