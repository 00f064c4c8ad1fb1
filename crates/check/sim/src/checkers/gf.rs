//! The field of the RAID6 syndrome, once more and in the plainest way: what parity on the members'
//! images is compared with. Shares no line with `braid_parity`.
//!
//! GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 and the generator 2 (H. P. Anvin: "The
//! mathematics of RAID-6").

/// Twice a field element.
fn double(value: u8) -> u8 {
    (value << 1) ^ if value & 0x80 == 0 { 0 } else { 0x1d }
}

/// Product of two field elements.
fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

/// Adds `source` to `parity`, byte by byte.
pub fn add(parity: &mut [u8], source: &[u8]) {
    for (sum, byte) in parity.iter_mut().zip(source) {
        *sum ^= byte;
    }
}

/// 2 to the power of `exponent`.
pub fn power(exponent: usize) -> u8 {
    (0..exponent).fold(1, |power, _| double(power))
}

/// Multiplies every byte by the inverse of `factor`, which must not be 0.
pub fn divide(bytes: &mut [u8], factor: u8) {
    let inverse = (1..=255).find(|inverse| times(*inverse, factor) == 1).unwrap_or(1);
    bytes.iter_mut().for_each(|byte| *byte = times(*byte, inverse));
}

/// Adds `source` times 2 to the power of `exponent` to `syndrome`.
pub fn add_power(syndrome: &mut [u8], source: &[u8], exponent: usize) {
    let factor = power(exponent);
    let mut products = [0; 256];
    for (value, product) in (0..=255).zip(&mut products) {
        *product = times(value, factor);
    }
    for (sum, byte) in syndrome.iter_mut().zip(source) {
        *sum ^= products[*byte as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_has_255_powers() {
        let mut value = 1;
        let mut order = 0;
        loop {
            value = double(value);
            order += 1;
            if value == 1 {
                break;
            }
        }
        assert_eq!(order, 255);
        assert_eq!(times(0x80, 2), 0x1d);
        assert_eq!(times(3, 7), 9);
    }
}
