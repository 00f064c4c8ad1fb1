//! **memory_bounded**: once an array has been stopped, no buffer of any shard is in use; while it runs,
//! no more than its payload and its scratch budget can explain (invariant 5).

use crate::machine::Machine;

const NAME: &str = "memory_bounded";
/// Bytes that one shard may use for stripes, jobs and superblocks beside payload.
const SCRATCH: usize = (128 << 20) + (64 << 20);

/// The array has been stopped and its client is gone.
pub fn at_rest(machine: &Machine) {
    machine.settle_loans();
    let left = machine.buffers_in_use();
    if left > 0 {
        machine
            .world
            .fail(NAME, format!("{left} bytes of buffers are still in use after the stop"));
    }
}

/// The array runs, with `payload` bytes of requests in flight.
pub fn running(machine: &Machine, payload: usize) {
    let used = machine.buffers_in_use();
    // Blocks are powers of two, so payload may take up to twice its size.
    let most = 2 * payload + SCRATCH * machine.shards.len();
    if used > most {
        let text = format!("{used} bytes of buffers are in use for {payload} bytes of payload");
        machine.world.fail(NAME, text);
    }
}
