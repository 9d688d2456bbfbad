//! Ends of jobs that their store has not been told of, in a file that outlives the dispatcher.
//!
//! A job's end is settled in the next round, with many others; a dispatcher that is killed meanwhile would leave all of
//! them to run again. So each job that was claimed has a cell in a file of its runner, in the folder of this user's
//! programs, and the worker writes there that its code has returned, before it says so. What is in the file survives any
//! end of a program, though none of the machine. Whoever runs jobs of that store on this machine next, or beside, finds
//! the file with nobody's lock on it and settles for the runner that is gone, as long as the lease of that has not been
//! ended: [`Heirs`].
//!
//! Only what has completed is in it, with the result, if that is to be kept and has room. What has failed runs again.
//!
//! Of stores whose jobs may begin once only ([`Store::runs_once`]) a worker also writes that it begins, before it does
//! ([`note_begin`]); what had not begun is put back at once.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::sync::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::job::{self, Millis, Settled, result_until};
use crate::store::{Report, Runner, Store, Want};

/// Cells in a file: more jobs of one runner at a time have none.
const CELLS: u32 = 2048;

const HEAD_BYTES: usize = 1024;
const CELL_BYTES: usize = 512;
const FILE_BYTES: usize = HEAD_BYTES + CELLS as usize * CELL_BYTES;

/// Offsets in a cell: the number of its turn, the attempt, for how many milliseconds the result is kept, the id; the turn
/// whose code has begun; and what a worker writes at once, so that nothing of one turn is taken for another's: the turn
/// whose code has returned, and the result.
const TURN: usize = 0;
const ATTEMPT: usize = 4;
const RESULT_MS: usize = 8;
const ID_LENGTH: usize = 16;
const ID: usize = 18;
const ID_BYTES_MAX: usize = 48;
const BEGAN: usize = ID + ID_BYTES_MAX;
const ENDED: usize = BEGAN + 4;
const RESULT_LENGTH: usize = ENDED + 4;
const RESULT: usize = RESULT_LENGTH + 2;
const RESULT_BYTES_MAX: usize = CELL_BYTES - RESULT;

const SUFFIX: &str = "ends";
/// Ends the name of a file that is not complete yet.
const NEW: &str = ".ends.new";

/// A file that was begun so long ago and is not complete is that of a start that was killed.
const BEGUN: Duration = Duration::from_secs(60);

/// A file of a runner that is gone is kept at least so long: its workers may still write.
const KEPT_LEAST: Duration = Duration::from_secs(10);

/// A file of another store that was not written to for so long is removed, whoever finds it.
const FORGOTTEN: Duration = Duration::from_secs(24 * 3600);

/// The first lines of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    store: String,
    runner: String,
    lease_ms: u64,
}

/// A cell of one job, for one turn: a later job in the same cell has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    index: u32,
    turn: u32,
}

/// The file of one runner, which it has locked. Removed when this is dropped, unless it has ends that the store was not told.
#[derive(Debug)]
pub struct Ends {
    file: File,
    path: PathBuf,
    free: Vec<Cell>,
}

