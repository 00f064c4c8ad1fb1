//! Parts of an array that hold nothing: where none of its members has anything.
//!
//! A byte of the array is in a hole when all that could ever be read for it is: every copy, and at levels with parity the
//! whole row, parity included, on every member that is there. Zeroes have zeroes for parity, so that what a lost member held
//! there is zero, too, by whichever way it is computed: the answer is the same with and without it. What is not certain is
//! data: with bad blocks, while a reshape moves things, and where copies or parity disagree.

use crate::engine::Engine;
use crate::state::view::View;
use braid_device::holes::in_both;
use braid_device::{FindHoles, Holes};
use braid_layout::{Layout, Slot};
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Pieces of the array that are looked at at a time; whoever wants more asks again.
const PIECES_MAX: usize = 1024;

/// Array bytes of a piece, at most.
const RUN_MAX: u64 = 1 << 20;

/// A run of array bytes, and where all of it lies: the slots, and the component byte of each at which it begins.
struct Piece {
    bytes: Range<u64>,
    places: SmallVec<[(Slot, u64); 4]>,
}

/// Finds the holes of the array within `bytes`, as they are at some moment from now on.
pub(crate) fn holes(engine: &Rc<Engine>, bytes: Range<u64>) -> FindHoles {
    let engine = Rc::clone(engine);
    Box::pin(async move { find(&engine, bytes).await })
}

async fn find(engine: &Rc<Engine>, bytes: Range<u64>) -> Holes {
    let view = engine.view();
    if engine.is_stopping() || view.broken || view.any_bad() || !view.geometries().is_one() {
        return Holes::none(&bytes);
    }
    let _request = engine.begin_request();
    let pieces = pieces(&view, &bytes);
    let mut of_members: SmallVec<[Option<Holes>; 8]> = SmallVec::new();
    for slot in 0..view.slots() {
        of_members.push(of_member(&view, slot, &pieces).await);
    }
    let until = pieces.last().map_or(bytes.end, |piece| piece.bytes.end);
    let mut found = Holes { until, ranges: Vec::new() };
    for piece in &pieces {
        if !is_known(piece, &of_members) {
            found.until = piece.bytes.start;
            break;
        }
        for hole in of_piece(&view, piece, &of_members) {
            found.push(hole);
        }
    }
    if found.until == bytes.start {
        // Nothing is known of the first piece, and an answer must be about something.
        return Holes::none(
            &(bytes.start..pieces.first().map_or(bytes.end, |piece| piece.bytes.end)),
        );
    }
    found
}

fn pieces(view: &View, bytes: &Range<u64>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = bytes.start;
    while at < bytes.end && pieces.len() < PIECES_MAX {
        let left = bytes.end - at;
        let (places, run) = match &view.geometry_at(at).layout {
            Layout::Striped(striped) => {
                let (place, run) = striped.map(at);
                (SmallVec::from_iter([(place.slot, place.offset)]), run)
            }
            Layout::Linear(linear) => {
                let (place, run) = linear.map(at);
                (SmallVec::from_iter([(place.slot, place.offset)]), run)
            }
            Layout::Mirror(_) => ((0..view.slots()).map(|slot| (slot, at)).collect(), left),
            Layout::Parity(parity) => {
                let (stripe, _, within) = parity.locate(at);
                let place = parity.member_offset(stripe) + within;
                let places = (0..view.slots()).map(|slot| (slot, place)).collect();
                (places, parity.chunk_size() - within)
            }
            Layout::Raid10(raid10) => {
                let (chunk, within) = raid10.locate(at);
                let copies = (0..raid10.copy_count()).map(|copy| raid10.copy(chunk, copy));
                let places = copies.map(|place| (place.slot, place.offset + within)).collect();
                (places, raid10.chunk_size() - within)
            }
        };
        // Every run has a byte at least.
        let end = at + run.min(RUN_MAX - at % RUN_MAX).clamp(1, left);
        pieces.push(Piece { bytes: at..end, places });
        at = end;
    }
    pieces
}

/// The holes of a slot's member, in component bytes, over all that the pieces have there; `None` without a member.
async fn of_member(view: &View, slot: Slot, pieces: &[Piece]) -> Option<Holes> {
    let (device, data_offset) = view.member(slot)?;
    let device = Rc::clone(device);
    let mut span: Option<Range<u64>> = None;
    for piece in pieces {
        let len = piece.bytes.end - piece.bytes.start;
        for (_, at) in piece.places.iter().filter(|(of, _)| *of == slot) {
            span = Some(match span {
                None => *at..at + len,
                Some(span) => span.start.min(*at)..span.end.max(at + len),
            });
        }
    }
    let Some(span) = span else { return Some(Holes::none(&(0..u64::MAX))) };
    let Holes { until, ranges } =
        device.holes(data_offset + span.start..data_offset + span.end).await;
    let of_component = |byte: u64| byte.saturating_sub(data_offset);
    let ranges =
        ranges.into_iter().map(|hole| of_component(hole.start)..of_component(hole.end)).collect();
    // Beyond what was asked for nobody looks.
    let until = if until >= data_offset + span.end { u64::MAX } else { of_component(until) };
    Some(Holes { until, ranges })
}

/// All members have said what the piece is on them.
fn is_known(piece: &Piece, of_members: &[Option<Holes>]) -> bool {
    let len = piece.bytes.end - piece.bytes.start;
    piece.places.iter().all(|(slot, at)| {
        let member = of_members.get(*slot).and_then(Option::as_ref);
        member.is_none_or(|member| at + len <= member.until)
    })
}

/// The holes of a piece, in array bytes.
fn of_piece(view: &View, piece: &Piece, of_members: &[Option<Holes>]) -> Vec<Range<u64>> {
    let len = piece.bytes.end - piece.bytes.start;
    let mut common: Option<Vec<Range<u64>>> = None;
    for (slot, at) in &piece.places {
        let Some(member) = of_members.get(*slot).and_then(Option::as_ref) else {
            // The others have what it held, if there are others.
            if view.level().has_redundancy() {
                continue;
            }
            return Vec::new();
        };
        let to_array = |byte: u64| byte - at + piece.bytes.start;
        let own: Vec<Range<u64>> = member
            .within(*at..at + len)
            .map(|hole| to_array(hole.start)..to_array(hole.end))
            .collect();
        let both = common.map_or(own.clone(), |common| in_both(&common, &own));
        if both.is_empty() {
            return both;
        }
        common = Some(both);
    }
    common.unwrap_or_default()
}
