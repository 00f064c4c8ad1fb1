//! Numbers and names, read from the front of a request, put at the end of a reply.

/// The longest body that [`Out`] holds: what a create is answered with.
const LONGEST: usize = 160;

/// Reads fields from the front of a slice.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    pub fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_ne_bytes)
    }

    /// Leaves `count` bytes out.
    pub fn skip(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.get(count..)?;
        Some(())
    }

    /// A name, up to the zero byte after it.
    pub fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let name = self.0.get(..end)?;
        self.0 = self.0.get(end + 1..)?;
        Some(name)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }
}

/// A short body of a reply.
pub(crate) struct Out {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Out {
    pub fn new() -> Out {
        Out { bytes: [0; LONGEST], len: 0 }
    }

    fn put(mut self, field: &[u8]) -> Out {
        let end = self.len + field.len();
        debug_assert!(end <= LONGEST, "no body is longer");
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(field);
            self.len = end;
        }
        self
    }

    pub fn u16(self, value: u16) -> Out {
        self.put(&value.to_ne_bytes())
    }

    pub fn u32(self, value: u32) -> Out {
        self.put(&value.to_ne_bytes())
    }

    pub fn u64(self, value: u64) -> Out {
        self.put(&value.to_ne_bytes())
    }

    pub fn i64(self, value: i64) -> Out {
        self.put(&value.to_ne_bytes())
    }

    /// The bytes that were put so far.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_read_and_running_out_is_a_value() {
        let out = Out::new().u16(7).u32(8).u64(9).i64(-1);
        let mut bytes = out.bytes()[2..].to_vec();
        bytes.extend(b"name\0rest");
        let mut fields = Fields(&bytes);
        assert_eq!((fields.u32(), fields.u64(), fields.i64()), (Some(8), Some(9), Some(-1)));
        assert_eq!(fields.name(), Some(&b"name"[..]));
        assert_eq!((fields.u64(), fields.bytes(5)), (None, None));
        assert_eq!((fields.bytes(4), fields.u32()), (Some(&b"rest"[..]), None));
        assert_eq!((Fields(b"no end").name(), Fields(b"x").skip(2)), (None, None));
    }
}
