//! Bytes of one pipe as lines, and the last bytes of a worker.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clutch_wire::sync::Mutex;

use super::style::{Label, Style};

/// A line longer than this is passed on in pieces.
const LINE_BYTES_MAX: usize = 16 << 10;

/// The same for a line that may be a record as JSON, which pieces would spoil: a traceback is long.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// An unfinished line is passed on after this time: a prompt, a bar or dots have no end, or a late one.
const UNFINISHED_WAIT: Duration = Duration::from_millis(100);

/// The last output of one worker, both streams in the order of arrival.
#[derive(Debug)]
pub struct Tail {
    bytes: Mutex<VecDeque<u8>>,
    kept: usize,
}

impl Tail {
    pub fn new(kept: usize) -> Arc<Tail> {
        Arc::new(Tail { bytes: Mutex::new(VecDeque::new()), kept })
    }

    pub(super) fn add(&self, bytes: &[u8]) {
        let mut kept = self.bytes.lock();
        kept.extend(bytes);
        let surplus = kept.len().saturating_sub(self.kept);
        kept.drain(..surplus);
    }

    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.lock().iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The lines of one pipe.
#[derive(Default)]
pub(super) struct Lines {
    partial: Vec<u8>,
    /// When the unfinished line began, or its last part was passed on.
    since: Option<Instant>,
    /// The beginning of the line has been passed on.
    is_open: bool,
    /// Lines that wait to be written.
    ready: Vec<u8>,
}

impl Lines {
    pub(super) fn add(&mut self, label: &Label, bytes: &[u8], now: Instant) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.since.get_or_insert(now);
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= self.bytes_max(label) {
                self.end_line(label);
            }
        }
    }

    fn bytes_max(&self, label: &Label) -> usize {
        let is_record = label.style == Style::Json && self.partial.starts_with(b"{");
        if is_record { RECORD_BYTES_MAX } else { LINE_BYTES_MAX }
    }

    /// Ends the last line, whether its end has come or not.
    pub(super) fn end_line(&mut self, label: &Label) {
        if !self.partial.is_empty() || self.is_open {
            let line = self.partial.strip_suffix(b"\n").unwrap_or(&self.partial);
            label.put(&mut self.ready, line, self.is_open);
            self.ready.push(b'\n');
            self.partial.clear();
        }
        (self.since, self.is_open) = (None, false);
    }

    /// When the beginning of an unfinished line is passed on. A record goes as one.
    pub(super) fn due_at(&self, label: &Label) -> Option<Instant> {
        self.since.filter(|_| label.style != Style::Json).map(|since| since + UNFINISHED_WAIT)
    }

    /// Passes on the beginning of an unfinished line, if that is due.
    pub(super) fn begin_line(&mut self, label: &Label, now: Instant) {
        if self.due_at(label).is_some_and(|due| due <= now) {
            label.put(&mut self.ready, &self.partial, self.is_open);
            self.partial.clear();
            (self.since, self.is_open) = (None, true);
        }
    }

    /// Returns whether what was taken last ends in the midst of a line.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Something else was written behind the beginning of the line: what follows begins another one.
    pub(super) fn break_off(&mut self) {
        self.is_open = false;
    }

    pub(super) fn take_ready(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.ready)
    }
}

#[cfg(test)]
mod tests {
    use clutch_wire::stdio::Stream;

    use super::*;

    fn label(style: Style) -> Label {
        Label { stream: Stream::Err, worker: "a/0".to_owned(), style }
    }

    #[test]
    fn lines_are_prefixed_and_pieces_wait_for_their_end() {
        let (mut lines, label) = (Lines::default(), label(Style::Named));
        let now = Instant::now();
        lines.add(&label, b"one\ntw", now);
        assert_eq!(lines.take_ready(), b"[a/0] one\n");
        lines.add(&label, b"o\n", now);
        assert_eq!(lines.take_ready(), b"[a/0] two\n");
        lines.add(&label, b"no end", now);
        lines.end_line(&label);
        assert_eq!(lines.take_ready(), b"[a/0] no end\n", "nothing is lost");
    }

    #[test]
    fn the_beginning_of_a_line_does_not_wait_for_its_end() {
        let (now, label) = (Instant::now(), label(Style::Named));
        let mut lines = Lines::default();
        lines.add(&label, b"name? ", now);
        lines.begin_line(&label, now);
        assert_eq!((lines.take_ready(), lines.due_at(&label)), (Vec::new(), Some(now + UNFINISHED_WAIT)));
        let later = now + UNFINISHED_WAIT;
        lines.begin_line(&label, later);
        assert_eq!((lines.take_ready(), lines.is_open()), (b"[a/0] name? ".to_vec(), true));
        lines.add(&label, b"ann\nnext\n", later);
        assert_eq!((lines.take_ready(), lines.is_open()), (b"ann\n[a/0] next\n".to_vec(), false));
        lines.add(&label, b"dots", later);
        lines.begin_line(&label, later + UNFINISHED_WAIT);
        lines.take_ready();
        lines.break_off();
        lines.add(&label, b" on\n", later);
        assert_eq!(lines.take_ready(), b"[a/0]  on\n", "another worker wrote in between");
    }

    #[test]
    fn a_bar_that_is_drawn_again_has_its_name_again() {
        let (now, label) = (Instant::now(), label(Style::Named));
        let mut lines = Lines::default();
        lines.add(&label, b"\r 10%\r 20%", now);
        lines.begin_line(&label, now + UNFINISHED_WAIT);
        assert_eq!(lines.take_ready(), b"\r[a/0]  10%\r[a/0]  20%");
        lines.add(&label, b"\r100%\n", now);
        assert_eq!(lines.take_ready(), b"\r[a/0] 100%\n");
        lines.add(&label, b"dos\r\n", now);
        assert_eq!(lines.take_ready(), b"[a/0] dos\r\n");
    }

    #[test]
    fn a_record_goes_as_one_however_late_its_end_comes() {
        let (now, label) = (Instant::now(), label(Style::Json));
        let mut lines = Lines::default();
        lines.add(&label, b"{\"a\":", now);
        assert_eq!(lines.due_at(&label), None);
    }

    #[test]
    fn at_a_terminal_lines_are_plain() {
        let (mut lines, label) = (Lines::default(), label(Style::Plain));
        let text = b"Traceback (most recent call last):\n  File \"a.py\", line 1\nValueError: no\n";
        lines.add(&label, text, Instant::now());
        let ready = lines.take_ready();
        assert_eq!(ready, text);
    }

    #[test]
    fn a_long_line_goes_in_pieces_and_a_record_as_one() {
        let (mut lines, label, now) = (Lines::default(), label(Style::Json), Instant::now());
        lines.add(&label, &[b'x'; LINE_BYTES_MAX], now);
        assert!(!lines.take_ready().is_empty());
        lines.add(&label, b"\n", now);
        lines.take_ready();
        let record = format!("{{\"traceback\":\"{}\"}}\n", "x".repeat(10 * LINE_BYTES_MAX));
        record.as_bytes().chunks(1000).for_each(|piece| lines.add(&label, piece, now));
        let ready = lines.take_ready();
        assert_eq!(ready.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(ready.len() > 10 * LINE_BYTES_MAX);
        lines.add(&label, &vec![b'{'; 2 * RECORD_BYTES_MAX], now);
        assert!(!lines.take_ready().is_empty(), "bounded");
    }

    #[test]
    fn failure_8_only_the_last_bytes_are_kept() {
        let tail = Tail::new(8);
        tail.add(&[b'x'; 1 << 20]);
        tail.add(b"the end!");
        assert_eq!(tail.text(), "the end!");
    }
}
