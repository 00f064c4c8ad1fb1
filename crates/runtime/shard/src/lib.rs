//! One thread, one executor, one io_uring: tasks, timers, buffers, mailboxes
