//! Hours of the day between which checks and repairs run, in the time zone of the machine.

use anyhow::{Result, bail};
use std::fmt;
use std::str::FromStr;

/// Minutes of a day.
const DAY: u16 = 24 * 60;

/// From a minute of the day until another, which may be one of the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    from: u16,
    until: u16,
}

impl Hours {
    /// This minute of the day, counted from midnight, is one of them.
    pub fn contain(&self, minute: u16) -> bool {
        match self.from < self.until {
            true => (self.from..self.until).contains(&minute),
            false => minute >= self.from || minute < self.until,
        }
    }

    /// When they begin, as `01:00`.
    pub fn begin(&self) -> String {
        clock(self.from)
    }
}

impl FromStr for Hours {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Hours> {
        let parsed = text.split_once('-').and_then(|(from, until)| {
            Some(Hours { from: minute(from).filter(|at| *at < DAY)?, until: minute(until)? })
        });
        match parsed {
            Some(Hours { from, until }) if from != until => Ok(Hours { from, until }),
            _ => bail!("{text:?}: two different times of the day, such as 01:00-05:00"),
        }
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", clock(self.from), clock(self.until))
    }
}

fn minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hours) || !digits(minutes) {
        return None;
    }
    let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
    let at = hours * 60 + minutes;
    (minutes < 60 && at <= DAY).then_some(at)
}

fn clock(minute: u16) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_may_go_over_midnight() {
        let night: Hours = "22:30-05:00".parse().unwrap();
        assert!(night.contain(22 * 60 + 30) && night.contain(0) && night.contain(299));
        assert!(!night.contain(300) && !night.contain(12 * 60));
        let day: Hours = "08:00-24:00".parse().unwrap();
        assert!(day.contain(DAY - 1) && !day.contain(0) && day.contain(480));
        assert_eq!((night.to_string(), day.begin()), ("22:30-05:00".into(), "08:00".into()));
    }

    #[test]
    fn what_is_no_time_of_the_day_is_refused() {
        for text in
            ["", "01:00", "1:00-5:00", "01:00-01:00", "01:60-02:00", "25:00-26:00", "24:00-01:00"]
        {
            assert!(text.parse::<Hours>().is_err(), "{text}");
        }
    }
}
