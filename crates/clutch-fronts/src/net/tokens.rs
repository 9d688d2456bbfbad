//! Tokens that let a request in: the one of the configuration, or those of a file, which may change while it serves.
//!
//! A file is read at the start, at each reload, and when it has changed: a task looks once a second, by what the path
//! leads to, so that a link which is set to another file counts as a change. Where it cannot be read any more, the tokens
//! that were read last go on. What is no regular file is refused: to read a pipe could take for ever.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use clutch_host::Warnings;
use clutch_wire::sync::{Mutex, RwLock};
use rustix::fs::OFlags;

/// Largest file of tokens, and most tokens in it.
const FILE_BYTES_MAX: u64 = 64 << 10;
const TOKENS_MAX: usize = 100;

const TOKEN_BYTES_MAX: usize = 1024;

/// Interval at which a file is checked for changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A file that was changed so shortly before it was read may change again within the same tick of its clock.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// The permission that everybody may read.
const READABLE_BY_ALL: u32 = 0o004;

pub(crate) struct Tokens {
    known: RwLock<Vec<Vec<u8>>>,
    source: Option<TokenFile>,
}

/// A file of tokens.
struct TokenFile {
    /// The option that names it.
    option: String,
    path: PathBuf,
    /// Stamp of the file that was read last. None: the next look reads it, whatever it is.
    stamp: Mutex<Option<Stamp>>,
    /// Problem with the file, as it was told.
    told: Mutex<Option<String>>,
    warnings: Arc<Warnings>,
}

/// Identity and version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    /// None: it may change without another stamp.
    fn of(found: &Metadata, now: SystemTime) -> Option<Stamp> {
        let modified = (found.mtime(), found.mtime_nsec());
        let stamp = Stamp { device: found.dev(), inode: found.ino(), bytes: found.len(), modified };
        let settled = |modified| now.duration_since(modified).is_ok_and(|age| age > SETTLED_AFTER);
        found.modified().is_ok_and(settled).then_some(stamp)
    }
}

impl Tokens {
    /// `token` and `file` as the options of this front say. None: no token is needed. Needs the runtime entered, and fails
    /// where the file is none of tokens.
    pub(crate) fn new(
        front: &str,
        token: Option<&str>,
        file: Option<&str>,
        warnings: &Arc<Warnings>,
    ) -> io::Result<Option<Arc<Tokens>>> {
        let Some(path) = file else {
            let known = RwLock::new(token.map(|token| token.as_bytes().to_vec()).into_iter().collect());
            return Ok(token.map(|_| Arc::new(Tokens { known, source: None })));
        };
        let (option, path) = (format!("fronts.{front}.token_file"), PathBuf::from(path));
        let source = TokenFile::new(option, path, warnings.clone());
        let tokens = Arc::new(Tokens { known: RwLock::new(source.read()?), source: Some(source) });
        tokio::spawn(watch(Arc::downgrade(&tokens)));
        Ok(Some(tokens))
    }

    /// Compares with each, in a time that depends on lengths only.
    pub(crate) fn allow(&self, given: &[u8]) -> bool {
        self.known.read().iter().fold(false, |allowed, token| allowed | is_same(given, token))
    }

    /// The first one.
    pub(crate) fn first(&self) -> Option<String> {
        self.known.read().first().map(|token| String::from_utf8_lossy(token).into_owned())
    }

    /// Reads the file anew. Where something is wrong with it, the tokens permit. None: they come from no file.
    pub(crate) fn reload(&self) -> Option<io::Result<()>> {
        let source = self.source.as_ref()?;
        Some(source.read().map(|tokens| *self.known.write() = tokens))
    }

    /// Reads a file that has changed.
    fn look(&self) {
        if let Some(source) = self.source.as_ref().filter(|source| source.has_changed()) {
            match source.read() {
                Ok(tokens) => {
                    *self.known.write() = tokens;
                    *source.told.lock() = None;
                }
                Err(error) => source.tell(&error),
            }
        }
    }
}

/// Until nobody asks for these tokens any more.
async fn watch(tokens: Weak<Tokens>) {
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        looks.tick().await;
        let Some(tokens) = tokens.upgrade() else { return };
        // A file system that does not answer holds up this task alone.
        if tokio::task::spawn_blocking(move || tokens.look()).await.is_err() {
            return;
        }
    }
}

impl TokenFile {
    fn new(option: String, path: PathBuf, warnings: Arc<Warnings>) -> TokenFile {
        TokenFile { option, path, stamp: Mutex::default(), told: Mutex::default(), warnings }
    }

    /// Tells what is wrong once, not at each look.
    fn tell(&self, error: &io::Error) {
        let wrong = error.to_string();
        let mut told = self.told.lock();
        let is_news = told.as_ref() != Some(&wrong);
        if is_news && self.warnings.tell("token_file", || format!("{wrong}; the old tokens stay valid")) {
            *told = Some(wrong);
        }
    }

    fn has_changed(&self) -> bool {
        let found = std::fs::metadata(&self.path).ok().and_then(|found| Stamp::of(&found, SystemTime::now()));
        found.is_none() || found != *self.stamp.lock()
    }

