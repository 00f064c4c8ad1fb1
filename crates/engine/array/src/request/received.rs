//! Work that another shard sends because this one owns the unit.

use crate::engine::Engine;
use crate::engine::mesh::{Msg, PieceDone, Work};
use crate::read::agreeing;
use crate::read::start::recover_here;
use crate::write::start::{write_unit, zero_unit};
use braid_device::{IoError, IoErrorKind};
use braid_shard::ShardId;
use std::rc::Rc;

/// Carries it out, and answers shard `from` under `id`.
pub(crate) fn carry_out(engine: &Rc<Engine>, from: ShardId, id: u32, work: Work) {
    let (pool, done) = (engine.shard.pool(), PieceDone::Peer { to: from, id });
    match work {
        Work::Write { unit, extent, fua, loan } => {
            write_unit(engine, &engine.view(), unit, extent, pool.adopt(loan), fua, done);
        }
        Work::Zero { unit, extent, unmap, fua } => {
            zero_unit(engine, &engine.view(), unit, extent, unmap, fua, done);
        }
        Work::Recover { offset, loan, error } => match pool.adopt_mut(loan) {
            Ok(buf) => recover_here(engine, offset, buf, done, error),
            Err(loan) => {
                let (result, loan) = (Err(IoError::new(IoErrorKind::Invalid)), Some(loan));
                engine.mesh.send(from, Msg::Done { id, result, loan });
            }
        },
        Work::FindAgreeing { sought, loan } => {
            let engine = Rc::clone(engine);
            engine.shard.clone().spawn(async move {
                let found = agreeing::find_here(&engine, sought).await;
                let result = found.as_ref().map(|_| ()).ok_or(IoError::new(IoErrorKind::Medium));
                let loan = match (found, engine.shard.pool().adopt_mut(loan)) {
                    (found, Ok(mut onto)) => {
                        if let Some(found) = found {
                            onto.copy_from_slice(&found);
                        }
                        onto.into_loan().ok()
                    }
                    (_, Err(loan)) => Some(loan),
                };
                engine.mesh.send(from, Msg::Done { id, result, loan });
            });
        }
        Work::Window(window) => {
            let engine = Rc::clone(engine);
            engine.shard.clone().spawn(async move {
                let report = crate::jobs::window::carry_out(&engine, window).await;
                engine.mesh.send(from, Msg::WindowDone { id, report });
            });
        }
    }
}
