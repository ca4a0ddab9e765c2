//! Masks what differs between runs: ids, times, paths.

use std::{collections::BTreeMap, path::Path};

use regex::{Captures, Regex};

/// Maps ids to masked ones.
pub(super) struct Mask {
    folder: String,
    port: u16,
    /// The masked id for each real one.
    ids: BTreeMap<String, String>,
}

/// Patterns of times and similar values, and their replacements.
const TIME_PATTERNS: &[(&str, &str)] = &[
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "2027-01-31T12:00:00.000Z"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "2027-01-31 12:00:00Z"),
    (r"\b\d+[smhd] ago", "just now"),
    (r"<?\b\d+(\.\d+)?ms\b", "<1ms"),
    (r"\b(14m\d\ds|15m00s)\b", "14m59s"),
    (r"\b(4m5\ds|5m00s)\b", "4m59s"),
    (r"\b1h59m\b", "2h00m"),
    (r"\b(29\d|300)s\b", "300s"),
    (r"\b[0-9a-f]{64}\b", "2f0c2f0c2f0c2f0c2f0c2f0c2f0c2f0c2f0c2f0c2f0c2f0c2f0c2f0c2f0c2f0c"),
    (r#""(\w+Ms)": [\d.]+"#, "\"$1\": 1"),
    (r#""etag": "(\d+)-[0-9a-f]{16}""#, "\"etag\": \"$1-9c1f5b0a2d7e4411\""),
    (r#""revision": "\w+""#, "\"revision\": \"d148d6690a1c\""),
    (r#""rustc": "[^"]+""#, "\"rustc\": \"1.95.0\""),
    (r"process \d+", "process 4711"),
    (r"\d+ bytes", "65536 bytes"),
    (r#""bytes": \d+"#, "\"bytes\": 65536"),
    (r"\d+ rows", "12 rows"),
];

/// Ids: an optional prefix, and characters that differ in every run.
const ID_PATTERN: &str = r"(?x)
    (?P<word>call_|apr_|run_) [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}
  | (?P<thread>thread_ | thr_) [0-9a-zA-Z-]{16,36}
  | (?P<backup>toolhub-) \d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z
  | thk_ (?P<key>[0-9A-Za-z]{12}) _ [0-9A-Za-z]{43}";

impl Mask {
    pub(super) fn new(folder: &Path, port: u16) -> Self {
        Self { folder: folder.display().to_string(), port, ids: BTreeMap::new() }
    }

    /// Masks an output.
    pub(super) fn mask(&mut self, text: &str) -> String {
        let text = text.replace(&self.folder, "/home/ann/hub").replace(&format!(":{}", self.port), ":8665");
        let text = text.replace(&format!("port {}", self.port), "port 8665");
        let pattern = Regex::new(ID_PATTERN).expect("the pattern is right");
        let text = pattern.replace_all(&text, |captures: &Captures<'_>| self.mask_id(captures)).into_owned();
        let masked = self.ids.iter().fold(text, |text, (real, masked)| text.replace(real, masked));
        TIME_PATTERNS.iter().fold(masked, |text, (pattern, replacement)| {
            Regex::new(pattern).expect("the pattern is right").replace_all(&text, *replacement).into_owned()
        })
    }

    fn mask_id(&mut self, captures: &Captures<'_>) -> String {
        let (real, number) = (captures[0].to_owned(), self.ids.len() + 1);
        if let Some(masked) = self.ids.get(&real) {
            return masked.clone();
        }
        // An id typed in the session that does not exist.
        if real.contains("00000000-0000-7000-8000-") {
            return real;
        }
        if captures.name("backup").is_some() {
            self.ids.insert(real, format!("toolhub-2027-01-31T12-00-00-{number:03}Z"));
            return format!("toolhub-2027-01-31T12-00-00-{number:03}Z");
        }
        let masked = match (captures.name("word"), captures.name("thread"), captures.name("key")) {
            (Some(word), ..) => format!("{}00000000-0000-7000-8000-{number:012}", word.as_str()),
            (_, Some(word), _) => format!("{}{number:0wide$}", word.as_str(), wide = real.len() - word.len()),
            (_, _, Some(key)) => {
                self.ids.insert(key.as_str().to_owned(), format!("{number:012}"));
                format!("thk_{number:012}_{:043}", 0)
            }
            _ => real.clone(),
        };
        self.ids.insert(real, masked.clone());
        masked
    }

    /// Unmasks the ids in a command.
    pub(super) fn unmask(&self, command: &str) -> String {
        // Replace a whole key before the id inside it.
        let mut known: Vec<(&String, &String)> = self.ids.iter().collect();
        known.sort_by_key(|(_, masked)| std::cmp::Reverse(masked.len()));
        let command = command.replace("/home/ann/hub", &self.folder);
        known.into_iter().fold(command, |command, (real, masked)| command.replace(masked, real))
    }
}
