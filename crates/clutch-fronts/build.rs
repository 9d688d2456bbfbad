//! Takes the files of Swagger UI that the call front serves out of the crate that carries them, and compresses each as
//! browsers take it.

// Cargo is spoken to on standard output.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::File;
use std::io::{Cursor, Read, copy};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;
use zip::ZipArchive;

/// Paths in its source tree, below the folder with the version.
const FILES: [&str; 5] =
    ["dist/swagger-ui-bundle.js", "dist/swagger-ui.css", "dist/favicon-32x32.png", "LICENSE", "NOTICE"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let target = std::env::var("OUT_DIR")?;
    let mut archive = ZipArchive::new(Cursor::new(SWAGGER_UI_VENDORED))?;
    let paths: Vec<String> = archive.file_names().map(str::to_owned).collect();
    for wanted in FILES {
        let is_meant = |path: &&String| path.split_once('/').is_some_and(|(_, below)| below == wanted);
        let path = paths.iter().find(is_meant).ok_or_else(|| format!("Swagger UI has no {wanted}"))?;
        let name = Path::new(wanted).file_name().unwrap_or_default().to_string_lossy();
        compress(archive.by_name(path)?, &Path::new(&target).join(format!("{name}.gz")))?;
    }
    Ok(())
}

fn compress(mut from: impl Read, to: &Path) -> Result<(), Box<dyn Error>> {
    let mut encoder = GzEncoder::new(File::create(to)?, Compression::best());
    copy(&mut from, &mut encoder)?;
    encoder.finish()?;
    Ok(())
}
