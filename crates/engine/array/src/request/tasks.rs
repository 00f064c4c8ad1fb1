//! The kinds of tasks that requests start, with one slab each per shard.

use crate::engine::Tasks;
use braid_shard::Shard;
use std::cell::OnceCell;
use std::rc::Rc;

#[derive(Default)]
struct PerShard(OnceCell<Rc<Tasks>>);

/// The tasks of `shard`, shared by all arrays on it.
pub(crate) fn of(shard: &Shard) -> Rc<Tasks> {
    let per_shard = shard.local::<PerShard>();
    Rc::clone(per_shard.0.get_or_init(|| {
        Rc::new(Tasks {
            record: shard
                .spawner(|(engine, args)| crate::write::record::record_then_write(engine, args)),
            watch: shard.spawner(crate::write::waiting::watch),
            lead: shard.spawner(|(engine, key)| crate::write::waiting::lead(engine, key)),
            write_alone: shard
                .spawner(|(engine, args)| crate::write::waiting::write_alone(engine, args)),
            write_copies: shard.spawner(|(engine, args)| crate::write::copies::write(engine, args)),
            recover_from_parity: shard
                .spawner(|(engine, args)| crate::read::from_parity::recover(engine, args)),
            recover_from_copies: shard
                .spawner(|(engine, args)| crate::read::from_copies::recover(engine, args)),
            flush: shard.spawner(|(engine, told, done)| super::flush::flush(engine, told, done)),
        })
    }))
}
