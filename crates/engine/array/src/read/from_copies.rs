//! Reads whose first member could not give them: taken from another copy, and written back.

use crate::engine::Engine;
use crate::engine::work::RecoverArgs;
use crate::read::wide::Wide;
use crate::redundancy::copies::{alike, in_order};
use crate::redundancy::mend::{mend, piece_size};
use crate::state::extent::pieces;
use crate::state::view::View;
use braid_device::{IoError, IoErrorKind, Op, Request};
use braid_layout::Place;
use braid_shard::BufMut;
use smallvec::SmallVec;
use std::rc::Rc;

/// Views may change while copies are read; each time they are read anew.
const ATTEMPTS_MAX: usize = 8;

/// Carries out one recovery and tells `done`.
pub(crate) async fn recover(engine: Rc<Engine>, args: RecoverArgs) {
    let RecoverArgs { offset, mut buf, done, error } = args;
    let result = read_any(&engine, offset, &mut buf, error).await;
    done.finish(&engine.mesh, result, Some(buf), None);
}

async fn read_any(
    engine: &Rc<Engine>,
    offset: u64,
    buf: &mut BufMut,
    error: Option<IoError>,
) -> Result<(), IoError> {
    let (unit, within, room) = {
        let view = engine.view();
        let geometry = view.geometry_at(offset);
        let (unit, within) = geometry.locate_unit(offset);
        (unit, within, geometry.unit_size().min(geometry.array_size() - (offset - within)))
    };
    let wide = Wide::of(engine, within..within + buf.len() as u64, room, error);
    let _held = engine.locks.lock(unit, wide.pieces.start, wide.pieces.end).await;
    let read = async |start, buf: &mut BufMut| read_locked(engine, (unit, start), buf, error).await;
    wide.recover(engine, buf, read).await
}

/// Reads bytes of a unit that are locked.
async fn read_locked(
    engine: &Rc<Engine>,
    (unit, within): (u64, u64),
    buf: &mut BufMut,
    error: Option<IoError>,
) -> Result<(), IoError> {
    let len = buf.len() as u64;
    let mut at = 0;
    loop {
        let alike = alike(&engine.view(), (unit, within + at), len - at);
        if alike == len {
            return read_in_parts(engine, (unit, within), buf, error).await;
        }
        let mut piece = engine.shard.pool().get(alike as usize);
        read_in_parts(engine, (unit, within + at), &mut piece, error).await?;
        let start = at as usize;
        buf[start..start + piece.len()].copy_from_slice(&piece);
        at += alike;
        if at == len {
            return Ok(());
        }
    }
}

/// [`read_alike`], and where that cannot be had as a whole piece by piece, then logical block by logical block: each copy
/// may have lost others.
async fn read_in_parts(
    engine: &Rc<Engine>,
    (unit, within): (u64, u64),
    buf: &mut BufMut,
    error: Option<IoError>,
) -> Result<(), IoError> {
    let block = u64::from(engine.info.logical_block);
    let height = if buf.len() as u64 > piece_size(engine) { piece_size(engine) } else { block };
    match read_alike(engine, (unit, within), buf, error).await {
        Err(error) if error.kind == IoErrorKind::Medium && buf.len() as u64 > height => {}
        result => return result,
    }
    for piece in pieces(&(within..within + buf.len() as u64), height) {
        let rows = (piece.start - within) as usize..(piece.end - within) as usize;
        let mut part = engine.shard.pool().get(rows.len());
        Box::pin(read_in_parts(engine, (unit, piece.start), &mut part, error)).await?;
        buf[rows].copy_from_slice(&part);
    }
    Ok(())
}

/// Reads bytes of which each copy is bad as a whole, or not at all.
async fn read_alike(
    engine: &Rc<Engine>,
    at: (u64, u64),
    buf: &mut BufMut,
    error: Option<IoError>,
) -> Result<(), IoError> {
    let mut last = error;
    for _ in 0..ATTEMPTS_MAX {
        let view = engine.view();
        match read_copies(engine, &view, at, buf).await {
            Ok(()) => return Ok(()),
            Err(Some(error)) => last = Some(error),
            Err(None) => {}
        }
        // Meanwhile another copy may have been rebuilt, or a member failed and been recorded.
        if !engine.suspects_recorded(&view).await {
            break;
        }
    }
    Err(last.unwrap_or(engine.view().no_copy_left()))
}

/// Takes the first copy that can be read, and mends those before it. Before a resync has come by, copies may differ, and
/// what clients have been given of the first one has to stay: then another one is asked for no more than a piece. The error
/// is that of the last copy; `None` when there was none to read.
async fn read_copies(
    engine: &Rc<Engine>,
    view: &View,
    (unit, within): (u64, u64),
    buf: &mut BufMut,
) -> Result<(), Option<IoError>> {
    let len = buf.len() as u64;
    let end = unit * view.geometry_of(unit).unit_size() + within + len;
    let same = end <= view.resynced;
    // Which of them failed the caller is found out again here.
    let mut bad: SmallVec<[(Place, IoError); 2]> = SmallVec::new();
    for place in in_order(view, (unit, within), len) {
        // As it is now: while an earlier copy was tried this one's member may have failed.
        let now = engine.view();
        if !now.readable(place.slot, &(place.offset..place.offset + len)) {
            continue;
        }
        let Some((device, data_offset)) = now.member(place.slot) else { continue };
        let request = Request::read(data_offset + place.offset, buf.split_off(0));
        let outcome = engine.sets.one(&**device, request).await;
        if let Op::Read(mut bufs) = outcome.op
            && let Some(part) = bufs.pop()
            && let Err(part) = buf.rejoin(part)
        {
            // All of it was given away: a device that was given up keeps the buffer, and gives another.
            *buf = part;
        }
        match outcome.result {
            Ok(()) => {
                // Until they are the same, the copies would go on giving one thing here and another there.
                for (place, error) in bad {
                    mend(engine, view, place, error, buf, same).await;
                }
                return Ok(());
            }
            Err(error)
                if error.kind == IoErrorKind::Medium && !same && len > piece_size(engine) =>
            {
                return Err(Some(error));
            }
            Err(error) => bad.push((place, error)),
        }
    }
    for (place, error) in &bad {
        if error.means_gone() {
            engine.home.fail_member(view.member_nr(place.slot), *error).await;
        }
    }
    Err(bad.last().map(|(_, error)| *error))
}
