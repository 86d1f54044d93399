//! `make`, `script`, `tests`, `node` and `java`: commands, most of which start many processes that end soon.
//!
//! Each prints a last line by which its answer is judged.

use crate::error::Failure;
use crate::fits::Part;
use crate::fits::job::{Outcome, Place};
use crate::programs_here;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

/// A command: what it needs, what it is given, and what it says.
pub struct Command {
    /// The programs that it needs; the first one is what is run.
    pub programs: &'static [&'static str],
    arguments: &'static [&'static str],
    /// How often something is done: files, commands, tests or rounds.
    times: u32,
    /// Writes the files that the command reads into its directory.
    prepare: fn(&Path, u32) -> io::Result<()>,
    /// The last line of its output.
    answer: fn(u32) -> String,
}

/// The command of a part, if it is one.
#[must_use]
pub fn of(part: Part) -> Option<Command> {
    Some(match part {
        Part::Make => Command {
            programs: &["make", "gcc"],
            arguments: &["-s", "-j2"],
            times: 300,
            prepare: sources,
            answer: |files| files.to_string(),
        },
        Part::Script => Command {
            programs: &["sh", "expr"],
            arguments: &["script"],
            times: 1_000,
            prepare: script,
            answer: |commands| commands.to_string(),
        },
        Part::Tests => Command {
            programs: &["python3"],
            arguments: &["-m", "unittest", "-q"],
            times: 2_000,
            prepare: tests,
            answer: |tests| format!("{tests} tests"),
        },
        Part::Node => Command {
            programs: &["node"],
            arguments: &["rounds.js"],
            times: 40,
            prepare: node,
            answer: |rounds| (u64::from(rounds) * 20_000).to_string(),
        },
        Part::Java => Command {
            programs: &["java"],
            arguments: &["Rounds.java"],
            times: 40,
            prepare: java,
            answer: |rounds| (u64::from(rounds) * 100_000).to_string(),
        },
        _ => return None,
    })
}

/// Times the command from start to end.
///
/// # Errors
/// When the command cannot be started, or fails.
pub fn work(place: &Place<'_>, command: &Command) -> Result<Outcome, Failure> {
    let times = place.sizes().times(command.times);
    (command.prepare)(place.directory(), times)?;
    let name = command.programs[0];
    let program = programs_here::find(name)?;
    let arguments: Vec<_> = command.arguments.iter().map(OsStr::new).collect();
    let (seconds, said, ended) = place.run(name, &program, &arguments)?;
    let wrong = u64::from(said.lines().last() != Some(&*(command.answer)(times)));
    place.outcome(seconds, &ended, wrong)
}

/// C files of a function each, and how they are compiled. The last command counts the objects.
fn sources(directory: &Path, files: u32) -> io::Result<()> {
    for number in 0..files {
        let text = format!(
            "#include <stdio.h>\n#include <string.h>\n\
             int words_{number}(const char *text) {{\n\
                 int words = {number};\n\
                 for (const char *at = strchr(text, ' '); at; at = strchr(at + 1, ' ')) words++;\n\
                 return printf(\"%d\\n\", words);\n}}\n"
        );
        fs::write(directory.join(format!("part{number}.c")), text)?;
    }
    let rules = "objects := $(patsubst %.c,%.o,$(wildcard *.c))\n\
                 all: $(objects)\n\t@ls *.o | wc -l\n\
                 %.o: %.c\n\tgcc -O1 -c $< -o $@\n";
    fs::write(directory.join("Makefile"), rules)
}

/// A loop that starts a command in each round.
fn script(directory: &Path, commands: u32) -> io::Result<()> {
    let text = format!(
        "i=0\nwhile [ $i -lt {commands} ]; do\n    i=$(/usr/bin/expr $i + 1)\ndone\necho $i\n"
    );
    fs::write(directory.join("script"), text)
}

/// Files of 20 small tests each.
fn tests(directory: &Path, tests: u32) -> io::Result<()> {
    const EACH: u32 = 20;
    for (number, first) in (0..tests).step_by(EACH as usize).enumerate() {
        let mut text =
            "import json, tempfile, unittest\nclass Tests(unittest.TestCase):\n".to_owned();
        for test in first..(first + EACH).min(tests) {
            text += &format!(
                "    def test_{test}(self):\n        \
                     data = {{str(i): [i] * 20 for i in range(200)}}\n        \
                     with tempfile.TemporaryFile('w+') as file:\n            \
                         json.dump(data, file)\n            \
                         file.seek(0)\n            \
                         self.assertEqual(json.load(file), data)\n"
            );
        }
        fs::write(directory.join(format!("test_part{number}.py")), text)?;
    }
    // The runner reports to standard error, so the number of tests is printed when it has ended.
    let last = "import atexit, unittest\n\
                run = []\n\
                original = unittest.TestCase.run\n\
                def count(self, *rest):\n    run.append(1)\n    return original(self, *rest)\n\
                unittest.TestCase.run = count\n\
                atexit.register(lambda: print(len(run), 'tests'))\n";
    fs::write(directory.join("test_a_count.py"), last)
}

/// Objects, text made of them, and what is read back from it.
fn node(directory: &Path, rounds: u32) -> io::Result<()> {
    let text = format!(
        "let count = 0;\n\
         for (let round = 0; round < {rounds}; round++) {{\n\
             const rows = [];\n\
             for (let i = 0; i < 20000; i++) rows.push({{ id: i, name: `row ${{i}} of ${{round}}` }});\n\
             const read = JSON.parse(JSON.stringify(rows));\n\
             count += new Map(read.map(row => [row.name, row])).size;\n}}\n\
         console.log(String(count));\n"
    );
    fs::write(directory.join("rounds.js"), text)
}

/// The same in a JVM, which compiles the source itself.
fn java(directory: &Path, rounds: u32) -> io::Result<()> {
    let text = format!(
        "import java.util.*;\n\
         public class Rounds {{\n\
             public static void main(String[] arguments) {{\n\
                 long count = 0;\n\
                 for (int round = 0; round < {rounds}; round++) {{\n\
                     var rows = new TreeMap<String, Integer>();\n\
                     for (int i = 0; i < 100000; i++) rows.put(\"row \" + i + \" of \" + round, i);\n\
                     count += rows.size();\n\
                 }}\n\
                 System.out.println(count);\n\
             }}\n}}\n"
    );
    fs::write(directory.join("Rounds.java"), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn a_script_starts_as_many_commands_as_it_says() {
        let directory = TempDir::new().unwrap();
        script(directory.path(), 3).unwrap();
        let ran = std::process::Command::new("sh")
            .arg(directory.path().join("script"))
            .output()
            .unwrap();
        assert_eq!(ran.stdout, b"3\n");
    }

    #[test]
    fn tests_are_spread_over_files() {
        let directory = TempDir::new().unwrap();
        tests(directory.path(), 41).unwrap();
        let text = fs::read_to_string(directory.path().join("test_part2.py")).unwrap();
        assert_eq!(text.matches("def test_").count(), 1, "{text}");
    }
}
