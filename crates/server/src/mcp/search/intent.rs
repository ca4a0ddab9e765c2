//! What a question wants to do, and what a tool does: read, create, change, remove.
//!
//! In: the words of a question, or of a tool's title and name. Out: an intent, and how well two of them fit.

use std::{collections::HashMap, sync::LazyLock};

use smol_str::SmolStr;

use super::{stem::stem, words::is_stop_word};

/// How much better a tool fits that does what the question wants, and how much worse one that does something else.
const SAME: f32 = 0.4;
const OTHER: f32 = 0.3;
/// How much the intent counts of a question that has no verb, and so is likely to want to read.
const WITHOUT_VERB: f32 = 0.2;
/// Number of words at the beginning of a title among which its verb is.
const MAX_VERB_POSITION: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    /// Read several things.
    List,
    /// Read one thing.
    Get,
    Create,
    Update,
    Delete,
    /// Any other change.
    Act,
}

/// What a question wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Wanted {
    intent: Intent,
    /// How much it counts.
    weight: f32,
}

const VERBS: [(Intent, &str); 6] = [
    (Intent::List, "list enumerate"),
    (
        Intent::Get,
        "get show read view see display fetch retrieve check look find search download describe know tell inspect browse compare count \
         test verify export explain",
    ),
    (
        Intent::Create,
        "create add start upload register send write begin post submit publish store save give define invite generate launch request ask \
         insert open attach import copy fork report record reply answer comment put tag",
    ),
    (
        Intent::Update,
        "update change edit modify set rename replace alter adjust move enable mark turn switch convert configure choose decide raise \
         lower fix correct extend protect close reopen lock pin archive assign",
    ),
    (
        Intent::Delete,
        "delete remove drop clear erase revoke destroy unset discard strip dismiss free unassign uninstall unlink dissolve detach",
    ),
    (
        Intent::Act,
        "make let allow permit stop cancel abort end kill pause disable block ban forbid prevent merge combine transfer approve accept \
         confirm reject decline refuse run rerun retry restart execute trigger restore recover revert follow unfollow watch star unstar \
         like subscribe unsubscribe mute ignore hide share grant apply join leave use keep bring take restrict limit suspend resume \
         unlock unblock commit push deploy require",
    ),
];

static BY_VERB: LazyLock<HashMap<&str, Intent>> = LazyLock::new(|| {
    let verbs = VERBS.iter().flat_map(|(intent, verbs)| verbs.split(' ').map(|verb| (verb, *intent)));
    verbs.collect()
});
static BY_TERM: LazyLock<HashMap<SmolStr, Intent>> =
    LazyLock::new(|| BY_VERB.iter().map(|(verb, intent)| (stem(verb), *intent)).collect());

/// First words of a question that wants to know something.
const QUESTION_WORDS: &[&str] = &[
    "are", "can", "count", "did", "does", "had", "has", "have", "is", "may", "must", "should", "was", "were", "what",
    "when", "where", "whether", "which", "who", "whom", "whose",
];
/// Words after `how` in such a question. `How do I …` wants to do something.
const AFTER_HOW: &[&str] =
    &["are", "big", "did", "does", "far", "fast", "is", "large", "long", "often", "old", "was", "were"];
/// Words before the verb of a sentence.
const BEFORE_VERB: &[&str] = &["and", "i", "me", "please", "to", "we", "you"];
const PREPOSITIONS: &[&str] = &["at", "by", "for", "from", "in", "into", "of", "on", "that", "to", "with"];
/// Words that ask for several things.
const SEVERAL: &[&str] = &["all", "every", "list", "which", "who"];
/// Words that end as a plural does.
const SINGULAR: &[&str] =
    &["access", "address", "always", "details", "does", "gets", "lists", "news", "others", "settings"];

/// Whether a term is a verb of the table.
pub(super) fn is_verb(term: &str) -> bool {
    BY_TERM.contains_key(term)
}

/// What a tool does, if a word of its title or its name says so.
pub(super) fn of_tool(title: &[SmolStr], name: &[SmolStr], is_read_only: bool) -> Option<Intent> {
    let mut words = title.iter().take(MAX_VERB_POSITION).chain(name);
    let intent = words.find_map(|word| BY_TERM.get(word)).copied();
    if is_read_only && !intent.is_some_and(Intent::is_read) { Some(Intent::Get) } else { intent }
}

