//! Pairs of a name and a value at the start of a payload: what came beside the arguments of a call, and what heads of requests
//! and responses are made of. docs/wire.md shows the bytes.

use crate::frame::WireError;

/// Header lines in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut reader = Reader(self.bytes);
        // Checked when the head was read.
        std::iter::from_fn(move || Some((reader.short().ok()?, reader.long().ok()?))).take(self.len())
    }
}

// ---- writing

/// Appends bytes behind their number, of two bytes.
pub fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends bytes behind their number, of four bytes.
pub fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends header lines; their count is written when all are known.
#[derive(Debug)]
pub struct HeaderWriter<'a> {
    out: &'a mut Vec<u8>,
    at: usize,
    count: u16,
}

impl HeaderWriter<'_> {
    /// A name of at most 65,535 bytes. No more than 65,535 lines: the limits on both kinds of heads are below that.
    pub fn put(&mut self, name: &[u8], value: &[u8]) {
        put_short(self.out, name);
        put_long(self.out, value);
        self.count += 1;
        self.out[self.at..self.at + 2].copy_from_slice(&self.count.to_le_bytes());
    }
}

/// Appends header lines alone: those of a call.
pub fn put_headers(out: &mut Vec<u8>) -> HeaderWriter<'_> {
    let at = out.len();
    out.extend_from_slice(&[0; 2]);
    HeaderWriter { out, at, count: 0 }
}

// ---- reading

/// Reads the parts of a head one after the other; each fails where bytes are missing.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// The unread rest.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| short(count - self.0.len()))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn short(&mut self) -> Result<&'a [u8], WireError> {
        let count = self.u16()?;
        self.take(usize::from(count))
    }

    pub fn long(&mut self) -> Result<&'a [u8], WireError> {
        let count = self.u32()?;
        self.take(count as usize)
    }

    pub fn text(&mut self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.short()?).map_err(|error| WireError::Text(error.to_string()))
    }

    pub fn headers(&mut self) -> Result<Headers<'a>, WireError> {
        let count = self.u16()?;
        let bytes = self.0;
        for _ in 0..count {
            self.short()?;
            self.long()?;
        }
        Ok(Headers { count, bytes: &bytes[..bytes.len() - self.0.len()] })
    }
}

fn short(missing: usize) -> WireError {
    WireError::Text(format!("a head is {missing} bytes short"))
}

/// Header lines, and what follows them.
pub fn read_headers(bytes: &[u8]) -> Result<(Headers<'_>, &[u8]), WireError> {
    let mut reader = Reader(bytes);
    let headers = reader.headers()?;
    Ok((headers, reader.0))
}
