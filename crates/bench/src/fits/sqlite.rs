//! `sqlite`: sqlite3 fills a table in a file, creates an index, changes rows and runs queries.

use crate::error::Failure;
use crate::fits::job::{Outcome, Place};
use crate::programs_here;
use std::ffi::OsStr;

/// The program's name.
pub const PROGRAM: &str = "sqlite3";
const ROWS: u32 = 300_000;

/// Times the program from start to end.
///
/// # Errors
/// When the program cannot be started, or fails.
pub fn work(place: &Place<'_>) -> Result<Outcome, Failure> {
    let rows = place.sizes().times(ROWS);
    let database = place.directory().join("database");
    let script = script(rows);
    let arguments = ["-batch".as_ref(), database.as_os_str(), OsStr::new(&script)];
    let program = programs_here::find(PROGRAM)?;
    let (seconds, said, ended) = place.run(PROGRAM, &program, &arguments)?;
    let wrong = u64::from(!said.ends_with(&answer(rows)));
    place.outcome(seconds, &ended, wrong)
}

/// The work in SQL. We do not measure the disk, so syncs are off.
fn script(rows: u32) -> String {
    format!(
        "pragma synchronous=off;
         pragma cache_size=-16384;
         create table rows(id integer primary key, value integer, note text);
         insert into rows with recursive n(i) as (select 0 union all select i + 1 from n where i + 1 < {rows})
             select i, (i * 7919) % 1000003, 'the note of row ' || i from n;
         create index by_value on rows(value);
         update rows set note = note || ', changed' where value % 3 = 0;
         select count(distinct substr(note, 1, 24)) > 0 from rows;
         select count(*), sum(value) from rows where note like 'the note%';"
    )
}

/// The expected last line of output.
fn answer(rows: u32) -> String {
    let values = (0..u64::from(rows)).map(|i| (i * 7919) % 1_000_003);
    format!("{rows}|{}\n", values.sum::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_answer_matches_the_sql_script() {
        assert_eq!(answer(2), "2|7919\n");
        assert!(script(7).contains("i + 1 < 7"));
    }
}
