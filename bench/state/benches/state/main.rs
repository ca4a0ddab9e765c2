//! What remembering costs: bytes for each entry, time by the number of contexts, and ratios to a bare map.
//!
//! In: nothing, or which of `memory`, `growth` and `update` to measure. Out: JSON lines and a table of ratios with targets. Each count of bytes is made in a process of its own,
//! which this one starts with the name of what is counted: what one has freed must not hide what the next one takes.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops where it stands")]

mod alloc;
mod document;
mod growth;
mod measure;
mod memory;
mod table;
mod update;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["bytes", what] = words[..] {
        return memory::measure_and_print(what);
    }
    let wanted = |part: &str| words.is_empty() || words.contains(&part);
    let (bytes, growth, update) = (wanted("memory"), wanted("growth"), wanted("update"));
    table::print(
        &bytes.then(memory::measure_all).unwrap_or_default(),
        &growth.then(growth::measure_all).unwrap_or_default(),
        &update.then(update::measure_all).unwrap_or_default(),
    );
}
