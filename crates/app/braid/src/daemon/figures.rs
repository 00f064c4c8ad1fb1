//! What running arrays say that they have done, as it is sent over the control socket.

use super::protocol::{Cache, Counters, MemberIo, Stat};
use braid_array::engine::Counters as EngineCounters;
use braid_array::status::{ArrayStatus, MemberState, MemberStatus};
use braid_format::uuid_text;

/// What an array has done in the `seconds` since it was started.
pub fn stat(status: &ArrayStatus, seconds: f64) -> Stat {
    let cache = &status.cache;
    Stat {
        name: status.name.clone(),
        uuid: uuid_text::format(&status.uuid),
        seconds,
        shards: status.shards,
        counters: counters(&status.counters),
        cache: Cache {
            capacity: cache.capacity,
            lines: cache.lines,
            bytes: cache.bytes,
            hits: cache.hits,
            misses: cache.misses,
            evictions: cache.evictions,
        },
        members: status.members.iter().map(member).collect(),
    }
}

/// The counters of an array.
pub fn counters(counters: &EngineCounters) -> Counters {
    Counters {
        reads: counters.reads,
        read_bytes: counters.read_bytes,
        writes: counters.writes,
        written_bytes: counters.written_bytes,
        pieces: counters.pieces,
        batches: counters.batches,
        lookups: counters.lookups,
        member_reads: counters.member_reads,
        member_writes: counters.member_writes,
        full_stripes: counters.full_stripes,
        read_modify_writes: counters.rmw,
        reconstruct_writes: counters.reconstruct,
        recovered_reads: counters.recovered_reads,
        corrected_reads: counters.corrected_reads,
    }
}

/// The state of a member in one or two words.
pub fn member_state(state: MemberState) -> String {
    match state {
        MemberState::Rebuilding { .. } => "rebuilding".to_string(),
        other => other.to_string(),
    }
}

fn member(member: &MemberStatus) -> MemberIo {
    MemberIo {
        number: member.nr,
        name: member.name.clone(),
        slot: member.slot,
        state: member_state(member.state),
        requests_in: member.io.requests_in,
        requests_out: member.io.requests_out,
        bytes: member.io.bytes,
    }
}
