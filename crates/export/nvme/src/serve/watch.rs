//! The watch of a controller: hosts that have fallen silent, arrays that have grown.

use super::admin::Admin;
use super::queue::Queue;
use braid_shard::Shard;
use std::rc::Weak;

/// Nanoseconds between looks.
const LOOK_NANOS: u64 = 1_000_000_000;

/// Looks once a second, as long as the controller is there.
pub(super) async fn watch(shard: Shard, queue: Weak<Queue>, admin: Weak<Admin>) {
    loop {
        shard.sleep(LOOK_NANOS).await;
        let Some((queue, admin)) = queue.upgrade().zip(admin.upgrade()) else { return };
        if let Some(silent) = admin.silent(shard.now()) {
            let controller = &admin.attached.controller;
            tracing::warn!(
                host = %controller.host, controller = controller.id, silent,
                "NVMe host sent no keep alive for so many milliseconds: its controller ends"
            );
            controller.disconnect();
            return;
        }
        admin.look(&queue);
    }
}
