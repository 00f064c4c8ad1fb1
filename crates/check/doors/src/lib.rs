//! The rules for every door, case by case, independent of its protocol.
//!
//! [`cases`] are the cases. Each runs on a [`Rig`]: a [`Disk`] with a volatile cache, served by a door on two shards. What
//! is different from door to door stands behind an [`Adapter`], and its clients behind [`Client`]. A door runs all of them
//! with one line, `braid_doors::conformance!(ADAPTER);`, in `tests/`.
//!
//! [`nbd`], [`nvme`] and [`vhost`] are adapters of those doors, each with a plain client, of which those with sockets use a [`wire`];
//! all else knows no protocol. [`block`] is a client of a disk of this machine, behind which may be a door, too.
#![forbid(unsafe_code)]

pub mod block;
pub mod cases;
mod client;
mod disk;
pub mod nbd;
pub mod nvme;
mod rig;
pub mod vhost;
pub mod wire;

pub use client::{Answer, Client, Command, Failure, Properties};
pub use disk::{Disk, Shape};
pub use rig::{Adapter, Rig};

/// Makes a test of each case, for the door behind an [`Adapter`]; or of some cases, each with one more attribute, for a door
/// for which not all have a meaning.
#[macro_export]
macro_rules! conformance {
    ($adapter:expr) => {
        $crate::conformance!($adapter,
            content: every_byte_is_written_and_read_back, the_largest_request_goes_through_whole,
                data_survives_a_storm_of_requests, clients_see_each_others_writes,
                a_discard_harms_no_neighbour, zeroes_read_back_as_zeroes;
            bounds: the_target_is_described_as_it_is, blocks_of_4096_are_kept_to,
                requests_beyond_the_end_are_refused, a_read_only_target_takes_no_write,
                errors_of_the_device_reach_the_client_and_nobody_else,
                a_target_that_grows_is_used_to_its_new_end;
            durability: a_fua_write_survives_a_power_cut, a_flush_covers_what_was_answered,
                a_flush_covers_what_other_clients_wrote, what_is_not_flushed_is_old_or_new,
                a_flush_covers_zeroes;
            lifecycle: clients_are_listed_with_what_they_did, a_drain_answers_what_was_taken,
                a_target_that_is_withdrawn_loses_its_clients, a_target_in_use_is_not_taken_away,
                a_successor_gets_new_clients_and_old_ones_stay,
                a_successor_goes_on_with_clients_where_it_can, a_stop_leaves_nothing_behind;
            abuse: a_client_that_vanishes_with_requests_under_way_harms_nobody,
                garbage_ends_that_client_only, silence_costs_nobody_anything,
                a_byte_now_and_then_costs_nobody_anything, requests_that_trickle_in_hold_nobody_up,
                hundreds_of_clients_are_served, ten_thousand_connections_cost_nobody_anything,
                too_many_clients_are_turned_away;
        );
    };
    // Before the next one: an attribute may be part of an expression.
    (#[$more:meta] $adapter:expr, $($subject:ident: $($case:ident),+;)+) => {
        $(mod $subject {
            use super::*;
            $(#[test]
            #[$more]
            fn $case() {
                $crate::cases::$subject::$case(&$adapter);
            })+
        })+
    };
    ($adapter:expr, $($subject:ident: $($case:ident),+;)+) => {
        $crate::conformance!(#[doc(hidden)] $adapter, $($subject: $($case),+;)+);
    };
}