impl Ends {
    pub fn create(folder: &Path, store: &str, runner: &Runner) -> io::Result<Ends> {
        make_private(folder)?;
        let name: String =
            runner.name.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect();
        let (path, made) = (folder.join(format!("{name}.{SUFFIX}")), folder.join(format!("{name}{NEW}")));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&made)?;
        Ends::write_head(&file, store, runner)
            // Nobody finds it without a lock on it.
            .and_then(|()| Ok(rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?))
            .and_then(|()| fs::rename(&made, &path))
            .inspect_err(|_| drop(fs::remove_file(&made)))?;
        let free = (0..CELLS).rev().map(|index| Cell { index, turn: 0 }).collect();
        Ok(Ends { file, path, free })
    }

    fn write_head(file: &File, store: &str, runner: &Runner) -> io::Result<()> {
        let lease_ms = u64::try_from(job::millis(runner.lease)).unwrap_or_default();
        let head = Head { store: store.to_owned(), runner: runner.name.clone(), lease_ms };
        let mut bytes = serde_json::to_vec(&head)?;
        if bytes.len() > HEAD_BYTES {
            return Err(io::Error::other("the names of the store and the runner are too long"));
        }
        bytes.resize(HEAD_BYTES, b' ');
        // Room that is there from the start is there when a worker writes.
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, FILE_BYTES as u64) {
            Err(Errno::OPNOTSUPP) => file.set_len(FILE_BYTES as u64)?,
            allocated => allocated?,
        }
        file.write_all_at(&bytes, 0)
    }

    /// Gives the job a cell, if there is one. `result_ms`: for how long its result is kept; 0: not at all.
    pub fn note(&mut self, id: &str, attempt: u32, result_ms: Millis) -> Option<Cell> {
        let free = self.free.pop_if(|_| id.len() <= ID_BYTES_MAX)?;
        let cell = Cell { turn: free.turn.wrapping_add(1).max(1), ..free };
        let mut bytes = [0; RESULT];
        bytes[TURN..][..4].copy_from_slice(&cell.turn.to_le_bytes());
        bytes[ATTEMPT..][..4].copy_from_slice(&attempt.to_le_bytes());
        bytes[RESULT_MS..][..8].copy_from_slice(&result_ms.to_le_bytes());
        bytes[ID_LENGTH] = id.len() as u8;
        bytes[ID..][..id.len()].copy_from_slice(id.as_bytes());
        if self.file.write_all_at(&bytes, offset(cell.index)).is_err() {
            self.free.push(free);
            return None;
        }
        Some(cell)
    }

    /// The store knows its end, or somebody else has the job.
    pub fn forget(&mut self, cell: Cell) {
        self.free.push(cell);
    }

    /// Where a worker writes that the code has returned, for [`note_end`].
    pub fn mark(&self, cell: Cell) -> Vec<u8> {
        let path = self.path.as_os_str().as_encoded_bytes();
        [&cell.index.to_le_bytes()[..], &cell.turn.to_le_bytes(), path].concat()
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if self.free.len() == CELLS as usize {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn offset(index: u32) -> u64 {
    (HEAD_BYTES + index as usize * CELL_BYTES) as u64
}

/// Makes the folder, unless it is there. Fails where it is not of this user alone.
pub fn make_private(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display())))
        }
        _ => check_private(folder),
    }
}

/// Another's folder might hold another's files.
fn check_private(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    match found.is_dir() && is_own && found.mode() & 0o077 == 0 {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} is not a folder of this user alone (0700)", folder.display()))),
    }
}

// ---- in a worker

/// The files that this worker writes to, by their paths: of its dispatcher's runners.
static FILES: Mutex<Vec<(Vec<u8>, Arc<File>)>> = Mutex::new(Vec::new());

/// More than there are fronts of jobs with one pool.
const FILES_MAX: usize = 64;

/// Writes that the code of a job has returned, and its result as JSON, `null` if none is kept. `mark`: as [`Ends::mark`]
/// gave it. Where it cannot be written, or a result has no room, the job may run again.
pub fn note_end(mark: &[u8], result: &[u8]) {
    let Some((cell, turn, path)) = read(mark) else { return };
    let Some(length) = u16::try_from(result.len()).ok().filter(|length| usize::from(*length) <= RESULT_BYTES_MAX)
    else {
        return;
    };
    if let Ok(file) = opened(path) {
        let _ = file.write_all_at(&[&turn[..], &length.to_le_bytes(), result].concat(), cell + ENDED as u64);
    }
}

/// Writes that the code of a job begins. Whether it may: nobody has put the job back meanwhile, since its runner is gone.
/// Where it cannot be written, it may.
pub fn note_begin(mark: &[u8]) -> bool {
    let Some((cell, turn, path)) = read(mark) else { return true };
    let mut found = *turn;
    let noted = opened(path).and_then(|file| {
        file.write_all_at(turn, cell + BEGAN as u64)?;
        // Whoever puts it back takes the turn away first, and then looks here.
        file.read_exact_at(&mut found, cell + TURN as u64)
    });
    noted.is_err() || found == *turn
}

/// The offset of the cell, the turn and the path of the file that a mark names.
fn read(mark: &[u8]) -> Option<(u64, &[u8; 4], &[u8])> {
    let (index, rest) = mark.split_first_chunk::<4>()?;
    let (turn, path) = rest.split_first_chunk::<4>()?;
    Some((offset(u32::from_le_bytes(*index)), turn, path))
}

