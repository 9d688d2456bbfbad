//! End of a chunked body in the bytes that arrive. Pure.

/// Hexadecimal digits of a chunk's size: as many as make 2^60.
const DIGITS_MAX: u32 = 15;

/// What comes next.
#[derive(Clone, Copy, Debug)]
pub enum Chunked {
    /// The size, of which so many digits came.
    Size { size: u64, digits: u32 },
    /// The rest of its line.
    Extension { size: u64 },
    /// Bytes of the chunk.
    Data { left: u64 },
    /// The line's end after them.
    AfterData,
    /// A line after the last chunk; an empty one is the end.
    Trailer { is_empty: bool },
    /// Nothing.
    Whole,
}

impl Default for Chunked {
    fn default() -> Chunked {
        Chunked::Size { size: 0, digits: 0 }
    }
}

impl Chunked {
    pub fn is_whole(self) -> bool {
        matches!(self, Chunked::Whole)
    }

    /// Takes what came, and tells how much of it belongs to the body.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let mut used = 0;
        while used < bytes.len() && !self.is_whole() {
            if let Chunked::Data { left } = self {
                let came = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - used);
                *left -= came as u64;
                used += came;
                if *left == 0 {
                    *self = Chunked::AfterData;
                }
            } else {
                *self = self.after(bytes[used])?;
                used += 1;
            }
        }
        Ok(used)
    }

    /// What comes after a byte that is not of a chunk's data.
    fn after(self, byte: u8) -> Result<Chunked, String> {
        Ok(match (self, byte) {
            (Chunked::Size { size, digits }, _) if byte.is_ascii_hexdigit() && digits < DIGITS_MAX => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                Chunked::Size { size: size * 16 + u64::from(digit), digits: digits + 1 }
            }
            (Chunked::Size { size, digits: 1.. }, b';' | b' ' | b'\t' | b'\r') => Chunked::Extension { size },
            (Chunked::Size { size, digits: 1.. } | Chunked::Extension { size }, b'\n') => match size {
                0 => Chunked::Trailer { is_empty: true },
                left => Chunked::Data { left },
            },
            (Chunked::Extension { .. }, _) | (Chunked::AfterData, b'\r') => self,
            (Chunked::AfterData, b'\n') => Chunked::default(),
            (Chunked::Trailer { is_empty: true }, b'\n') => Chunked::Whole,
            (Chunked::Trailer { is_empty: false }, b'\n') => Chunked::Trailer { is_empty: true },
            (Chunked::Trailer { .. }, b'\r') => self,
            (Chunked::Trailer { .. }, _) => Chunked::Trailer { is_empty: false },
            _ => return Err(format!("{:?} in the frame of a chunk", char::from(byte))),
        })
    }
}
