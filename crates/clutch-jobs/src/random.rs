//! Random numbers, of the kernel.

pub fn bytes<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    // It fails only where the kernel has no such call.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}

/// In 0..1.
pub fn fraction() -> f64 {
    (u64::from_ne_bytes(bytes()) >> 11) as f64 / (1u64 << 53) as f64
}