fn opened(path: &[u8]) -> io::Result<Arc<File>> {
    use std::os::unix::ffi::OsStrExt;
    let mut files = FILES.lock();
    if let Some((_, file)) = files.iter().find(|(known, _)| known == path) {
        return Ok(file.clone());
    }
    let file = Arc::new(OpenOptions::new().read(true).write(true).open(std::ffi::OsStr::from_bytes(path))?);
    if files.len() >= FILES_MAX {
        files.remove(0);
    }
    files.push((path.to_vec(), file.clone()));
    Ok(file)
}

// ---- after its runner

/// Settles what runners that are gone have left in a folder, of one store.
#[derive(Debug)]
pub struct Heirs {
    folder: PathBuf,
    /// Files that nobody had locked, and when that was seen first.
    left: HashMap<PathBuf, Instant>,
    /// Jobs whose turns were taken away and that the store has not been told of, by file: nobody begins them any more.
    owed: HashMap<PathBuf, Vec<Ended>>,
}

impl Heirs {
    pub fn new(folder: PathBuf) -> Heirs {
        Heirs { folder, left: HashMap::new(), owed: HashMap::new() }
    }

    /// Settles what is there. Returns how many have completed so; an error of the store leaves the rest for later.
    pub fn settle(&mut self, store: &dyn Store, report: &Report, now: Instant) -> crate::store::Result<usize> {
        let Ok(paths) = self.files() else { return Ok(0) };
        self.left.retain(|path, _| paths.contains(path));
        self.owed.retain(|path, _| paths.contains(path));
        let mut settled = 0;
        for path in paths {
            let Some((file, head)) = left(&path) else { continue };
            if head.store != store.name() {
                // Of a store that nobody here runs any more.
                remove_older(&path, file.metadata(), FORGOTTEN);
                continue;
            }
            let Some(cells) = Cells::read(&file) else { continue };
            let mut ended = cells.ended(store.now());
            let completed = ended.len();
            if store.runs_once() {
                ended.extend(self.owed.remove(&path).unwrap_or_default());
                ended.extend(cells.put_back(&file));
            }
            let runner = Runner::new(head.runner, Duration::from_millis(head.lease_ms));
            if !ended.is_empty() {
                let report = Report { settled: ended.iter().map(|(_, one)| one.clone()).collect(), ..report.clone() };
                let told = store.round(&runner, &report, &Want::default(), store.now());
                // It may have heard, and only the answer be lost: who was put back by it would run twice if it began here.
                let round = match told {
                    Ok(round) => round,
                    Err(error) => {
                        self.owed.insert(path, ended.split_off(completed));
                        return Err(error);
                    }
                };
                settled += completed - round.lost.len().min(completed);
                for (index, _) in ended {
                    let _ = file.write_all_at(&[0; CELL_BYTES], offset(index));
                }
            }
            let since = *self.left.entry(path.clone()).or_insert(now);
            if now >= since + KEPT_LEAST.max(runner.lease * 2) {
                let _ = fs::remove_file(&path);
            }
        }
        Ok(settled)
    }

    /// Removes what starts have left that were killed.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        check_private(&self.folder)?;
        let paths: Vec<_> = fs::read_dir(&self.folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        for path in paths.iter().filter(|path| path.as_os_str().as_encoded_bytes().ends_with(NEW.as_bytes())) {
            remove_older(path, fs::symlink_metadata(path), BEGUN);
        }
        Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|suffix| suffix == SUFFIX)).collect())
    }
}

/// A cell and what has become of its job.
type Ended = (u32, Settled);

/// Opens a file whose runner is gone, and keeps others from it meanwhile.
fn left(path: &Path) -> Option<(File, Head)> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path).ok()?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let mut bytes = [0; HEAD_BYTES];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let head = serde_json::from_slice(&bytes).ok()?;
    Some((file, head))
}

/// Removes a file that was not written to for so long.
fn remove_older(path: &Path, about: io::Result<fs::Metadata>, than: Duration) {
    let age = about.and_then(|about| about.modified()).ok().and_then(|written| written.elapsed().ok());
    if age.is_some_and(|age| age >= than) {
        let _ = fs::remove_file(path);
    }
}

/// The cells of a file.
struct Cells(Vec<u8>);

