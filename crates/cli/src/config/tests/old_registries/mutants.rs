//! Damaged old registries: whatever their files hold, nothing panics, and everything that is said names a file and a line.
//!
//! With `TOOLHUB_SOAK` set, 2,000 of them are read.

use proptest::prelude::*;
use toolhub_testkit::soak;

use super::{super::super::tree::Origin, ConfigFolder, TREES, VARIABLES, convert, copy_of, files_of, load, load_tree};

/// What takes the place of a line, or of a value.
const PIECES: [&str; 20] = [
    "",
    "[headers]",
    "[config.headers]",
    "[[examples]]",
    "[parameters_schema.properties]",
    "[metadata.customFields]",
    "timeout = 9223372036854775807",
    "timeout = -0.0",
    "ttl = inf",
    "retry_delay = nan",
    "retry_count = -5",
    "required = [1, \"a\", []]",
    "properties = 5",
    "name = \"\"",
    "tool_type = 3",
    "api_url = \"${\"",
    "api_key = \"sk-0123456789abcdefghij\"",
    "tools = [[], {}]",
    "when = 2026-01-31T12:00:00Z",
    "config_directory = \"../../..\"",
];

#[derive(Debug, Clone)]
enum Change {
    Remove,
    Repeat,
    Swap(usize),
    Replace(usize),
    Insert(usize),
    Value(usize),
    Cut(usize),
    Byte(char),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Remove),
        Just(Change::Repeat),
        (0..60_usize).prop_map(Change::Swap),
        (0..PIECES.len()).prop_map(Change::Replace),
        (0..PIECES.len()).prop_map(Change::Insert),
        (0..PIECES.len()).prop_map(Change::Value),
        (0..40_usize).prop_map(Change::Cut),
        any::<char>().prop_map(Change::Byte),
    ]
}

fn apply(text: &str, line: usize, change: &Change) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return String::new();
    }
    let at = line % lines.len();
    match change {
        Change::Remove => drop(lines.remove(at)),
        Change::Repeat => lines.insert(at, lines[at].clone()),
        Change::Swap(other) => {
            let other = other % lines.len();
            lines.swap(at, other);
        }
        Change::Replace(piece) => lines[at] = PIECES[*piece].to_owned(),
        Change::Insert(piece) => lines.insert(at, PIECES[*piece].to_owned()),
        Change::Value(piece) => {
            let key = lines[at].split('=').next().unwrap_or_default().to_owned();
            let value = PIECES[*piece].split_once('=').map_or("[]", |(_, value)| value);
            lines[at] = format!("{key}={value}");
        }
        Change::Cut(length) => lines[at] = lines[at].chars().take(*length).collect(),
        Change::Byte(c) => lines[at].push(*c),
    }
    lines.join("\n")
}

/// Whether a note begins with a file and a line.
fn has_place(note: &str) -> bool {
    let Some((file, rest)) = note.split_once(".toml:") else { return false };
    let line = rest.split(':').next().unwrap_or_default();
    !file.contains(' ') && line.parse::<usize>().is_ok_and(|line| line > 0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: soak(150, 2_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_old_registry_is_read_or_refused_with_file_and_line(
        tree in 0..TREES.len(),
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec((0..60_usize, change()), 1..4),
    ) {
        let folder = copy_of(TREES[tree]);
        let files: Vec<(String, String)> =
            files_of(TREES[tree]).into_iter().filter(|(name, _)| name.ends_with(".toml")).collect();
        let (name, text) = file.get(&files);
        let mutant = changes.iter().fold(text.clone(), |text, (line, change)| apply(&text, *line, change));
        folder.write(name, &mutant);
        let loaded = load_tree(&folder);
        if let Err(problems) = &loaded {
            for problem in problems.iter() {
                let has_place = match &problem.origin {
                    Origin::File { .. } => true,
                    // A line that contains a secret is not shown.
                    Origin::Flag(place) => place.contains(".toml:"),
                    Origin::Env { .. } => false,
                };
                prop_assert!(has_place, "{problem:?}\n{mutant}");
            }
        }
        match convert(&folder) {
            Ok(converted) => {
                prop_assert!(converted.notes.iter().all(|note| has_place(note)), "{:?}", converted.notes);
                prop_assert!(!converted.text.contains("hunter22"), "{}", converted.text);
                let table = converted.text.parse::<toml::Table>();
                prop_assert!(table.is_ok(), "{table:?}\n{}", converted.text);
                if let Ok(loaded) = loaded {
                    let other = ConfigFolder::new();
                    other.write("toolhub.toml", &converted.text);
                    let again = load(&other.load_options(&VARIABLES).assuming_variables_set());
                    let again = again.map_err(|problems| TestCaseError::fail(format!("{problems}{}", converted.text)))?;
                    let names = |tools: &super::super::super::Tools| tools.keys().cloned().collect::<Vec<_>>();
                    prop_assert_eq!(names(&loaded.config.tools), names(&again.config.tools));
                }
            }
            Err(problems) => prop_assert!(loaded.is_err(), "converting alone is refused: {problems}"),
        }
    }
}
