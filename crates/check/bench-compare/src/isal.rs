//! ISA-L's kernels behind safe calls.
//!
//! Owns the foreign functions, and with them all `unsafe` of this crate. Does not measure. Invariant: the
//! pointers of a call come from slices of one length that the call borrows, aligned to the 32 bytes that
//! ISA-L asks for.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uchar, c_void};
use std::marker::PhantomData;

// From <isa-l/raid.h> and <isa-l/erasure_code.h>.
unsafe extern "C" {
    safe fn gf_inv(a: c_uchar) -> c_uchar;
    safe fn gf_mul(a: c_uchar, b: c_uchar) -> c_uchar;
    fn xor_gen(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
    fn pq_gen(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
    fn ec_init_tables(k: c_int, rows: c_int, a: *mut c_uchar, gftbls: *mut c_uchar);
    fn ec_encode_data(
        len: c_int,
        k: c_int,
        rows: c_int,
        gftbls: *mut c_uchar,
        data: *mut *mut c_uchar,
        coding: *mut *mut c_uchar,
    );
}

/// The most blocks in one call.
const MOST: usize = 64;

/// The blocks of one call: sources first, then outputs.
pub struct Call<'a> {
    pointers: Vec<*mut c_void>,
    sources: usize,
    len: c_int,
    blocks: PhantomData<&'a mut [u8]>,
}

impl<'a> Call<'a> {
    /// # Panics
    /// If the blocks differ in length, are not aligned to 32 bytes, or are not between 1 and 64, or the
    /// length is not a multiple of 32 below 2 GiB.
    pub fn new<'o: 'a>(
        sources: impl IntoIterator<Item = &'a [u8]>,
        outputs: impl IntoIterator<Item = &'a mut &'o mut [u8]>,
    ) -> Self {
        let mut lengths = Vec::new();
        let mut pointers: Vec<*mut c_void> = Vec::new();
        for source in sources {
            lengths.push(source.len());
            pointers.push(source.as_ptr().cast_mut().cast());
        }
        let sources = pointers.len();
        for output in outputs {
            lengths.push(output.len());
            pointers.push(output.as_mut_ptr().cast());
        }
        assert!((1..=MOST).contains(&pointers.len()) && sources >= 1, "one to 64 blocks");
        assert!(pointers.iter().all(|pointer| pointer.addr().is_multiple_of(32)), "alignment");
        assert!(lengths.iter().all(|&len| len == lengths[0] && len.is_multiple_of(32)), "lengths");
        let len = c_int::try_from(lengths[0]).expect("blocks below 2 GiB");
        Self { pointers, sources, len, blocks: PhantomData }
    }

    fn count(&self) -> c_int {
        self.pointers.len() as c_int // at most MOST
    }

    fn outputs(&self) -> usize {
        self.pointers.len() - self.sources
    }

    /// Writes the XOR of the sources into the only output.
    pub fn xor(&mut self) {
        assert_eq!(self.outputs(), 1, "one output");
        assert!(self.sources >= 2, "ISA-L wants two sources at least");
        // SAFETY: `count` pointers to `len` bytes each, aligned as demanded; only the last is written,
        // and it came from a mutable slice that this call borrows.
        let failed = unsafe { xor_gen(self.count(), self.len, self.pointers.as_mut_ptr()) };
        assert_eq!(failed, 0, "xor_gen refused its arguments");
    }

    /// Writes P and Q of the sources into the two outputs.
    pub fn pq(&mut self) {
        assert_eq!(self.outputs(), 2, "two outputs");
        assert!(self.sources >= 2, "ISA-L wants two sources at least");
        // SAFETY: as in `xor`; only the last two are written.
        let failed = unsafe { pq_gen(self.count(), self.len, self.pointers.as_mut_ptr()) };
        assert_eq!(failed, 0, "pq_gen refused its arguments");
    }

    /// Writes into each output the sum of the sources by one row of `code`.
    pub fn encode(&mut self, code: &mut Code) {
        assert_eq!((self.sources, self.outputs()), (code.sources, code.rows), "shape of the code");
        let (sources, outputs) = self.pointers.split_at_mut(code.sources);
        // SAFETY: as in `xor`; `tables` was made by ec_init_tables for this very shape.
        unsafe {
            ec_encode_data(
                self.len,
                code.sources as c_int,
                code.rows as c_int,
                code.tables.as_mut_ptr(),
                sources.as_mut_ptr().cast(),
                outputs.as_mut_ptr().cast(),
            );
        }
    }
}

/// A matrix over the field, in the form that ISA-L's general encoder reads.
pub struct Code {
    sources: usize,
    rows: usize,
    tables: Vec<u8>,
}

impl Code {
    /// # Panics
    /// If the rows are not of one length between 1 and 64.
    pub fn new(rows: &[Vec<u8>]) -> Self {
        let sources = rows[0].len();
        assert!((1..=MOST).contains(&sources) && rows.len() <= MOST);
        assert!(rows.iter().all(|row| row.len() == sources), "rows of one length");
        let mut matrix = rows.concat();
        let mut tables = vec![0; 32 * sources * rows.len()];
        // SAFETY: `matrix` holds `sources * rows` bytes, `tables` 32 for each of them, as documented.
        unsafe {
            ec_init_tables(
                sources as c_int,
                rows.len() as c_int,
                matrix.as_mut_ptr(),
                tables.as_mut_ptr(),
            );
        }
        Self { sources, rows: rows.len(), tables }
    }

    /// Recovers data blocks `x` and `y` of `n` from the other data blocks in order, P and Q.
    pub fn recover_two(n: usize, x: usize, y: usize) -> Self {
        let power = |exponent: usize| (0..exponent).fold(1, |product, _| gf_mul(product, 2));
        let divisor = gf_inv(power(x) ^ power(y));
        // D_x = (g^y P' ^ Q') / (g^x ^ g^y) and D_y = P' ^ D_x, with P' and Q' the sums of P and Q with
        // what the other data give.
        let (mut row_x, mut row_y) = (Vec::new(), Vec::new());
        for i in (0..n).filter(|i| ![x, y].contains(i)) {
            let factor = gf_mul(divisor, power(y) ^ power(i));
            row_x.push(factor);
            row_y.push(factor ^ 1);
        }
        let of_p = gf_mul(divisor, power(y));
        row_x.extend([of_p, divisor]);
        row_y.extend([of_p ^ 1, divisor]);
        Self::new(&[row_x, row_y])
    }
}
