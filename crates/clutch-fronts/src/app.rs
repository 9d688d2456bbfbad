//! What a worker does for the app that it serves, as far as that needs no Python: pure machines and functions.

pub mod response;
pub mod websocket;

/// Percent-escapes resolved; what is no escape stays as it is.
pub fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, after)) = rest.split_first() {
        let escaped = (*byte == b'%').then(|| after.get(..2)).flatten().and_then(hex_byte);
        bytes.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    bytes
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(digits[0])? * 16 + digit(digits[1])?) as u8)
}

#[cfg(test)]
mod tests {
    use super::unescaped;

    #[test]
    fn escapes_are_resolved_and_what_is_none_is_left_alone() {
        for (given, meant) in [("/a%20b", "/a b"), ("/%", "/%"), ("/%4", "/%4"), ("/%zz%41", "/%zzA"), ("%2F", "/")] {
            assert_eq!(unescaped(given.as_bytes()), meant.as_bytes(), "{given}");
        }
    }
}
