//! Big-endian fields: reading from a slice, gathering a header that arrives in pieces.
//!
//! Owns no meaning. Invariant: running out of bytes is a value, never a panic.

/// Reads fields from the front of a slice.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// A string preceded by its 32-bit length.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).ok()?)
    }
}

/// Takes up to `count` bytes from the front of `input`.
pub(super) fn take_up_to<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (head, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    head
}

/// Collects exactly `N` bytes from a stream that may be split anywhere.
#[derive(Debug, Clone)]
pub(super) struct Gather<const N: usize> {
    bytes: [u8; N],
    have: usize,
}

impl<const N: usize> Gather<N> {
    pub fn new() -> Self {
        Self { bytes: [0; N], have: 0 }
    }

    /// The `N` bytes once they are all there; consumes what it uses from `input`.
    pub fn take(&mut self, input: &mut &[u8]) -> Option<[u8; N]> {
        if self.have == 0
            && let Some((whole, rest)) = input.split_first_chunk::<N>()
        {
            *input = rest;
            return Some(*whole);
        }
        let piece = take_up_to(input, N - self.have);
        // `have + piece.len() <= N` by the bound just given.
        self.bytes[self.have..self.have + piece.len()].copy_from_slice(piece);
        self.have += piece.len();
        if self.have < N {
            return None;
        }
        self.have = 0;
        Some(self.bytes)
    }

    /// The bytes that have arrived while not all have.
    pub fn come(&self) -> &[u8] {
        self.bytes.get(..self.have).unwrap_or_default()
    }
}
