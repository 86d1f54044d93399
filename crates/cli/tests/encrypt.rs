//! `millpond run --encrypt`: the contents of a program's memory cannot be read in the file that receives it.

use std::process::Command;

/// A program that fills three budgets with pages of noise that each hold a word, and counts the word in every file
/// without a name that a thread of the process has open. (The thread that reads and writes the store has descriptors of
/// its own.)
const PROGRAM: &str = r#"
import os
word = b"still waters " + b"run deep"
pages = [os.urandom(3000) + word + bytes(1000) for _ in range(20000)]
found = files = 0
seen = set()
for task in os.listdir("/proc/self/task"):
    for fd in os.listdir(f"/proc/self/task/{task}/fd"):
        path = f"/proc/self/task/{task}/fd/{fd}"
        try:
            stat = os.stat(path)
            if (stat.st_dev, stat.st_ino) in seen or stat.st_nlink > 0 or stat.st_size < 1 << 20:
                continue
            seen.add((stat.st_dev, stat.st_ino))
            with open(path, "rb", buffering=0) as file:
                if os.readlink(path).startswith("/memfd:"):
                    continue
                files += 1
                while part := file.read(1 << 20):
                    found += part.count(word)
        except OSError:
            pass
assert all(page[3000:3000 + len(word)] == word for page in pages)
print(files, found)
"#;

/// The number of files without a name that the program had, and how often the word was in them.
fn count(encrypt: &[&str], directory: &str) -> Option<(usize, usize)> {
    let store = format!("file:{directory}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command.args(["run", "--ram", "32M", "--report", "none", "--store", &store]);
    command.args(encrypt).args(["--", "python3", "-c", PROGRAM]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("millpond doctor") {
        println!("skipped: {}", said.trim_end());
        return None;
    }
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (files, found) = text.trim().split_once(' ').expect(&text);
    Some((files.parse().unwrap(), found.parse().unwrap()))
}

#[test]
fn an_encrypted_store_file_does_not_reveal_its_contents() {
    // The directory is not `/tmp`, which may be RAM.
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let directory = directory.path().to_str().unwrap();
    let Some((files, found)) = count(&[], directory) else {
        return;
    };
    assert!(files > 0 && found > 5000, "{files} files, {found} times");
    let (files, found) = count(&["--encrypt"], directory).unwrap();
    assert!(files > 0 && found == 0, "{files} files, {found} times");
}
