//! A small generator of reproducible numbers, for models and faults: SplitMix64
//! (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).

/// The number after `state`; moves `state` on.
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_numbers_of_seed_0_are_the_published_ones() {
        let mut state = 0;
        let first = [(); 3].map(|()| super::next(&mut state));
        assert_eq!(first, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }
}
