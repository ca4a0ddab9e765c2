//! The test data: a document of about 1 KiB, and objects of an exact size.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolhub::{ContextId, ids::StateName, ids::ThreadId, prelude::ToolState};

/// A typical tool state: a counter, some text, a list of items.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Document {
    pub(crate) count: u64,
    title: String,
    items: Vec<Item>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Item {
    name: String,
    amount: u32,
    price: f64,
    note: String,
}

impl Default for Document {
    /// About 1 KiB of JSON.
    fn default() -> Self {
        let item = |n: u32| Item {
            name: format!("item number {n}"),
            amount: n,
            price: f64::from(n) * 1.25,
            note: "as ordered by telephone last week".into(),
        };
        Self {
            count: 0,
            title: "what this conversation has put into its cart".into(),
            items: (0..9).map(item).collect(),
        }
    }
}

impl ToolState for Document {
    const NAME: &'static str = "cart";
}

/// The context with this number. Its id has 23 bytes.
pub(crate) fn context(number: usize) -> ContextId {
    ContextId::of(thread(number), StateName::new("cart").unwrap())
}

pub(crate) fn thread(number: usize) -> ThreadId {
    ThreadId::new(format!("thread-{number:011}")).unwrap()
}

/// A JSON object whose text has exactly this many bytes.
pub(crate) fn object_of_size(bytes: usize) -> Value {
    let padded = |padding: usize| json!({"count": 1, "pad": "x".repeat(padding)});
    let empty = padded(0).to_string().len();
    padded(bytes - empty)
}