impl Cells {
    fn read(file: &File) -> Option<Cells> {
        let mut bytes = vec![0; FILE_BYTES];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Some(Cells(bytes))
    }

    fn taken(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let cells = self.0[HEAD_BYTES..].chunks_exact(CELL_BYTES).enumerate();
        cells.map(|(index, cell)| (index as u32, cell)).filter(|(_, cell)| number(cell, TURN) > 0)
    }

    fn ended(&self, now: Millis) -> Vec<Ended> {
        let ended = self.taken().filter(|(_, cell)| number(cell, TURN) == number(cell, ENDED));
        ended.filter_map(|(index, cell)| Some((index, settled_of(cell, now)?))).collect()
    }

    /// Takes away the turns of those that have not begun: now they never do.
    fn put_back(&self, file: &File) -> Vec<Ended> {
        let may_begin = |(index, cell): &(u32, &[u8])| {
            let mut began = [0; 4];
            let take = file.write_all_at(&[0; 4], offset(*index) + TURN as u64);
            let look = take.and_then(|()| file.read_exact_at(&mut began, offset(*index) + BEGAN as u64));
            look.is_ok() && u32::from_le_bytes(began) != number(cell, TURN)
        };
        let waiting = self.taken().filter(|(_, cell)| number(cell, TURN) != number(cell, BEGAN));
        let waiting = waiting.filter(|(_, cell)| number(cell, TURN) != number(cell, ENDED)).filter(may_begin);
        let put_back = |cell: &[u8]| Some(Settled::not_begun(id_of(cell)?, number(cell, ATTEMPT)));
        waiting.filter_map(|(index, cell)| Some((index, put_back(cell)?))).collect()
    }
}

