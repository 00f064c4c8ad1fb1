//! md's packed time: low 40 bits seconds since 1970, high 24 bits microseconds. Reads no clock.

const SECONDS_BITS: u32 = 40;
const SECONDS_MASK: u64 = (1 << SECONDS_BITS) - 1;

/// The stored form of a time. Seconds above 2^40 - 1 and microseconds above 2^24 - 1 lose their high bits.
pub fn pack_time(seconds: u64, micros: u32) -> u64 {
    seconds & SECONDS_MASK | u64::from(micros) << SECONDS_BITS
}

/// Seconds since 1970 of a stored time.
pub fn time_seconds(raw: u64) -> u64 {
    raw & SECONDS_MASK
}

/// Microseconds of a stored time. Below 1,000,000 in what md writes, any 24-bit number in what others may.
pub fn time_micros(raw: u64) -> u32 {
    // A u64 shifted right by 40 has 24 bits.
    (raw >> SECONDS_BITS) as u32
}
