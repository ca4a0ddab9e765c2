//! Prints the measurements with their targets.

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
    println!("\n{:<58} {:>10} {:>10}  target (resident)", "bytes per entry", "allocated", "resident");
    for EntrySize { storage, size, allocated, resident } in bytes {
        let limit = match (*storage, *size) {
            ("Memory::commit", 64) => Some(("≤ 240", 240.0)),
            ("Memory::commit", size) => Some(("≤ 1.15 × its size", 1.15 * size as f64)),
            _ => None,
        };
        let target = limit.map_or_else(String::new, |(text, limit)| format!("{text}  {}", verdict(*resident <= limit)));
        println!("{:<58} {allocated:>10.0} {resident:>10.0}  {target}", format!("{storage}, {size} bytes"));
    }
}

fn print_growth(growth: &[(&str, Vec<f64>)]) {
    println!("\n{:<30} {}  last over first, target 0.8–1.2", "ns by number of contexts", columns(&COUNTS));
    for (request, nanos) in growth {
        let rounded: Vec<usize> = nanos.iter().map(|nanos| nanos.round() as usize).collect();
        let ratio = nanos[nanos.len() - 1] / nanos[0];
        println!("{request:<30} {}  {ratio:.2}  {}", columns(&rounded), verdict((0.8..=1.2).contains(&ratio)));
    }
}

fn print_rates(update: &[(String, f64)]) {
    println!("\n{:<58} {:>10} {:>10}  target", "one round trip with a typed document of 1 KiB", "µs", "× map rate");
    let Some((_, baseline)) = update.iter().find(|(name, _)| name == BASELINE) else { return };
    for (name, nanos) in update {
        let rate = baseline / nanos;
        let target = TARGETS.iter().find(|(path, _)| path == name);
        let target = target.map_or_else(String::new, |(_, min)| format!("≥ {min}  {}", verdict(rate >= *min)));
        println!("{name:<58} {:>10.2} {rate:>10.2}  {target}", nanos / 1000.0);
    }
}

fn columns(numbers: &[usize]) -> String {
    numbers.iter().map(|number| format!("{number:>9}")).collect()
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
