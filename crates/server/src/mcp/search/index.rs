//! An index of tools by the terms that describe them.
//!
//! In: tools, and a question in words. Out: the tools that match best, best first. A tool's score is BM25F (rare terms count more than
//! common ones, and terms of the name more than those of the description), times how much of the question it covers, how much of
//! its name and title the question explains, and whether it does what the question wants. No model.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BinaryHeap, HashMap},
};

use smol_str::SmolStr;
use toolhub_core::{Tool, ToolName};

use super::{
    document::{self, Document, FIELDS, NAME, TITLE},
    intent::{self, Intent},
    stem::stem,
    vocabulary, words,
};

/// How fast repetitions of a term stop to count.
const SATURATION: f32 = 1.2;
/// How much a term counts that means the same as one of the question.
const ALTERNATIVE: f32 = 0.5;
/// How much a verb counts, compared to what it is done to.
const VERB: f32 = 0.7;
/// By how much rare terms count more than common ones: 0 not at all, 1 by their information.
const RARITY: f32 = 0.8;
/// The share of a score that depends on how much of the question is covered, and on how much of the heading is explained.
const COVERAGE: f32 = 0.3;
const EXPLANATION: f32 = 0.4;

/// The terms of a set of tools.
#[derive(Debug, Default)]
pub(crate) struct SearchIndex {
    tools: Vec<IndexedTool>,
    /// The tools of each term.
    postings: BTreeMap<SmolStr, Vec<Posting>>,
}

#[derive(Debug)]
struct IndexedTool {
    name: ToolName,
    intent: Option<Intent>,
    /// How much all terms of its name and title count.
    heading: f32,
}

#[derive(Debug)]
struct Posting {
    tool: usize,
    /// How much the term counts there.
    weight: f32,
    /// Whether it is a term of the name or title.
    is_in_heading: bool,
}

/// What a question has found for one tool.
#[derive(Clone, Copy, Default)]
struct Score {
    matched: f32,
    covered: f32,
    explained: f32,
}

/// A found tool; the greatest is the best.
struct RankedTool<'a> {
    score: f32,
    name: &'a ToolName,
}

impl SearchIndex {
    #[allow(clippy::cast_precision_loss, reason = "far fewer words than would lose precision")]
    pub(crate) fn new<'a>(tools: impl IntoIterator<Item = &'a Tool>) -> Self {
        let documents = document::documents(tools);
        let count = documents.len().max(1) as f32;
        let average =
            |field: usize| documents.iter().map(|document| document.fields[field].len() as f32).sum::<f32>() / count;
        let averages: [f32; FIELDS.len()] = std::array::from_fn(average);
        let mut index = Self::default();
        for (tool, document) in documents.into_iter().enumerate() {
            let mut weights: HashMap<&SmolStr, f32> = HashMap::new();
            for ((terms, field), average) in document.fields.iter().zip(&FIELDS).zip(averages) {
                let length = terms.len() as f32 / average.max(f32::MIN_POSITIVE);
                let weight = field.weight / (1.0 - field.length_weight + field.length_weight * length);
                terms.iter().for_each(|term| *weights.entry(term).or_default() += weight);
            }
            for (term, weight) in weights {
                let is_in_heading = document.fields[NAME].contains(term) || document.fields[TITLE].contains(term);
                let posting = Posting { tool, weight, is_in_heading };
                index.postings.entry(term.clone()).or_default().push(posting);
            }
            let Document { name, intent, .. } = document;
            index.tools.push(IndexedTool { name, intent, heading: 0.0 });
        }
        let Self { tools, postings } = &mut index;
        for postings in postings.values() {
            let rarity = rarity(postings.len(), tools.len());
            let in_heading = postings.iter().filter(|posting| posting.is_in_heading);
            in_heading.for_each(|posting| tools[posting.tool].heading += rarity);
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
        let plain_words: Vec<SmolStr> = words::plain_words(question).collect();
        let meant = vocabulary::without_phrases(&plain_words).into_iter().flat_map(words::with_reversed);
        let meant: Vec<SmolStr> = meant.collect();
        let wanted = intent::of_question(&meant);
        let (scores, total) = self.scores(&meant);
        let ranked = self.tools.iter().zip(scores).filter(|(_, score)| score.matched > 0.0).map(|(tool, score)| {
            let coverage = 1.0 - COVERAGE + COVERAGE * score.covered / total;
            let explanation = 1.0 - EXPLANATION + EXPLANATION * score.explained / tool.heading.max(f32::MIN_POSITIVE);
            let score = score.matched * coverage * explanation * wanted.fit(tool.intent);
            RankedTool { score, name: &tool.name }
        });
        let mut ranked: BinaryHeap<RankedTool<'_>> = ranked.collect();
        let best_first = std::iter::from_fn(|| ranked.pop()).map(|tool| tool.name);
        best_first.filter(|name| is_visible(name)).take(limit).collect()
    }

    /// What the words of a question count for each tool, and what they would count for one that has them all.
    fn scores(&self, words: &[SmolStr]) -> (Vec<Score>, f32) {
        let mut scores = vec![Score::default(); self.tools.len()];
        let mut total = 0.0;
        // The terms that were looked up, with how much they count.
        let mut factors: BTreeMap<SmolStr, f32> = BTreeMap::new();
        let mut terms: Vec<SmolStr> = Vec::new();
        for term in words.iter().filter(|word| !words::is_stop_word(word)).map(|word| stem(word)) {
            if !terms.contains(&term) {
                terms.push(term);
            }
        }
        for term in terms {
            let alternatives = vocabulary::alternatives(&term).iter().map(|alternative| (alternative, ALTERNATIVE));
            let mut weights = vec![0.0_f32; self.tools.len()];
            for (term, factor) in [(&term, 1.0)].into_iter().chain(alternatives) {
                for posting in self.postings.get(term).into_iter().flatten() {
                    let weight = &mut weights[posting.tool];
                    *weight = weight.max(factor * posting.weight);
                }
                let known = factors.entry(term.clone()).or_default();
                *known = known.max(factor);
            }
            let found = weights.iter().filter(|weight| **weight > 0.0).count();
            if found == 0 {
                continue;
            }
            let counts = rarity(found, self.tools.len()) * if intent::is_verb(&term) { VERB } else { 1.0 };
            total += counts;
            for (score, weight) in scores.iter_mut().zip(weights).filter(|(_, weight)| *weight > 0.0) {
                let saturated = weight * (SATURATION + 1.0) / (weight + SATURATION);
                score.matched += counts * saturated;
                score.covered += counts * saturated.min(1.0);
            }
        }
        for (term, factor) in factors {
            let postings = self.postings.get(&term).map_or(&[][..], Vec::as_slice);
            let rarity = rarity(postings.len(), self.tools.len());
            let in_heading = postings.iter().filter(|posting| posting.is_in_heading);
            in_heading.for_each(|posting| scores[posting.tool].explained += factor * rarity);
        }
        (scores, total)
    }
}

/// How much a term counts that this many of all tools have.
#[allow(clippy::cast_precision_loss, reason = "far fewer tools than would lose precision")]
fn rarity(with: usize, all: usize) -> f32 {
    let (with, all) = (with as f32, all as f32);
    (1.0 + (all - with + 0.5) / (with + 0.5)).ln().powf(RARITY)
}

impl Ord for RankedTool<'_> {
    /// Equal ones by name, which is the order of the list.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.name.cmp(self.name))
    }
}

impl PartialOrd for RankedTool<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankedTool<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for RankedTool<'_> {}