/// What a question wants.
pub(super) fn of_question(words: &[SmolStr]) -> Wanted {
    let is_skipped = |word: &SmolStr| word == "please" || PREPOSITIONS.contains(&word.as_str());
    let words = &words[words.iter().take_while(|word| is_skipped(word)).count()..];
    let (intent, weight) = if asks(words) {
        (Intent::Get, 1.0)
    } else {
        verb_of(words).map_or((Intent::Get, WITHOUT_VERB), |intent| (intent, 1.0))
    };
    let intent = match intent {
        Intent::List | Intent::Get if is_about_several(words) => Intent::List,
        Intent::List | Intent::Get => Intent::Get,
        change => change,
    };
    Wanted { intent, weight }
}

/// Whether a sentence is a question: `which …`, `is …`, but not `can you …` or `how do I …`.
fn asks(words: &[SmolStr]) -> bool {
    let second = words.get(1).map_or("", SmolStr::as_str);
    match words.first().map_or("", SmolStr::as_str) {
        "how" => AFTER_HOW.contains(&second),
        first => QUESTION_WORDS.contains(&first) && second != "you",
    }
}

/// The verb of a command: its first word that says something, or a word after `to`, `and` and the like.
fn verb_of(words: &[SmolStr]) -> Option<Intent> {
    let is_verb_position = |at: usize| {
        words[..at].last().is_none_or(|before| BEFORE_VERB.contains(&before.as_str()))
            || words[..at].iter().all(|word| is_stop_word(word))
    };
    (0..words.len()).filter(|at| is_verb_position(*at)).find_map(|at| BY_VERB.get(words[at].as_str()).copied())
}

/// Whether the words before the first preposition are about several things.
fn is_about_several(words: &[SmolStr]) -> bool {
    let is_plural = |word: &str| {
        word.len() > 3
            && word.ends_with('s')
            && !["ss", "us", "is", "as"].iter().any(|end| word.ends_with(end))
            && !SINGULAR.contains(&word)
    };
    let mut object = words.iter().take_while(|word| !PREPOSITIONS.contains(&word.as_str()));
    object.any(|word| SEVERAL.contains(&word.as_str()) || is_plural(word))
}

impl Intent {
    fn is_read(self) -> bool {
        matches!(self, Self::List | Self::Get)
    }
}

impl Wanted {
    /// What the score of a tool that does this is multiplied with.
    pub(super) fn fit(self, tool: Option<Intent>) -> f32 {
        let (wanted, Some(tool)) = (self.intent, tool) else { return 1.0 };
        let is_one = |intent: Intent| wanted == intent || tool == intent;
        let differs =
            wanted.is_read() != tool.is_read() || (wanted != tool && is_one(Intent::Delete) && !is_one(Intent::Act));
        if differs {
            1.0 - OTHER * self.weight
        } else if wanted == tool && wanted != Intent::Act {
            1.0 + SAME * self.weight
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Intent, WITHOUT_VERB, Wanted, of_question, of_tool};
    use crate::mcp::search::words::{plain_words, terms};

    #[track_caller]
    fn check(question: &str, intent: Intent, weight: f32) {
        let words: Vec<_> = plain_words(question).collect();
        assert_eq!(of_question(&words), Wanted { intent, weight }, "{question}");
    }

    #[test]
    fn the_form_of_a_question_says_what_it_wants() {
        check("which files are there", Intent::List, 1.0);
        check("is the file there", Intent::Get, 1.0);
        check("in which folder is it", Intent::List, 1.0);
        check("how old is the file", Intent::Get, 1.0);
        check("how do I delete a file", Intent::Delete, 1.0);
        check("please remove the old files", Intent::Delete, 1.0);
        check("I want to create a file", Intent::Create, 1.0);
        check("can you rename a file", Intent::Update, 1.0);
        check("show my files", Intent::List, 1.0);
        check("merge two files", Intent::Act, 1.0);
        check("files of a folder", Intent::List, WITHOUT_VERB);
        check("", Intent::Get, WITHOUT_VERB);
    }

    #[test]
    fn a_tool_is_what_its_title_or_name_says() {
        let intent = |title: &str, name: &str, is_read_only: bool| {
            of_tool(&terms(title).collect::<Vec<_>>(), &terms(name).collect::<Vec<_>>(), is_read_only)
        };
        assert_eq!(intent("Removes a file", "files_x", false), Some(Intent::Delete));
        assert_eq!(intent("", "files_list", false), Some(Intent::List));
        assert_eq!(intent("Weather", "weather", true), Some(Intent::Get));
        assert_eq!(intent("Weather", "weather", false), None);
    }
}