fn number(cell: &[u8], at: usize) -> u32 {
    cell[at..].first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn text(cell: &[u8], from: usize, length: usize) -> Option<String> {
    String::from_utf8(cell.get(from..from + length)?.to_vec()).ok()
}

fn id_of(cell: &[u8]) -> Option<String> {
    text(cell, ID, usize::from(cell[ID_LENGTH]).min(ID_BYTES_MAX))
}

fn settled_of(cell: &[u8], now: Millis) -> Option<Settled> {
    let (id, attempt) = (id_of(cell)?, number(cell, ATTEMPT));
    let length = u16::from_le_bytes(*cell[RESULT_LENGTH..].first_chunk()?);
    let result = text(cell, RESULT, usize::from(length))?;
    let result_ms = Millis::from_le_bytes(*cell[RESULT_MS..].first_chunk()?);
    Some(Settled::completed(id, attempt, (result_ms > 0).then(|| (result, result_until(result_ms, now)))))
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::job::{NewJob, State};
    use crate::stores;

    const NULL: &[u8] = b"null";
    const LEASE: Duration = Duration::from_secs(30);

    struct Left {
        folder: tempfile::TempDir,
        store: Arc<dyn Store>,
        runner: Runner,
    }

    impl Left {
        /// A store whose runner has claimed so many jobs; and these.
        fn new(jobs: usize) -> (Left, Vec<job::Claimed>) {
            let folder = tempfile::tempdir().unwrap();
            let store = stores::open(&format!("sqlite:///{}/jobs.db", folder.path().display())).unwrap();
            let arguments = RawValue::from_string("{}".to_owned()).unwrap();
            let new: Vec<_> = (0..jobs).map(|_| NewJob::new("default", "send", arguments.clone())).collect();
            store.enqueue(&new, job::now()).unwrap();
            let mut runner = Runner::new("host:1:abc".to_owned(), LEASE);
            store.renew(&runner, &[], job::now()).unwrap();
            runner.round = 1;
            let want = Want { limit: jobs, queues: vec!["default".to_owned()] };
            let round = store.round(&runner, &Report::default(), &want, job::now()).unwrap();
            assert_eq!(round.claimed.len(), jobs);
            (Left { folder, store, runner }, round.claimed)
        }

        fn ends(&self) -> Ends {
            Ends::create(&self.place(), self.store.name(), &self.runner).unwrap()
        }

        fn place(&self) -> PathBuf {
            self.folder.path().join("programs")
        }

        fn settle(&self, heirs: &mut Heirs, now: Instant) -> usize {
            heirs.settle(&*self.store, &Report::default(), now).unwrap()
        }

        fn states(&self, jobs: &[job::Claimed]) -> Vec<State> {
            jobs.iter().map(|job| self.store.get(&job.id).unwrap().unwrap().state).collect()
        }
    }

    /// Dies without a word.
    fn die(ends: Ends) -> PathBuf {
        let path = ends.path.clone();
        rustix::fs::flock(&ends.file, FlockOperation::Unlock).unwrap();
        std::mem::forget(ends);
        path
    }

    #[test]
    fn what_had_returned_is_settled_and_the_rest_is_not() {
        let (left, jobs) = Left::new(3);
        let mut ends = left.ends();
        let marks: Vec<_> =
            jobs.iter().map(|job| ends.note(&job.id, job.attempt, 0).map(|cell| ends.mark(cell)).unwrap()).collect();
        marks[1..].iter().for_each(|mark| note_end(mark, NULL));
        let mut heirs = Heirs::new(left.place());
        let now = Instant::now();
        assert_eq!(left.settle(&mut heirs, now), 0, "its runner lives");
        let path = die(ends);
        assert_eq!(left.settle(&mut heirs, now), 2);
        assert_eq!(left.states(&jobs), [State::Running, State::Completed, State::Completed]);
        note_end(&marks[0], NULL);
        assert_eq!([left.settle(&mut heirs, now), left.settle(&mut heirs, now)], [1, 0], "a worker that was late");
        assert_eq!(left.states(&jobs), [State::Completed; 3]);
        assert!(path.exists());
        left.settle(&mut heirs, now + 2 * LEASE);
        assert!(!path.exists());
    }

    #[test]
    fn what_had_not_begun_is_put_back_and_never_begins() {
        let (left, jobs) = Left::new(3);
        let mut ends = left.ends();
        let marks: Vec<_> =
            jobs.iter().map(|job| ends.note(&job.id, job.attempt, 0).map(|cell| ends.mark(cell)).unwrap()).collect();
        assert!(note_begin(&marks[0]) && note_begin(&marks[1]));
        note_end(&marks[1], NULL);
        let path = die(ends);
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let cells = Cells::read(&file).unwrap();
        assert_eq!(cells.ended(0).iter().map(|(_, one)| &one.id).collect::<Vec<_>>(), [&jobs[1].id]);
        let put_back = cells.put_back(&file);
        let told: Vec<_> = put_back.iter().map(|(_, one)| (&one.id, one.state, one.has_begun, one.attempts)).collect();
        assert_eq!(told, [(&jobs[2].id, State::Available, false, 0)]);
        assert!(!note_begin(&marks[2]), "it is another's");
        assert!(Cells::read(&file).unwrap().put_back(&file).is_empty(), "it was told of: its heir keeps it");
    }

    #[test]
    fn results_are_settled_as_well_where_they_have_room() {
        let (left, jobs) = Left::new(4);
        let mut ends = left.ends();
        let results =
            ["7", "null", &format!("\"{}\"", "x".repeat(RESULT_BYTES_MAX - 2)), &"8".repeat(RESULT_BYTES_MAX + 1)];
        for (job, result) in jobs.iter().zip(results) {
            let cell = ends.note(&job.id, 1, 60_000).unwrap();
            note_end(&ends.mark(cell), result.as_bytes());
        }
        die(ends);
        assert_eq!(left.settle(&mut Heirs::new(left.place()), Instant::now()), 3);
        let found = jobs.iter().map(|job| left.store.get(&job.id).unwrap().unwrap());
        let found: Vec<_> = found.map(|job| job.result.map(|result| result.get().to_owned())).collect();
        assert_eq!(
            found,
            [Some(results[0].to_owned()), Some(results[1].to_owned()), Some(results[2].to_owned()), None]
        );
        assert_eq!(left.states(&jobs[3..]), [State::Running]);
    }

    #[test]
    fn a_worker_that_is_late_ends_no_later_job_in_the_same_place() {
        let (left, jobs) = Left::new(2);
        let mut ends = left.ends();
        let first = ends.note(&jobs[0].id, 1, 0).unwrap();
        let mark = ends.mark(first);
        ends.forget(first);
        let second = ends.note(&jobs[1].id, 1, 60_000).unwrap();
        assert_eq!(first.index, second.index);
        let second_mark = ends.mark(second);
        note_end(&mark, b"7");
        die(ends);
        assert_eq!(left.settle(&mut Heirs::new(left.place()), Instant::now()), 0);
        assert_eq!(left.states(&jobs), [State::Running; 2]);
        note_end(&second_mark, NULL);
        assert_eq!(left.settle(&mut Heirs::new(left.place()), Instant::now()), 1);
        let result = left.store.get(&jobs[1].id).unwrap().unwrap().result;
        assert_eq!(result.map(|result| result.get().to_owned()).as_deref(), Some("null"), "not that of the other");
    }

    #[test]
    fn an_end_that_comes_after_the_lease_was_ended_is_refused() {
        let (left, jobs) = Left::new(1);
        let mut ends = left.ends();
        let cell = ends.note(&jobs[0].id, 1, 0).unwrap();
        note_end(&ends.mark(cell), NULL);
        die(ends);
        left.store.leave(&left.runner).unwrap();
        let day = Duration::from_secs(86_400);
        let keep = crate::store::Keep { completed: day, cancelled: day, dead: day };
        left.store.look_after(&keep, 10, &[], &[], job::now()).unwrap();
        assert_eq!(left.settle(&mut Heirs::new(left.place()), Instant::now()), 0);
        assert_eq!(left.states(&jobs), [State::Available]);
    }

    #[test]
    fn files_of_other_stores_and_folders_of_others_are_left_alone() {
        let (left, jobs) = Left::new(1);
        let mut ends = Ends::create(&left.place(), "redis://elsewhere", &left.runner).unwrap();
        let cell = ends.note(&jobs[0].id, 1, 0).unwrap();
        note_end(&ends.mark(cell), NULL);
        let path = die(ends);
        fs::write(left.place().join("short.ends"), "{").unwrap();
        assert_eq!(left.settle(&mut Heirs::new(left.place()), Instant::now() + 4 * LEASE), 0);
        assert!(path.exists());
        let written = std::time::SystemTime::now() - FORGOTTEN;
        File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
        left.settle(&mut Heirs::new(left.place()), Instant::now());
        assert!(!path.exists());
        let open = left.folder.path().join("open");
        fs::DirBuilder::new().mode(0o755).create(&open).unwrap();
        assert!(Ends::create(&open, "a", &left.runner).unwrap_err().to_string().contains("0700"));
    }

    #[test]
    fn a_runner_that_leaves_takes_its_file_along_unless_the_store_was_not_told_of_an_end() {
        let (left, jobs) = Left::new(1);
        let mut ends = left.ends();
        let cell = ends.note(&jobs[0].id, 1, 0).unwrap();
        note_end(&ends.mark(cell), NULL);
        let path = ends.path.clone();
        drop(ends);
        assert_eq!(left.settle(&mut Heirs::new(left.place()), Instant::now()), 1);
        fs::remove_file(&path).unwrap();
        let mut ends = left.ends();
        let cell = ends.note("7", 1, 0).unwrap();
        ends.forget(cell);
        drop(ends);
        assert_eq!(fs::read_dir(left.place()).unwrap().count(), 0);
    }

    #[test]
    fn files_of_starts_that_were_killed_are_removed() {
        let (left, _) = Left::new(0);
        make_private(&left.place()).unwrap();
        let made = |name: &str, age: Duration| {
            let path = left.place().join(name);
            File::create(&path).unwrap().set_modified(std::time::SystemTime::now() - age).unwrap();
            path
        };
        let old = [made("killed.ends.new", BEGUN), made("starts.ends.new", Duration::ZERO), made("other.new", BEGUN)];
        left.settle(&mut Heirs::new(left.place()), Instant::now());
        assert_eq!(old.map(|path| path.exists()), [false, true, true]);
    }

    #[test]
    fn jobs_beyond_the_cells_have_none() {
        let (left, _) = Left::new(0);
        let mut ends = left.ends();
        assert_eq!(ends.note(&"x".repeat(ID_BYTES_MAX + 1), 1, 0), None);
        let cells: Vec<_> = (0..CELLS).map(|nr| ends.note(&nr.to_string(), 1, 0).unwrap()).collect();
        assert_eq!(ends.note("one more", 1, 0), None);
        ends.forget(cells[7]);
        assert!(ends.note("one more", 1, 0).is_some());
    }
}
