//! Tokens that let a request in: the one of the configuration, or those of a file, which may change while it serves.
//!
//! A file is read at the start, at each reload, and when it has changed: a task looks once a second, by what the path
//! leads to, so that a link which is set to another file counts as a change. Where it cannot be read any more, the tokens
//! that were read last go on. What is no regular file is refused: to read a pipe could take for ever.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use clutch_host::Warnings;
use clutch_wire::sync::{Mutex, RwLock};
use rustix::fs::OFlags;

use crate::names::{quoted, suggestion};

/// Largest file of tokens, and most tokens in it.
const FILE_BYTES_MAX: u64 = 64 << 10;
const TOKENS_MAX: usize = 100;

const TOKEN_BYTES_MAX: usize = 1024;

/// Longest name of a token.
const NAME_BYTES_MAX: usize = 64;

/// Interval at which a file is checked for changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A file that was changed so shortly before it was read may change again within the same tick of its clock.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// The permission that everybody may read.
const READABLE_BY_ALL: u32 = 0o004;

pub(crate) struct Tokens {
    known: RwLock<Vec<Token>>,
    source: Option<TokenFile>,
}

/// A token and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    secret: Vec<u8>,
    holder: Arc<Holder>,
}

/// Whoever has a token, as its file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holder {
    /// None: the token has no name.
    pub(crate) name: Option<String>,
    /// Pools that the token is for. None: all.
    pub(crate) pools: Option<Vec<String>>,
}

impl Holder {
    /// Returns whether the token is for this pool.
    pub(crate) fn may_reach(&self, pool: &str) -> bool {
        self.pools.as_ref().is_none_or(|pools| pools.iter().any(|known| known == pool))
    }
}

/// A file of tokens.
struct TokenFile {
    /// The option that names it.
    option: String,
    path: PathBuf,
    /// Pools that a token may be limited to. None: the front has no pools.
    pools: Option<Vec<String>>,
    /// Stamp of the file that was read last. None: the next look reads it, whatever it is.
    stamp: Mutex<Option<Stamp>>,
    /// Problem with the file, as it was told.
    told: Mutex<Option<String>>,
    /// Every user could read it when it was read last, as was told.
    is_open: AtomicBool,
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
    /// where the file is none of tokens. `pools`: names of the pools that a token of the file may be limited to; none: the
    /// front has no pools.
    pub(crate) fn new(
        front: &str,
        token: Option<&str>,
        file: Option<&str>,
        pools: Option<Vec<String>>,
        warnings: &Arc<Warnings>,
    ) -> io::Result<Option<Arc<Tokens>>> {
        let Some(path) = file else {
            let nameless = |token: &str| Token { secret: token.as_bytes().to_vec(), holder: Arc::default() };
            let known = RwLock::new(token.map(nameless).into_iter().collect());
            return Ok(token.map(|_| Arc::new(Tokens { known, source: None })));
        };
        let (option, path) = (format!("fronts.{front}.token_file"), PathBuf::from(path));
        let source = TokenFile::new(option, path, pools, warnings.clone());
        let tokens = Arc::new(Tokens { known: RwLock::new(source.read()?), source: Some(source) });
        tokio::spawn(watch(Arc::downgrade(&tokens)));
        Ok(Some(tokens))
    }

    pub(crate) fn allow(&self, given: &[u8]) -> bool {
        self.holder(given).is_some()
    }

    /// Compares with each, in a time that depends on lengths only. None: it is none of them.
    pub(crate) fn holder(&self, given: &[u8]) -> Option<Arc<Holder>> {
        let known = self.known.read();
        let found =
            known.iter().fold(None, |found, token| if is_same(given, &token.secret) { Some(token) } else { found });
        found.map(|token| token.holder.clone())
    }

