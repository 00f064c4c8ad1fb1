//! The field GF(2^8) of Linux's RAID6: polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), generator 2.
//!
//! The arithmetic on single bytes, and the constant tables derived from it. Blocks are processed elsewhere.
//! Invariant: every table is computed at compile time from [`multiply`], the only definition of the
//! product.

/// The low eight bits of the field polynomial 0x11d, which replace a carry out of bit 7.
pub(crate) const POLYNOMIAL: u8 = 0x1d;

/// The product of two field elements.
pub const fn multiply(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut product) = (a, b, 0);
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = if a & 0x80 != 0 { (a << 1) ^ POLYNOMIAL } else { a << 1 };
        b >>= 1;
    }
    product
}

/// The generator 2 to the power `exponent`; exponents count modulo 255.
pub const fn power(exponent: u8) -> u8 {
    POWERS[exponent as usize]
}

/// The discrete logarithm of `a`: the exponent below 255 with `2^exponent = a`. For zero, which has none, it is 0.
pub(crate) const fn exponent(a: u8) -> u8 {
    EXPONENTS[a as usize]
}

/// The element whose product with `a` is 1. `a` is not zero (zero has no inverse and yields zero).
pub const fn inverse(a: u8) -> u8 {
    // The non-zero elements form a group of 255, so a^254 is a^-1.
    let (mut base, mut exponent, mut result) = (a, 254u8, 1);
    while exponent != 0 {
        if exponent & 1 != 0 {
            result = multiply(result, base);
        }
        base = multiply(base, base);
        exponent >>= 1;
    }
    result
}

/// A Horner step by table look-up adds [`POLYNOMIAL`] once too often; this is the constant offset that
/// such a step leaves unchanged: the solution of 2e + e = 0x1d.
#[cfg(target_arch = "x86_64")]
pub(crate) const HORNER_OFFSET: u8 = multiply(POLYNOMIAL, inverse(3));

const POWERS: [u8; 256] = {
    let mut table = [1; 256];
    let mut exponent = 1;
    while exponent < 256 {
        table[exponent] = multiply(table[exponent - 1], 2);
        exponent += 1;
    }
    table
};

const EXPONENTS: [u8; 256] = {
    let mut table = [0; 256];
    let mut exponent = 0;
    while exponent < 255 {
        table[POWERS[exponent as usize] as usize] = exponent;
        exponent += 1;
    }
    table
};

/// `PRODUCTS[c][x]` is `c * x`.
pub(crate) static PRODUCTS: [[u8; 256]; 256] = {
    let mut table = [[0; 256]; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 256 {
            table[c][x] = multiply(c as u8, x as u8);
            x += 1;
        }
        c += 1;
    }
    table
};

/// The products of one constant with every value of a byte's low and high half, for table look-up
/// instructions: `c * x == low[x & 15] ^ high[x >> 4]`.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[repr(C, align(32))]
pub(crate) struct Halves {
    pub(crate) low: [u8; 16],
    pub(crate) high: [u8; 16],
}

/// [`Halves`] of every constant.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) static HALVES: [Halves; 256] = {
    let mut table = [const { Halves { low: [0; 16], high: [0; 16] } }; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            table[c].low[x] = multiply(c as u8, x as u8);
            table[c].high[x] = multiply(c as u8, (x as u8) << 4);
            x += 1;
        }
        c += 1;
    }
    table
};

/// Multiplication by each constant as an 8x8 bit matrix, in the order that the x86 instruction
/// `gf2p8affineqb` reads: the row that makes bit i of the product is byte 7 - i.
#[cfg(any(target_arch = "x86_64", test))]
pub(crate) static MATRICES: [u64; 256] = {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut column = 0;
        while column < 8 {
            // Column j holds the bits of c * 2^j.
            let product = multiply(c as u8, 1 << column);
            let mut row = 0;
            while row < 8 {
                if product >> row & 1 != 0 {
                    table[c] |= 1 << (8 * (7 - row) + column);
                }
                row += 1;
            }
            column += 1;
        }
        c += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_runs_through_all_non_zero_elements() {
        let mut seen = [false; 256];
        for exponent in 0..255 {
            assert!(!std::mem::replace(&mut seen[power(exponent) as usize], true));
        }
        assert!(!seen[0]);
        assert_eq!(power(255), 1);
    }

    #[test]
    fn powers_are_those_of_linux_raid6() {
        // 2^8 reduces to the polynomial's low byte; the rest by hand from there.
        let from_eight: Vec<u8> = (8..16).map(power).collect();
        assert_eq!(from_eight, [0x1d, 0x3a, 0x74, 0xe8, 0xcd, 0x87, 0x13, 0x26]);
        assert_eq!(power(254), 0x8e);
    }

    #[test]
    fn inverse_times_element_is_one() {
        for a in 1..=255 {
            assert_eq!(multiply(a, inverse(a)), 1, "{a}");
        }
    }

    /// The instruction's definition, bit by bit: bit i of the result is the parity of the operand AND
    /// byte 7 - i of the matrix.
    #[test]
    fn matrices_multiply_as_the_affine_instruction_reads_them() {
        for c in 0..=255u8 {
            for x in 0..=255u8 {
                let mut product = 0;
                for bit in 0..8 {
                    let row = MATRICES[c as usize].to_le_bytes()[7 - bit];
                    product |= (((row & x).count_ones() & 1) as u8) << bit;
                }
                assert_eq!(product, multiply(c, x), "{c} * {x}");
            }
        }
        assert_eq!(MATRICES[1], 0x0102_0408_1020_4080, "the identity matrix of the manual");
    }
}
