//! Random numbers, of the kernel.

pub fn bytes<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    // It fails only where the kernel has no such call.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}

pub fn numbers(count: usize) -> Vec<u64> {
    let mut bytes = vec![0; 8 * count];
    let mut filled = 0;
    // One call gives a part of what is much.
    while let Ok(more) = rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
        && filled + more < bytes.len()
    {
        filled += more;
    }
    let (numbers, _) = bytes.as_chunks();
    numbers.iter().map(|number| u64::from_ne_bytes(*number)).collect()
}

/// In 0..1.
pub fn fraction() -> f64 {
    (u64::from_ne_bytes(bytes()) >> 11) as f64 / (1u64 << 53) as f64
}
