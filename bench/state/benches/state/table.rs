//! Prints what was measured beside its targets.

use crate::{
    growth::COUNTS,
    memory::EntrySize,
    update::{BASELINE, TARGETS},
};

pub(crate) fn print(bytes: &[EntrySize], growth: &[(&str, Vec<f64>)], update: &[(String, f64)]) {
    print_memory(bytes);
    print_growth(growth);
    print_rates(update);
}

fn print_memory(bytes: &[EntrySize]) {
    println!("\n{:<58} {:>10} {:>10}  target (resident)", "bytes for each entry", "asked for", "resident");
    for EntrySize { storage: way, size, allocated: asked, resident } in bytes {
        let most = match (*way, *size) {
            ("Memory::commit", 64) => Some(("≤ 240", 240.0)),
            ("Memory::commit", size) => Some(("≤ 1.15 × its size", 1.15 * size as f64)),
            _ => None,
        };
        let target = most.map_or_else(String::new, |(text, most)| format!("{text}  {}", verdict(*resident <= most)));
        println!("{:<58} {asked:>10.0} {resident:>10.0}  {target}", format!("{way}, {size} bytes"));
    }
}

fn print_growth(growth: &[(&str, Vec<f64>)]) {
    println!("\n{:<30} {}  last over first, target 0.8–1.2", "ns among so many contexts", columns(&COUNTS));
    for (request, nanos) in growth {
        let whole: Vec<usize> = nanos.iter().map(|nanos| nanos.round() as usize).collect();
        let ratio = nanos[nanos.len() - 1] / nanos[0];
        println!("{request:<30} {}  {ratio:.2}  {}", columns(&whole), verdict((0.8..=1.2).contains(&ratio)));
    }
}

fn print_rates(update: &[(String, f64)]) {
    println!("\n{:<58} {:>10} {:>10}  target", "one round trip with a typed document of 1 KiB", "µs", "× bare rate");
    let Some((_, bare)) = update.iter().find(|(name, _)| name == BASELINE) else { return };
    for (name, nanos) in update {
        let rate = bare / nanos;
        let target = TARGETS.iter().find(|(path, _)| path == name);
        let target = target.map_or_else(String::new, |(_, least)| format!("≥ {least}  {}", verdict(rate >= *least)));
        println!("{name:<58} {:>10.2} {rate:>10.2}  {target}", nanos / 1000.0);
    }
}

fn columns(numbers: &[usize]) -> String {
    numbers.iter().map(|number| format!("{number:>9}")).collect()
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
