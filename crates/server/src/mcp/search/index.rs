//! An index of tools by the words that describe them.
//!
//! In: tools, and a question in words. Out: the tools that match best, by BM25F: rare words count more than common
//! ones, and words of the name more than those of the description. No model.

use std::collections::HashMap;

use serde_json::Value;
use smol_str::SmolStr;
use toolhub_core::{Tool, ToolName};

use super::words::{self, Words};

/// Where a word stands in a tool.
struct Field {
    /// How much its words count.
    weight: f32,
    /// How much a long text is discounted: 0 not at all, 1 by its length.
    length_weight: f32,
}

const NAME: usize = 0;
const TITLE: usize = 1;
const TAG: usize = 2;
const DESCRIPTION: usize = 3;
const ARGUMENT: usize = 4;
const ARGUMENT_DESCRIPTION: usize = 5;
const FIELDS: [Field; 6] = [
    Field { weight: 4.0, length_weight: 0.3 },
    Field { weight: 2.0, length_weight: 0.3 },
    Field { weight: 1.5, length_weight: 0.0 },
    Field { weight: 1.0, length_weight: 0.6 },
    Field { weight: 0.5, length_weight: 0.6 },
    Field { weight: 0.1, length_weight: 0.7 },
];
/// How fast repetitions of a word stop to count.
const SATURATION: f32 = 1.2;
/// How much a word counts that means the same as one of the question.
const SYNONYM: f32 = 0.7;

/// The words of a set of tools.
#[derive(Debug, Default)]
pub(crate) struct SearchIndex {
    names: Vec<ToolName>,
    /// The tools of each word, with how much the word counts there.
    postings: HashMap<SmolStr, Vec<(usize, f32)>>,
}

impl SearchIndex {
    #[allow(clippy::cast_precision_loss, reason = "far fewer words than would lose precision")]
    pub(crate) fn new<'a>(tools: impl IntoIterator<Item = &'a Tool>) -> Self {
        let documents: Vec<(ToolName, [Vec<SmolStr>; FIELDS.len()])> =
            tools.into_iter().map(|tool| (tool.definition.name.clone(), words_of(tool))).collect();
        let count = documents.len().max(1) as f32;
        let average = |field: usize| documents.iter().map(|(_, words)| words[field].len() as f32).sum::<f32>() / count;
        let averages: [f32; FIELDS.len()] = std::array::from_fn(average);
        let mut index = Self::default();
        for (number, (name, fields)) in (0..).zip(documents) {
            let mut weights: HashMap<SmolStr, f32> = HashMap::new();
            for ((words, field), average) in fields.into_iter().zip(&FIELDS).zip(averages) {
                let length = words.len() as f32 / average.max(f32::MIN_POSITIVE);
                let weight = field.weight / (1.0 - field.length_weight + field.length_weight * length);
                words.into_iter().for_each(|word| *weights.entry(word).or_default() += weight);
            }
            for (word, weight) in weights {
                let counts = weight * (SATURATION + 1.0) / (weight + SATURATION);
                index.postings.entry(word).or_default().push((number, counts));
            }
            index.names.push(name);
        }
        index
    }

    /// The tools that match a question best, best first, of those that `is_visible` admits.
    pub(crate) fn search(
        &self,
        question: &str,
        limit: usize,
        is_visible: impl Fn(&ToolName) -> bool,
    ) -> Vec<&ToolName> {
        let mut scores = vec![0.0_f32; self.names.len()];
        for word in Words::of(question).distinct() {
            let of_word = self.scores_of(&word);
            scores.iter_mut().zip(of_word).for_each(|(score, more)| *score += more);
        }
        let mut found: Vec<(usize, f32)> = scores
            .into_iter()
            .enumerate()
            .filter(|(number, score)| *score > 0.0 && is_visible(&self.names[*number]))
            .collect();
        // Equal ones by name, which is the order of the list.
        found.sort_by(|(a, x), (b, y)| y.total_cmp(x).then_with(|| self.names[*a].cmp(&self.names[*b])));
        found.into_iter().take(limit).map(|(number, _)| &self.names[number]).collect()
    }

    /// What one word of a question counts for each tool: the word itself, or the best of those that mean the same.
    fn scores_of(&self, word: &str) -> Vec<f32> {
        let mut scores = vec![0.0_f32; self.names.len()];
        let alternatives = words::synonyms(word).map(|synonym| (synonym, SYNONYM));
        for (term, factor) in [(word, 1.0)].into_iter().chain(alternatives) {
            let Some(postings) = self.postings.get(term) else { continue };
            let rarity = self.rarity(postings.len());
            for (tool, counts) in postings {
                let score = &mut scores[*tool];
                *score = score.max(factor * rarity * counts);
            }
        }
        scores
    }

    /// How much a word counts that this many tools have.
    #[allow(clippy::cast_precision_loss, reason = "far fewer tools than would lose precision")]
    fn rarity(&self, tools: usize) -> f32 {
        let (all, with) = (self.names.len() as f32, tools as f32);
        (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
    }
}

/// The words of a tool, by field.
fn words_of(tool: &Tool) -> [Vec<SmolStr>; FIELDS.len()] {
    let definition = &tool.definition;
    let mut fields: [Vec<SmolStr>; FIELDS.len()] = Default::default();
    let mut add = |field: usize, text: &str| fields[field].extend(Words::of(text));
    add(NAME, definition.name.as_str());
    add(TITLE, definition.annotations.title.as_deref().unwrap_or_default());
    definition.metadata.tags.iter().for_each(|tag| add(TAG, tag));
    add(DESCRIPTION, &definition.description);
    let properties = definition.parameters.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        add(ARGUMENT, name);
        add(ARGUMENT_DESCRIPTION, schema.get("description").and_then(Value::as_str).unwrap_or_default());
    }
    fields
}