    fn read(&self) -> io::Result<Vec<Vec<u8>>> {
        let wrong = |why: String| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{} '{}': {why}", self.option, self.path.display()))
        };
        let unreadable = |error: io::Error| wrong(format!("it cannot be read: {error}"));
        let (file, found) = open(&self.path).map_err(unreadable)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        let tokens = parse(&text).map_err(wrong)?;
        if found.mode() & READABLE_BY_ALL != 0 {
            let words = || format!("{} '{}': every user may read it; chmod 600 it", self.option, self.path.display());
            self.warnings.tell("token_file_mode", words);
        }
        *self.stamp.lock() = Stamp::of(&found, SystemTime::now());
        Ok(tokens)
    }
}

/// Never waits for whoever is to write to it.
fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let found = file.metadata()?;
    match found.is_file() {
        true => Ok((file, found)),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Reads one token from each line; empty lines, and those that begin with `#`, are none.
fn parse(text: &str) -> Result<Vec<Vec<u8>>, String> {
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    let mut tokens = Vec::new();
    for (nr, line) in text.lines().enumerate() {
        let token = line.trim();
        if token.is_empty() || token.starts_with('#') {
            continue;
        }
        if token.len() > TOKEN_BYTES_MAX || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let allowed = format!("a token is at most {TOKEN_BYTES_MAX} visible ASCII characters, without a space");
            return Err(format!("line {}: {allowed}", nr + 1));
        }
        tokens.push(token.as_bytes().to_vec());
    }
    match tokens.len() {
        0 => Err("it holds no token; write one per line, for example from: openssl rand -hex 24".to_owned()),
        count if count > TOKENS_MAX => Err(format!("it holds {count} tokens; {TOKENS_MAX} are allowed")),
        _ => Ok(tokens),
    }
}

/// Compares in a time that depends on the lengths only.
pub(super) fn is_same(given: &[u8], token: &[u8]) -> bool {
    let differing = given.iter().zip(token).fold(0, |differing, (one, other)| differing | (one ^ other));
    std::hint::black_box(differing) == 0 && given.len() == token.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<String>, String> {
        parse(text).map(|tokens| tokens.iter().map(|token| String::from_utf8_lossy(token).into_owned()).collect())
    }

    #[test]
    fn a_line_is_a_token_a_comment_or_nothing() {
        assert_eq!(parsed("# old\n\n  one \r\ntwo#2\n\t\n#three"), Ok(vec!["one".to_owned(), "two#2".to_owned()]));
        for (text, why) in [("", "no token"), ("# none\n", "no token"), ("a\nb c\n", "line 2"), ("é", "line 1")] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_file_of_tokens_has_limits() {
        let lines = |count: usize| "token\n".repeat(count);
        assert_eq!(parsed(&lines(TOKENS_MAX)).expect("tokens").len(), TOKENS_MAX);
        assert!(parsed(&lines(TOKENS_MAX + 1)).is_err());
        assert!(parsed(&"x".repeat(TOKEN_BYTES_MAX)).is_ok());
        assert!(parsed(&"x".repeat(TOKEN_BYTES_MAX + 1)).is_err());
        assert!(parsed(&"#\n".repeat(FILE_BYTES_MAX as usize)).expect_err("too long").contains("bytes"));
    }

    #[test]
    fn each_token_is_compared_whole() {
        let known = ["one", "second"].map(|token| token.as_bytes().to_vec()).to_vec();
        let tokens = Tokens { known: RwLock::new(known), source: None };
        assert!(tokens.allow(b"one") && tokens.allow(b"second"));
        for given in ["", "on", "ones", "One", "onesecond", "secone"] {
            assert!(!tokens.allow(given.as_bytes()), "{given}");
        }
        assert!(tokens.reload().is_none());
    }

    #[test]
    fn a_pipe_is_refused_at_once_and_told() {
        let path = std::env::temp_dir().join(format!("clutch-pipe-{}", std::process::id()));
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).expect("a pipe");
        let source = TokenFile::new("token_file".to_owned(), path.clone(), Arc::default());
        let tokens = Tokens { known: RwLock::new(vec![b"one".to_vec()]), source: Some(source) };
        tokens.look();
        let source = tokens.source.as_ref().expect("a file");
        let error = source.read().expect_err("no file");
        std::fs::remove_file(&path).expect("gone");
        assert!(error.to_string().contains("not a regular file"), "{error}");
        assert!(tokens.allow(b"one"));
        assert_eq!(*source.told.lock(), Some(error.to_string()));
        source.warnings.close();
        let told: Vec<_> = std::iter::from_fn(|| source.warnings.next()).collect();
        assert_eq!(told, [format!("{error}; the old tokens stay valid")]);
    }

    #[test]
    fn a_file_that_has_just_changed_is_read_again() {
        let path = std::env::temp_dir().join(format!("clutch-stamp-{}", std::process::id()));
        std::fs::write(&path, "x").expect("a file");
        let found = std::fs::metadata(&path).expect("it");
        std::fs::remove_file(&path).expect("gone");
        let modified = found.modified().expect("a time");
        assert_eq!(Stamp::of(&found, modified + SETTLED_AFTER), None);
        assert!(Stamp::of(&found, modified + SETTLED_AFTER * 2).is_some());
    }
}
