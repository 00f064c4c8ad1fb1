//! Jobs over the parts that they need.

#![allow(clippy::unwrap_used)]

use super::{Mover, NewJob};
use crate::membership::{BrickToAdd, Membership};
use crate::tests::rig::{Rig, STRIPE};
use braid_device::ram::Ram;
use braid_format::volume::BLOCK;
use std::rc::Rc;
use uuid::Uuid;

fn mover(rig: &Rig) -> (Rc<Membership>, Rc<Mover>) {
    let membership = Rc::new(Membership::new(&rig.parts));
    let (files, members) = (Rc::clone(&rig.files), Rc::clone(&membership));
    (membership, Rc::new(Mover::new(&rig.parts, files, members)))
}

#[test]
fn a_brick_is_filled_by_a_balance_and_emptied_by_a_removal() {
    let rig = Rig::new(&[16]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let (membership, mover) = mover(&rig);
        let bytes: Vec<u8> = (0..40 * STRIPE).map(|at| (at / 1000) as u8).collect();
        let file = rig.file(b"f").await;
        rig.write(file, 0, &bytes).await;
        let new = BrickToAdd {
            uuid: Uuid::from_u128(2),
            device: Ram::new("ram", 16 << 20).device(),
            data_offset: 0,
            weight: 16,
            blocks: (16 << 20) / BLOCK,
            proxy: false,
            domain: String::new(),
            in_place_of: None,
        };
        let id = membership.add(new).await.unwrap();
        let used = |id| rig.bricks.get(id).unwrap().space.used() * BLOCK / STRIPE;
        assert_eq!((used(0), used(id)), (40, 0));
        assert!(rig.record.is_unbalanced());
        mover.start(NewJob::Balance).await.unwrap();
        mover.wait().await.unwrap();
        assert!((10..=30).contains(&used(id)), "{} stripes are on the new brick", used(id));
        assert_eq!(used(0) + used(id), 40);
        assert!(!rig.record.is_unbalanced());
        mover.start(NewJob::Remove { brick: 0 }).await.unwrap();
        mover.wait().await.unwrap();
        assert!(rig.bricks.get(0).is_none());
        let gone: Vec<Uuid> = membership.take_gone().iter().map(|gone| gone.uuid).collect();
        assert_eq!((used(id), gone), (40, vec![Uuid::from_u128(1)]));
        assert_eq!(rig.read(file, 0, bytes.len()).await, bytes);
    });
}
