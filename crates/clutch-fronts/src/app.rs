//! Part of a worker's work for its app that needs no Python: pure machines and functions.

pub mod forwarded;
pub mod frames;
pub mod http1;
pub mod plain;
pub mod response;
pub mod websocket;

/// Percent-escapes resolved; what is no escape stays as it is.
pub fn unescaped(path: &[u8]) -> Vec<u8> {
    percent_encoding::percent_decode(path).collect()
}

/// The path without the prefix of a proxy: the app gets both, put together by its own protocol.
pub fn below<'a>(path: &'a [u8], root_path: &str) -> &'a [u8] {
    match path.strip_prefix(root_path.as_bytes()) {
        Some(rest) if rest.is_empty() || rest.starts_with(b"/") => rest,
        _ => path,
    }
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
