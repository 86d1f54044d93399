//! Redis's own client: the same objects with plain SET, GET and GETRANGE, without OpenDAL in between.

use crate::error::Failure;
use crate::remote::objects::{Objects, SENT_AT_ONCE};
use crate::remote::work::{Outcome, Task};
use redis::{Client, Connection, RedisResult, cmd};
use std::thread;

/// Sets the objects, gets them in order, and gets ranges of them at random.
///
/// # Errors
/// When the service does not answer.
pub fn work(task: &Task) -> Result<Outcome, Failure> {
    let objects = Objects::new(task);
    let client = Client::open(task.url.as_str())?;
    let clocks = task.start()?;
    set(&client, objects)?;
    let fill = clocks.stop(objects.pages)?;

    let mut wrong_pages = 0;
    let mut connection = client.get_connection()?;
    let clocks = task.start()?;
    for object in 0..objects.count() {
        let bytes = get(&mut connection, &Objects::path(object))?;
        wrong_pages += objects.wrong(object, &bytes);
    }
    let read = clocks.stop(objects.pages)?;

    let clocks = task.start()?;
    for access in objects.at_random() {
        let mut range = cmd("GETRANGE");
        range.arg(&access.path).arg(access.bytes.start);
        // The end of the range is inclusive.
        range.arg(access.bytes.end - 1);
        let bytes: Vec<u8> = range.query(&mut connection)?;
        wrong_pages += u64::from(!access.is_right(&bytes));
    }
    let random = clocks.stop(objects.accesses)?;
    for object in 0..objects.count() {
        cmd("DEL")
            .arg(Objects::path(object))
            .exec(&mut connection)?;
    }
    Ok(Outcome {
        fill,
        read,
        random,
        wrong_pages,
        ..Outcome::default()
    })
}

/// Sets all objects, as many at once as Millpond does. The threads share the objects in turns.
fn set(client: &Client, objects: Objects) -> Result<(), Failure> {
    let share = |first: usize| -> RedisResult<()> {
        let mut connection = client.get_connection()?;
        for object in (first..objects.count()).step_by(SENT_AT_ONCE) {
            let mut set = cmd("SET");
            set.arg(Objects::path(object)).arg(objects.make(object));
            set.exec(&mut connection)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let share = &share;
        let running: Vec<_> = (0..SENT_AT_ONCE)
            .map(|first| scope.spawn(move || share(first)))
            .collect();
        for thread in running {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })
}

fn get(connection: &mut Connection, path: &str) -> RedisResult<Vec<u8>> {
    cmd("GET").arg(path).query(connection)
}
