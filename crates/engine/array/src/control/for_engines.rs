//! The engines' news and questions, each handed to the part of control that answers it.

use crate::control::Control;
use crate::control::record::failing::Dropped;
use crate::engine::home::{Answer, Decides, FlushAnswer, Flushed, News, Question};
use crate::state::ArrayId;
use braid_device::{IoError, IoErrorKind};
use braid_shard::Shard;
use std::rc::Rc;

/// The controls of the arrays of this process, as their engines see them.
pub(crate) struct Controlled;

impl Decides for Controlled {
    fn tell(&self, shard: &Shard, id: ArrayId, news: News) {
        let Some(control) = Control::find(shard, id) else { return };
        match news {
            News::Suspect(nr, error, report) => control.record.hear_of(nr, error, report),
            News::GoodAgain(nr, bytes) => control.record.good_again(nr, bytes),
            News::Corrected(nr, sectors) => control.corrected(nr, sectors),
            News::Overdue => Rc::clone(&control.unanswered).look_for_overdue(),
            News::Space => Rc::clone(&control.unanswered).space_changed(),
            News::LogEnded { slot, shard, nr } => control.ppl.ended(slot, shard, nr),
            News::JournalEnded { shard, nr } => control.journal.ended(shard, nr),
            News::Hurry => control.unanswered.watch_for_above(),
        }
    }

    fn ask(&self, shard: &Shard, id: ArrayId, question: Question, answer: Answer) {
        let Some(control) = Control::find(shard, id) else { return answer(false) };
        let question = match question {
            Question::Log(batch) => return control.ppl.log(batch, answer),
            Question::Journal(batch) => return control.journal.log(batch, answer),
            other => other,
        };
        shard.spawn(async move {
            answer(match question {
                Question::Activate => control.activate().await,
                Question::Fail(nr, error) if control.record.is_taken(nr, error) => {
                    control.record.tell_lost().await;
                    false
                }
                Question::Fail(nr, error) => {
                    control.record.note_away(nr, error);
                    let dropped = control.record.fail_nr(nr, &error.to_string()).await;
                    matches!(dropped, Dropped::Faulty | Dropped::Already)
                }
                Question::Record => {
                    control.record.record_failures().await;
                    true
                }
                Question::FailFast(nr, error) => control.fail_fast(nr, error).await,
                Question::ReadError(nr, error) => control.read_error(nr, error).await,
                Question::RecordBad(nr, bad) => control.record.record_bad(nr, bad).await,
                Question::Arm(nr, bits) => control.bitmap.arm(nr, &bits).await,
                // Answered above, without a task of its own.
                Question::Log(_) | Question::Journal(_) => false,
            });
        });
    }

    fn flush(&self, shard: &Shard, id: ArrayId, answer: FlushAnswer) {
        match Control::find(shard, id) {
            Some(control) => Rc::clone(&control.client_flushes).flush(answer),
            None => {
                let error = Some(IoError::new(IoErrorKind::Refused));
                answer(Flushed { error, losses: 0 });
            }
        }
    }
}
