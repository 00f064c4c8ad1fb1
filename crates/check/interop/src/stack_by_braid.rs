//! What braid does with stacks: makes arrays of arrays, writes and reads the upper one, checks every level.

use crate::by_braid::{Braid, Content, Outcome, Running, text};
use crate::cell::Cell;
use crate::stacks::Stack;
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, Context, CreateOptions};
use braid_array::stacking::ArrayMember;
use braid_device::{Opener, Target};
use braid_layout::layout_number;
use std::sync::Arc;

const LEAF: u64 = 6 << 20;

fn options(cell: &Cell) -> Outcome<CreateOptions> {
    let layout = cell.layout.map(|layout| layout_number(cell.level, layout)).transpose();
    Ok(CreateOptions {
        layout: layout.map_err(text)?,
        chunk_size: cell.chunk_kib.map(|chunk| chunk << 10),
        version: cell.version,
        ..CreateOptions::new("stack", cell.level, cell.members)
    })
}

/// The arrays of a stack that run: the lower ones, then the top.
struct RunningStack {
    arrays: Vec<Running>,
}

impl RunningStack {
    fn top(&self) -> Outcome<&Running> {
        self.arrays.last().ok_or_else(|| "a stack without arrays".to_owned())
    }

    async fn no_mismatch(&self, stack: &Stack) -> Outcome<()> {
        for (array, cell) in self.arrays.iter().zip(stack.lower.iter().chain([&stack.top])) {
            array.settle().await;
            if cell.level.has_redundancy() {
                array.no_mismatch().await?;
            }
        }
        Ok(())
    }

    /// From the top down.
    async fn stop(self) {
        for array in self.arrays.iter().rev() {
            array.control.stop().await;
        }
    }
}

/// Assembles, and creates before that if so told, from the bottom up.
async fn start(
    context: &Context,
    leaves: Vec<Vec<Arc<dyn Opener>>>,
    cells: Vec<CreateOptions>,
    new: bool,
) -> Outcome<RunningStack> {
    let mut running = RunningStack { arrays: Vec::new() };
    let started = start_all(context, leaves, cells, new, &mut running).await;
    match started {
        Ok(()) => Ok(running),
        Err(why) => {
            running.stop().await;
            Err(why)
        }
    }
}

async fn start_all(
    context: &Context,
    leaves: Vec<Vec<Arc<dyn Opener>>>,
    cells: Vec<CreateOptions>,
    new: bool,
    running: &mut RunningStack,
) -> Outcome<()> {
    let mut lower: Vec<Arc<Array>> = Vec::new();
    for (nr, options) in cells.into_iter().enumerate() {
        let openers: Vec<Arc<dyn Opener>> = match leaves.get(nr) {
            Some(leaves) => leaves.clone(),
            None => lower
                .iter()
                .map(|array| Arc::new(ArrayMember::new(Arc::clone(array))) as Arc<dyn Opener>)
                .collect(),
        };
        if new {
            let given = openers.iter().cloned().map(Some).collect();
            create(context, given, options).await.map_err(text)?;
        }
        // All of them are called the same on disk; running arrays have names of their own.
        let name = Some(format!("a{nr}"));
        let given = AssembleOptions { name, ..AssembleOptions::default() };
        let array = assemble(context, openers, given).await.map_err(text)?;
        let control = Control::find(&context.shard, array.id());
        let control = control.ok_or("the array has no control")?;
        let device = array.open(&context.shard).map_err(text)?;
        lower.push(Arc::clone(&array));
        let shard = context.shard.clone();
        running.arrays.push(Running { _array: array, control, device, shard });
    }
    Ok(())
}

impl Braid {
    /// Makes the files of a stack's leaves, empty.
    ///
    /// # Errors
    /// When there is no room.
    pub fn make_leaves(&self, stack: &Stack, name: &str) -> Outcome<()> {
        for (lower, cell) in stack.lower.iter().enumerate() {
            for nr in 0..cell.members {
                let path = self.path(&Stack::leaves(name, lower), nr);
                braid_device::file::create_sparse(path, LEAF).map_err(text)?;
            }
        }
        Ok(())
    }

    fn with_stack<T: 'static>(
        &self,
        stack: &Stack,
        name: &str,
        new: bool,
        work: impl AsyncFnOnce(&RunningStack) -> Outcome<T> + 'static,
    ) -> Outcome<T> {
        let leaves = stack
            .lower
            .iter()
            .enumerate()
            .map(|(lower, cell)| self.openers(&Stack::leaves(name, lower), 0..cell.members));
        let leaves = leaves.collect::<Outcome<Vec<_>>>()?;
        let cells = stack.lower.iter().chain([&stack.top]).map(options);
        let cells = cells.collect::<Outcome<Vec<_>>>()?;
        let context = self.context();
        self.run(async move {
            let running = start(&context, leaves, cells, new).await?;
            let result = work(&running).await;
            running.stop().await;
            result
        })
    }

    /// Creates the stack, writes `content` all over it, checks every level. Gives its size.
    ///
    /// # Errors
    /// What could not be done, or what was wrong.
    pub fn stack_make(&self, stack: &Stack, name: &str, content: &Content) -> Outcome<usize> {
        let content = content.clone();
        let cells = Stack { top: stack.top.clone(), lower: stack.lower.clone() };
        self.with_stack(stack, name, true, async move |running| {
            let top = running.top()?;
            top.write_all(&content).await?;
            running.no_mismatch(&cells).await?;
            top.size()
        })
    }

    /// Assembles the stack and compares all of it with `content`.
    ///
    /// # Errors
    /// What could not be done, or where the first difference is.
    pub fn stack_compare(&self, stack: &Stack, name: &str, content: &Content) -> Outcome<()> {
        let content = content.clone();
        self.with_stack(stack, name, false, async move |running| {
            running.top()?.compare(&content).await
        })
    }

    /// Assembles the stack, compares all of it with `old`, writes `new`, checks every level.
    ///
    /// # Errors
    /// What could not be done, or what was wrong.
    pub fn stack_compare_and_write(
        &self,
        stack: &Stack,
        name: &str,
        old: &Content,
        new: &Content,
    ) -> Outcome<()> {
        let (old, new) = (old.clone(), new.clone());
        let cells = Stack { top: stack.top.clone(), lower: stack.lower.clone() };
        self.with_stack(stack, name, false, async move |running| {
            let top = running.top()?;
            top.compare(&old).await?;
            top.write_all(&new).await?;
            running.no_mismatch(&cells).await
        })
    }
}
