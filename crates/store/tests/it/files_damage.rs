//! Damaged and foreign files are quarantined and the others served; no damaged file causes a panic.

use std::{
    fs,
    path::{Path, PathBuf},
};

use fastrand::Rng;
use toolhub_storage::backend::{Backend, Expect, Scan, Scope, StoreError, Table, Write};
use toolhub_store::{
    Files,
    files::{OpenError, Options},
};
use toolhub_testkit::{TempFolder, soak};

use crate::fixtures::{NOW, commit, get, put};

const CONTEXTS: usize = 24;
/// Number of files damaged per round.
const DAMAGED_PER_ROUND: usize = 10;

fn value(n: usize) -> Vec<u8> {
    format!("{{\"value\":\"{}\"}}", format!("{n} ").repeat(1 + n * 5)).into_bytes()
}

/// A store with two dozen contexts, each with a state and a history.
async fn create_filled(folder: &Path) {
    for compression in [false, true] {
        let store = Files::open(folder, Options { compression, backups: None }).unwrap();
        for n in (0..CONTEXTS).filter(|n| (n % 2 == 0) == compression) {
            let mut entry = put(&format!("s{n}/0001"), b"{\"type\":\"note\"}");
            entry.table = Table::History;
            let writes = vec![put(&format!("s{n}/business"), &value(n)), entry];
            commit(&store, &format!("t{}", n % 4), writes).await.unwrap();
        }
    }
}

/// The files of all contexts, by their number.
fn context_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = vec![PathBuf::new(); CONTEXTS];
    for subfolder in fs::read_dir(folder.join("contexts")).unwrap() {
        for file in fs::read_dir(subfolder.unwrap().path()).unwrap() {
            let file = file.unwrap().path();
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let number: usize = name.split('-').nth(1).unwrap()[1..].parse().unwrap();
            files[number] = file;
        }
    }
    files
}

async fn read_value(store: &Files, n: usize) -> Result<Vec<u8>, StoreError> {
    let row = get(store, &format!("t{}", n % 4), &format!("s{n}/business")).await?;
    Ok(row.unwrap_or_else(|| panic!("context {n} is missing")).value.to_vec())
}

/// Changes the content; every change must be detected.
fn mutate(content: &mut Vec<u8>, random: &mut Rng) {
    let before = content.clone();
    while *content == before {
        match random.u8(0..6) {
            0 => content.truncate(random.usize(0..content.len())),
            1 => {
                let (at, length) = (random.usize(0..content.len()), random.usize(1..64));
                let end = (at + length).min(content.len());
                content[at..end].fill(random.u8(..));
            }
            2 => content.extend(std::iter::repeat_with(|| random.u8(..)).take(1 + before.len() % 50)),
            3 => {
                let at = random.usize(0..content.len());
                content.remove(at);
            }
            _ => {
                for _ in 0..random.usize(1..8) {
                    let at = random.usize(0..content.len());
                    content[at] = random.u8(..);
                }
            }
        }
    }
}

