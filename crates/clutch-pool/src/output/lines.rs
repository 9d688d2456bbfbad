//! Bytes of one pipe as lines, and the last bytes of a worker.

use std::collections::VecDeque;
use std::sync::Arc;

use clutch_wire::sync::Mutex;

use super::style::{Label, Style};

/// A line longer than this is passed on in pieces.
const LINE_BYTES_MAX: usize = 16 << 10;

/// The same for a line that may be a record as JSON, which pieces would spoil: a traceback is long.
const RECORD_BYTES_MAX: usize = 1 << 20;

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
    /// Lines that wait to be written.
    ready: Vec<u8>,
}

impl Lines {
    pub(super) fn add(&mut self, label: &Label, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
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
        if !self.partial.is_empty() {
            label.put(&mut self.ready, self.partial.strip_suffix(b"\n").unwrap_or(&self.partial));
            self.partial.clear();
        }
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
        lines.add(&label, b"one\ntw");
        assert_eq!(lines.take_ready(), b"[a/0] one\n");
        lines.add(&label, b"o\n");
        assert_eq!(lines.take_ready(), b"[a/0] two\n");
        lines.add(&label, b"no end");
        lines.end_line(&label);
        assert_eq!(lines.take_ready(), b"[a/0] no end\n", "nothing is lost");
    }

    #[test]
    fn at_a_terminal_lines_are_plain() {
        let (mut lines, label) = (Lines::default(), label(Style::Plain));
        lines.add(&label, b"Traceback (most recent call last):\n  File \"a.py\", line 1\nValueError: no\n");
        let ready = lines.take_ready();
        assert_eq!(ready, b"Traceback (most recent call last):\n  File \"a.py\", line 1\nValueError: no\n");
    }

    #[test]
    fn a_long_line_goes_in_pieces_and_a_record_as_one() {
        let (mut lines, label) = (Lines::default(), label(Style::Json));
        lines.add(&label, &[b'x'; LINE_BYTES_MAX]);
        assert!(!lines.take_ready().is_empty());
        lines.add(&label, b"\n");
        lines.take_ready();
        let record = format!("{{\"traceback\":\"{}\"}}\n", "x".repeat(10 * LINE_BYTES_MAX));
        record.as_bytes().chunks(1000).for_each(|piece| lines.add(&label, piece));
        let ready = lines.take_ready();
        assert_eq!(ready.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(ready.len() > 10 * LINE_BYTES_MAX);
        lines.add(&label, &vec![b'{'; 2 * RECORD_BYTES_MAX]);
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
