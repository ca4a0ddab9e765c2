//! What differs from one run to the next, made the same: ids, times, places.

use std::{collections::BTreeMap, path::Path};

use regex::{Captures, Regex};

/// Knows which id stands for which.
pub(super) struct Mask {
    folder: String,
    port: u16,
    /// The masked id for each real one.
    ids: BTreeMap<String, String>,
}

/// Times and the like: what is found, and what is written instead.
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
    (r#""revision": "\w+""#, "\"revision\": \"d148d6690a1c\""),
    (r#""rustc": "[^"]+""#, "\"rustc\": \"1.95.0\""),
    (r"process \d+", "process 4711"),
    (r"\d+ bytes", "65536 bytes"),
    (r#""bytes": \d+"#, "\"bytes\": 65536"),
    (r"\d+ rows", "12 rows"),
];

/// Ids: an optional word, and letters and digits that are new every time.
const ID_PATTERN: &str = r"(?x)
    (?P<word>call_|apr_|run_) [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}
  | (?P<thread>thread_ | thr_) [0-9a-zA-Z-]{16,36}
  | (?P<backup>toolhub-) \d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z
  | thk_ (?P<key>[0-9A-Za-z]{12}) _ [0-9A-Za-z]{43}";

impl Mask {
    pub(super) fn new(folder: &Path, port: u16) -> Self {
        Self { folder: folder.display().to_string(), port, ids: BTreeMap::new() }
    }

    /// What was printed, with everything masked.
    pub(super) fn mask(&mut self, text: &str) -> String {
        let text = text.replace(&self.folder, "/home/ann/hub").replace(&format!(":{}", self.port), ":8665");
        let text = text.replace(&format!("port {}", self.port), "port 8665");
        let found = Regex::new(ID_PATTERN).expect("the pattern is right");
        let text = found.replace_all(&text, |found: &Captures<'_>| self.mask_id(found)).into_owned();
        let known = self.ids.iter().fold(text, |text, (real, masked)| text.replace(real, masked));
        TIME_PATTERNS.iter().fold(known, |text, (found, instead)| {
            Regex::new(found).expect("the pattern is right").replace_all(&text, *instead).into_owned()
        })
    }

    fn mask_id(&mut self, found: &Captures<'_>) -> String {
        let (real, number) = (found[0].to_owned(), self.ids.len() + 1);
        if let Some(masked) = self.ids.get(&real) {
            return masked.clone();
        }
        // It was typed as nobody's id.
        if real.contains("00000000-0000-7000-8000-") {
            return real;
        }
        if found.name("backup").is_some() {
            self.ids.insert(real, format!("toolhub-2027-01-31T12-00-00-{number:03}Z"));
            return format!("toolhub-2027-01-31T12-00-00-{number:03}Z");
        }
        let masked = match (found.name("word"), found.name("thread"), found.name("key")) {
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

    /// What is typed, with every masked id as it really is.
    pub(super) fn unmask(&self, typed: &str) -> String {
        // A whole key before the id inside it.
        let mut known: Vec<(&String, &String)> = self.ids.iter().collect();
        known.sort_by_key(|(_, masked)| std::cmp::Reverse(masked.len()));
        let typed = typed.replace("/home/ann/hub", &self.folder);
        known.into_iter().fold(typed, |typed, (real, masked)| typed.replace(masked, real))
    }
}
