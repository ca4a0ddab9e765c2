//! The files of the dashboard, which are part of the binary.
//!
//! In: the build in the folder `ui`. Out: the page, and the files it loads, with a version that changes whenever one of them does. Decides
//! nothing about requests.

use std::{io::Write, sync::OnceLock};

use axum::body::Bytes;
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest as _, Sha256};
use toolhub_core::digest;

/// The page, with the markers `{{base}}` and `{{version}}`.
const INDEX: &str = include_str!("../ui/index.html");
/// The files that the page loads.
const ASSETS: &[(&str, &[u8])] = &[
    ("app.css", include_bytes!("../ui/app.css")),
    ("app.js", include_bytes!("../ui/app.js")),
    ("icon.svg", include_bytes!("../ui/icon.svg")),
    ("worker.js", include_bytes!("../ui/worker.js")),
];
/// How many hexadecimal digits of a hash name a version.
const VERSION_DIGITS: usize = 16;

/// A file that the page loads.
pub(crate) struct Asset {
    pub(crate) name: &'static str,
    pub(crate) media: &'static str,
    pub(crate) bytes: &'static [u8],
    /// The same, compressed.
    pub(crate) gzip: Bytes,
}

/// The file with this name.
pub(crate) fn asset(name: &str) -> Option<&'static Asset> {
    static FILES: OnceLock<Vec<Asset>> = OnceLock::new();
    let load = || ASSETS.iter().map(|(name, bytes)| Asset::new(name, bytes)).collect();
    FILES.get_or_init(load).iter().find(|asset| asset.name == name)
}

impl Asset {
    fn new(name: &'static str, bytes: &'static [u8]) -> Self {
        Self { name, media: media_type(name), bytes, gzip: compress(bytes) }
    }
}

/// The version of all files together.
pub(crate) fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let mut hash = Sha256::new();
        for (name, bytes) in ASSETS.iter().copied().chain([("index.html", INDEX.as_bytes())]) {
            hash.update(name);
            hash.update(bytes.len().to_be_bytes());
            hash.update(bytes);
        }
        short_hex(&hash.finalize())
    })
}

/// The page for a server whose paths begin with `base`, which must be escaped for HTML; and its entity tag.
pub(crate) fn page(base: &str) -> (String, String) {
    let page = INDEX.replace("{{base}}", base).replace("{{version}}", version());
    let tag = format!("\"{}\"", short_hex(&Sha256::digest(&page)));
    (page, tag)
}

fn short_hex(hash: &[u8]) -> String {
    let mut hex = digest::hex(hash);
    hex.truncate(VERSION_DIGITS);
    hex
}

fn compress(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing into a vector does not fail.
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.unwrap_or_default().into()
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("json" | "map" | "webmanifest") => "application/json",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_part_of_the_binary() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/ui")).unwrap();
        let mut found: Vec<String> = folder
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "index.html")
            .collect();
        found.sort_unstable();
        assert_eq!(found, ASSETS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), "list them in `ASSETS`");
    }

    #[test]
    fn the_page_names_its_files_by_version_below_its_prefix() {
        let (page, tag) = page("/hub");
        assert!(page.contains(&format!("/hub/ui/{}/app.js", version())) && !page.contains("{{"), "{page}");
        assert_ne!(tag, super::page("").1);
    }
}