    /// The first one for all pools, or else the first one.
    pub(crate) fn first(&self) -> Option<String> {
        let known = self.known.read();
        let found = known.iter().find(|token| token.holder.pools.is_none()).or(known.first());
        found.map(|token| String::from_utf8_lossy(&token.secret).into_owned())
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
    fn new(option: String, path: PathBuf, pools: Option<Vec<String>>, warnings: Arc<Warnings>) -> TokenFile {
        let (stamp, told, is_open) = (Mutex::default(), Mutex::default(), AtomicBool::default());
        TokenFile { option, path, pools, stamp, told, is_open, warnings }
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

    fn read(&self) -> io::Result<Vec<Token>> {
        let wrong = |why: String| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{} '{}': {why}", self.option, self.path.display()))
        };
        let unreadable = |error: io::Error| wrong(format!("it cannot be read: {error}"));
        let (file, found) = open(&self.path).map_err(unreadable)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        let tokens = parse(&text, self.pools.as_deref()).map_err(wrong)?;
        let is_open = found.mode() & READABLE_BY_ALL != 0;
        let was_open = self.is_open.swap(is_open, Ordering::Relaxed);
        if is_open && !was_open {
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
fn parse(text: &str, pools: Option<&[String]>) -> Result<Vec<Token>, String> {
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    let mut tokens: Vec<Token> = Vec::new();
    for (nr, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let token = token_of(line, pools).map_err(|why| format!("line {nr}: {why}"))?;
        if tokens.iter().any(|other| other.secret == token.secret && other.holder != token.holder) {
            return Err(format!("line {nr}: another line has the same token, for another name or other pools"));
        }
        tokens.push(token);
    }
    match tokens.len() {
        0 => Err("it holds no token; write one per line, for example from: openssl rand -hex 24".to_owned()),
        count if count > TOKENS_MAX => Err(format!("it holds {count} tokens; {TOKENS_MAX} are allowed")),
        _ => Ok(tokens),
    }
}

/// Reads `token`, `name: token` or `name: token pools=a,b`.
fn token_of(line: &str, pools: Option<&[String]>) -> Result<Token, String> {
    let named = line.split_once(':').filter(|(_, rest)| rest.is_empty() || rest.starts_with(char::is_whitespace));
    let (name, rest) = named.map_or((None, line), |(name, rest)| (Some(name), rest));
    if let Some(name) = name.filter(|name| !is_name(name)) {
        let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
        return Err(format!("'{shown}' is no name: up to {NAME_BYTES_MAX} letters, digits and -_.@+/ are allowed"));
    }
    let mut words = rest.split_whitespace();
    let secret = words.next().unwrap_or_default();
    let limit = words.next().map(|word| word.strip_prefix("pools="));
    let is_token = (1..=TOKEN_BYTES_MAX).contains(&secret.len()) && secret.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_token || limit == Some(None) || words.next().is_some() {
        return Err(format!(
            "a token is at most {TOKEN_BYTES_MAX} visible ASCII characters, without a space; a line is a token, \
             or 'name: token', or 'name: token pools=a,b'"
        ));
    }
    let pools = limit.flatten().map(|given| limited_to(given, pools)).transpose()?;
    Ok(Token { secret: secret.as_bytes().to_vec(), holder: Arc::new(Holder { name: name.map(str::to_owned), pools }) })
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@+/".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

/// Reads the pools of a token, each of which the front has.
fn limited_to(given: &str, pools: Option<&[String]>) -> Result<Vec<String>, String> {
    let Some(pools) = pools else {
        return Err("pools= is for tokens of [fronts.http]; those of this front are for all that it has".to_owned());
    };
    let find = |name: &str| match pools.iter().find(|pool| *pool == name) {
        Some(pool) => Ok(pool.clone()),
        None => Err(format!("no pool '{}' here{}", quoted(name), suggestion(name, pools.iter().map(String::as_str)))),
    };
    given.split(',').map(find).collect()
}

/// Compares in a time that depends on the lengths only.
pub(super) fn is_same(given: &[u8], token: &[u8]) -> bool {
    let differing = given.iter().zip(token).fold(0, |differing, (one, other)| differing | (one ^ other));
    std::hint::black_box(differing) == 0 && given.len() == token.len()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn parsed(text: &str) -> Result<Vec<String>, String> {
        let text_of = |token: Token| String::from_utf8_lossy(&token.secret).into_owned();
        parse(text, Some(&["ml".to_owned(), "shop".to_owned()])).map(|tokens| tokens.into_iter().map(text_of).collect())
    }

    #[test]
    fn a_line_is_a_token_a_comment_or_nothing() {
        assert_eq!(
            parsed("# old\n\n  one \r\ntwo#2\nth:ree\n\t\n#four"),
            Ok(["one", "two#2", "th:ree"].map(str::to_owned).to_vec())
        );
        for (text, why) in [("", "no token"), ("# none\n", "no token"), ("a\nb c\n", "line 2"), ("é", "line 1")] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_line_may_name_its_holder_and_pools() {
        let text = "ann: one\nci@shop:\ttwo  pools=ml,shop\nthree pools=ml\nann: four";
        let tokens = parse(text, Some(&["ml".to_owned(), "shop".to_owned()])).expect("tokens");
        let told: Vec<_> =
            tokens.iter().map(|token| (token.holder.name.as_deref(), token.holder.pools.clone())).collect();
        let pools = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let expected = [
            (Some("ann"), None),
            (Some("ci@shop"), pools(&["ml", "shop"])),
            (None, pools(&["ml"])),
            (Some("ann"), None),
        ];
        assert_eq!(told, expected);
        assert!(
            tokens[1].holder.may_reach("shop")
                && !tokens[2].holder.may_reach("shop")
                && tokens[0].holder.may_reach("x")
        );
    }

    #[test]
    fn what_a_line_cannot_say_is_told_with_its_number() {
        let long = format!("{}: one", "x".repeat(NAME_BYTES_MAX + 1));
        for (text, why) in [
            ("a\nann: ", "line 2: a token is"),
            ("ann b: one", "'ann b' is no name"),
            (": one", "'' is no name"),
            (&long, "is no name"),
            ("ann: one two", "line 1: a token is"),
            ("ann: one pools=ml shop", "line 1: a token is"),
            ("ann: one pools=", "no pool ''"),
            ("ann: one pools=ml,shap", "no pool 'shap' here; did you mean 'shop'?"),
            ("one\nann: one", "line 2: another line has the same token"),
            ("one\none pools=ml", "line 2: another line has the same token"),
        ] {
            let error = parsed(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
        assert!(parsed("ann: one\nann: one").is_ok());
        assert!(parse("ann: one pools=ml", None).expect_err("no pools").contains("[fronts.http]"));
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
        let tokens = Tokens {
            known: RwLock::new(parse("one pools=ml\nann: second", Some(&["ml".to_owned()])).expect("tokens")),
            source: None,
        };
        assert!(tokens.allow(b"one") && tokens.allow(b"second"));
        assert_eq!(tokens.holder(b"second").expect("known").name.as_deref(), Some("ann"));
        assert_eq!(tokens.first().as_deref(), Some("second"));
        for given in ["", "on", "ones", "One", "onesecond", "secone"] {
            assert!(!tokens.allow(given.as_bytes()), "{given}");
        }
        assert!(tokens.reload().is_none());
    }

    #[test]
    fn a_pipe_is_refused_at_once_and_told() {
        let path = std::env::temp_dir().join(format!("clutch-pipe-{}", std::process::id()));
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).expect("a pipe");
        let source = TokenFile::new("token_file".to_owned(), path.clone(), None, Arc::default());
        let tokens = Tokens { known: RwLock::new(parse("one", None).expect("a token")), source: Some(source) };
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
    fn a_file_that_all_may_read_is_told_once_until_it_was_closed() {
        let path = std::env::temp_dir().join(format!("clutch-open-{}", std::process::id()));
        std::fs::write(&path, "x").expect("a file");
        let source = TokenFile::new("token_file".to_owned(), path.clone(), None, Arc::default());
        for mode in [0o644, 0o644, 0o600, 0o644] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("its owner");
            source.read().expect("a token");
        }
        std::fs::remove_file(&path).expect("gone");
        source.warnings.close();
        assert_eq!(std::iter::from_fn(|| source.warnings.next()).count(), 2);
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
