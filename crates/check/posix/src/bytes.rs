//! Bytes to write and to expect: from a seed, and in memory that direct I/O takes.

/// `len` bytes that a seed decides.
#[must_use]
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Memory that begins at a multiple of 4096, as direct I/O asks for.
#[derive(Debug)]
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// A copy of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut memory = vec![0; bytes.len() + 4096];
        let start = memory.as_ptr().align_offset(4096);
        memory[start..start + bytes.len()].copy_from_slice(bytes);
        Self { memory, start, len: bytes.len() }
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}