#[tokio::test]
async fn no_mutation_of_a_file_is_served_and_no_other_file_suffers() {
    let folder = TempFolder::in_memory();
    let path = folder.join("state");
    create_filled(&path).await;
    let files = context_files(&path);
    let intact: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let mutants = soak(2_000, 5_000);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    for round in 0..mutants / DAMAGED_PER_ROUND as u64 {
        let mut random = Rng::with_seed(seed.wrapping_add(round));
        let mut numbers: Vec<usize> = (0..CONTEXTS).collect();
        random.shuffle(&mut numbers);
        let damaged_numbers = &numbers[..DAMAGED_PER_ROUND];
        for n in damaged_numbers {
            let mut content = intact[*n].clone();
            mutate(&mut content, &mut random);
            fs::write(&files[*n], &content).unwrap();
        }
        let store = Files::open(&path, Options::default()).unwrap();
        for (n, file) in files.iter().enumerate() {
            match read_value(&store, n).await {
                Ok(found) => {
                    assert_eq!(found, value(n), "round {round}");
                    // An empty frame, or a bit that zstd ignores, is not damage.
                    let is_compressed = file.extension().unwrap() == "zst";
                    assert!(!damaged_numbers.contains(&n) || is_compressed, "round {round}: context {n} was served");
                }
                Err(StoreError::Damaged { .. }) if damaged_numbers.contains(&n) => {}
                Err(error) => panic!("round {round}, context {n}: {error}"),
            }
        }
        let quarantined = |n: usize| PathBuf::from(format!("{}.damaged", files[n].display()));
        let mut damaged: Vec<PathBuf> = store.quarantined_files().into_iter().map(|damaged| damaged.file).collect();
        let mut expected: Vec<PathBuf> =
            damaged_numbers.iter().map(|n| quarantined(*n)).filter(|path| path.exists()).collect();
        damaged.sort();
        expected.sort();
        assert_eq!(damaged, expected, "round {round}");
        for table in [Table::State, Table::History] {
            let page = store.scan(Scan::new(table, Scope::All), NOW).await.unwrap();
            assert_eq!(page.rows.len(), CONTEXTS - damaged.len(), "round {round}: the other rows are served");
        }
        assert_eq!(store.sweep(10, NOW).await, Ok(0));
        drop(store);
        for n in damaged_numbers {
            let _ = fs::remove_file(quarantined(*n));
            fs::write(&files[*n], &intact[*n]).unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_damaged_is_told_until_it_is_written_anew() {
    let folder = TempFolder::in_memory();
    let path = folder.join("state");
    create_filled(&path).await;
    let file = context_files(&path)[5].clone();
    let content = fs::read(&file).unwrap();
    fs::write(&file, &content[..content.len() - 3]).unwrap();
    let is_damaged = |result: Result<Vec<u8>, StoreError>| matches!(result, Err(StoreError::Damaged { id, .. }) if id == "s5/business");
    for _ in 0..2 {
        let store = Files::open(&path, Options::default()).unwrap();
        assert!(is_damaged(read_value(&store, 5).await), "also after reopening the folder");
        let conditional = Write { expect: Expect::Absent, ..put("s5/business", b"1") };
        let refused = commit(&store, "t1", vec![conditional]).await;
        assert!(matches!(refused, Err(StoreError::Damaged { .. })), "a conditional write is refused: {refused:?}");
        assert!(store.damage().is_some_and(|damage| damage.contains("in quarantine: 1;")), "{:?}", store.damage());
    }
    let store = Files::open(&path, Options::default()).unwrap();
    assert_eq!(commit(&store, "t1", vec![put("s5/business", b"new")]).await, Ok(vec![1]));
    assert_eq!(store.damage(), None);
    assert_eq!(read_value(&store, 5).await, Ok(b"new".to_vec()));
    drop(store);
    let store = Files::open(&path, Options::default()).unwrap();
    assert_eq!((read_value(&store, 5).await, store.quarantined_files()), (Ok(b"new".to_vec()), Vec::new()));
    let quarantined = format!("{}.damaged", file.display());
    assert_eq!(fs::read(quarantined).unwrap(), &content[..content.len() - 3], "the quarantined file is kept");
}

#[tokio::test]
async fn what_was_set_aside_before_is_not_thrown_away() {
    let folder = TempFolder::in_memory();
    let path = folder.join("state");
    create_filled(&path).await;
    let file = context_files(&path)[5].clone();
    for n in 1..=3 {
        fs::write(&file, format!("damaged {n}")).unwrap();
        let store = Files::open(&path, Options::default()).unwrap();
        assert!(matches!(read_value(&store, 5).await, Err(StoreError::Damaged { .. })));
        let quarantined = store.quarantined_files()[0].file.clone();
        assert_eq!(fs::read_to_string(quarantined).unwrap(), format!("damaged {n}"));
        drop(store);
        // Also if only the quarantined file exists.
        let store = Files::open(&path, Options::default()).unwrap();
        assert!(matches!(read_value(&store, 5).await, Err(StoreError::Damaged { .. })));
        commit(&store, "t1", vec![put("s5/business", b"new")]).await.unwrap();
    }
    let mut quarantined: Vec<String> = fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|file| file.to_string_lossy().contains(".damaged"))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    quarantined.sort();
    assert_eq!(quarantined, ["damaged 1", "damaged 2", "damaged 3"]);
}

#[tokio::test]
async fn files_that_are_not_ours_are_set_aside_or_left_alone() {
    let folder = TempFolder::in_memory();
    let path = folder.join("state");
    create_filled(&path).await;
    let files = context_files(&path);
    let sibling = |n: usize, name: &str| files[n].with_file_name(name);
    fs::copy(&files[3], sibling(3, "copy-of-it.json")).unwrap();
    fs::write(sibling(4, "notes.json"), "{\"a\": 1}").unwrap();
    fs::write(sibling(4, "notes.txt"), "mine").unwrap();
    fs::write(path.join("contexts/zz"), "a file where folders are").unwrap();
    fs::write(path.join("new/17"), "left behind").unwrap();
    fs::write(path.join("new/intent"), "toolhub-intent 1 00000000\n[]\n").unwrap();
    let store = Files::open(&path, Options::default()).unwrap();
    let mut damaged: Vec<PathBuf> = store.quarantined_files().into_iter().map(|damaged| damaged.file).collect();
    damaged.sort();
    let mut expected = vec![sibling(3, "copy-of-it.json.damaged"), sibling(4, "notes.json.damaged")];
    expected.sort();
    assert_eq!(damaged, expected);
    assert!(sibling(4, "notes.txt").exists());
    assert_eq!(fs::read_dir(path.join("new")).unwrap().count(), 0);
    for n in 0..CONTEXTS {
        assert_eq!(read_value(&store, n).await, Ok(value(n)));
    }
    // A file is deleted while the store is open.
    drop(store);
    let store = Files::open(&path, Options::default()).unwrap();
    fs::remove_file(&files[7]).unwrap();
    assert!(matches!(read_value(&store, 7).await, Err(StoreError::Damaged { .. })));
}

/// A file of a later version, as far as this version can know it: its head has a valid checksum.
#[tokio::test]
async fn a_file_of_a_later_format_stops_the_opening_and_stays_as_it_is() {
    let folder = TempFolder::in_memory();
    let path = folder.join("state");
    create_filled(&path).await;
    let file = context_files(&path)[1].clone();
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replacen("toolhub-state 1", "toolhub-state 2", 1);
    let (begin, rest) = text.split_once("\",\n  \"checksum\": \"").unwrap();
    let (head, rows) = rest[17..].split_once(",\n  \"states\": [").unwrap();
    let first = crc32(&[begin, head].concat());
    let later = format!("{begin}\",\n  \"checksum\": \"{first:08x} 00000000{head},\n  \"states\": [{rows}");
    fs::write(&file, &later).unwrap();
    let refused = Files::open(&path, Options::default()).unwrap_err();
    assert!(matches!(&refused, OpenError::Newer { file: named, found: 2, known: 1 } if *named == file), "{refused}");
    assert_eq!(fs::read_to_string(&file).unwrap(), later);
}

fn crc32(text: &str) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 })
    };
    !text.as_bytes().iter().fold(u32::MAX, step)
}
