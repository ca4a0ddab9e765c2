//! Benchmarks of state: memory per entry, latency by number of contexts, and ratios to a plain map.
//!
//! In: nothing, or which of `memory`, `growth` and `update` to measure. Out: JSON lines and a table of ratios with targets. Each memory
//! measurement runs in its own subprocess of this program, because memory freed by one would hide what the next one takes.
#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first unexpected error")]

mod alloc;
mod document;
mod growth;
mod measure;
mod memory;
mod table;
mod update;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["bytes", case] = args[..] {
        return memory::measure_and_print(case);
    }
    let is_selected = |part: &str| args.is_empty() || args.contains(&part);
    let (memory, growth, update) = (is_selected("memory"), is_selected("growth"), is_selected("update"));
    table::print(
        &memory.then(memory::measure_all).unwrap_or_default(),
        &growth.then(growth::measure_all).unwrap_or_default(),
        &update.then(update::measure_all).unwrap_or_default(),
    );
}
