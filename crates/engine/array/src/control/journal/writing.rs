//! Groups written to the ring.

use crate::consistency::journal::LoggedRow;
use crate::control::journal::group::{BatchId, Group, blocks_of, encode};
use crate::control::journal::{Log, WriteJournal};
use crate::metadata::journal::Begun;
use braid_format::journal::Meta;
use braid_shard::Buf;
use braid_shard::plant::planted;
use braid_shard::sync::Share;

impl WriteJournal {
    /// Writes a group of these rows, of the batches `open`, once there is room. False: the journal is lost.
    pub(super) async fn write_group(
        &self,
        writing: &Share,
        rows: Vec<LoggedRow>,
        open: Vec<BatchId>,
    ) -> bool {
        let blocks = blocks_of(&rows);
        let fits = || self.log.borrow().as_ref().is_some_and(|log| blocks < log.free());
        if !fits() && !self.drain_now(writing).await {
            return false;
        }
        let encoded = self.log.borrow().as_ref().and_then(|log| {
            encode(self.record.shard.pool(), (&log.ring, log.seed), log.head, &rows)
        });
        drop(rows);
        // A write that a ring of this size cannot hold is divided before it comes here.
        let Some((bytes, next)) = encoded.filter(|_| fits()) else { return false };
        self.write_to_ring(blocks, bytes, next, open).await
    }

    /// Writes an empty meta block: the tail can stand there.
    pub(super) async fn write_empty(&self, _writing: &Share) -> bool {
        let empty = |log: &Log| {
            let Begun { position, seq } = log.head;
            let block = Meta::empty(seq, position).to_bytes(log.seed)?;
            let next = Begun { position: log.ring.after(position, 1), seq: seq.wrapping_add(1) };
            Some((self.record.shard.pool().copy_of(&block), next))
        };
        let Some((block, next)) = self.log.borrow().as_ref().and_then(empty) else { return false };
        self.write_to_ring(1, block.freeze(), next, Vec::new()).await
    }

    /// Writes a group to the head, behind which the log goes on at `next`.
    async fn write_to_ring(
        &self,
        blocks: u64,
        bytes: Buf,
        next: Begun,
        open: Vec<BatchId>,
    ) -> bool {
        let place = self.log.borrow().as_ref().map(|log| (log.ring.clone(), log.head.position));
        let Some((ring, at)) = place else { return false };
        // The planted bug has members written while it is being logged.
        if planted("journaled-after-data") {
            let shard = self.record.shard.clone();
            self.record.shard.spawn(async move {
                let _ = ring.write(&shard, at, bytes).await;
            });
        } else if let Err(error) = ring.write(&self.record.shard, at, bytes).await {
            self.lost("the journal could not be written", error).await;
            return false;
        }
        let yes = self.record.may_record() && self.is_there();
        if let Some(log) = self.log.borrow_mut().as_mut() {
            let open = if yes { open } else { Vec::new() };
            log.groups.push_back(Group { nr: self.count.get(), at, blocks, open });
            log.head = next;
            self.count.set(self.count.get() + 1);
        }
        yes
    }
}
