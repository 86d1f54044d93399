"""Tests of `pages`: what is wrong is found, and what is right is not.

    python3 -m unittest discover .ci
"""

import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

PATH = pathlib.Path(__file__).parent / "pages"
LOADER = importlib.machinery.SourceFileLoader("pages", str(PATH))
pages = importlib.util.module_from_spec(importlib.util.spec_from_loader("pages", LOADER))
LOADER.exec_module(pages)


class LinkTests(unittest.TestCase):
    def broken(self, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as place:
            root = pathlib.Path(place)
            (root / "page.md").write_text(text)
            (root / "other.md").write_text("# What `it` is, in [two](page.md) words\n")
            return list(pages.broken_links(root, [pathlib.Path("page.md")]))

    def test_valid_links_are_accepted(self) -> None:
        self.assertEqual(self.broken("# Here\n[a](other.md) [b](#here) [c](https://example.org/x)"), [])
        self.assertEqual(self.broken("[a](other.md#what-it-is-in-two-words)"), [])

    def test_broken_links_are_found(self) -> None:
        for text in ("[a](none.md)", "[a](other.md#none)", "[a](#none)"):
            self.assertEqual(len(self.broken(text)), 1, text)

    def test_links_inside_code_are_ignored(self) -> None:
        self.assertEqual(self.broken("`[a](none.md)`\n```\n[a](none.md)\n# no heading\n```\n"), [])


class MessageTests(unittest.TestCase):
    SOURCE = """
        #[error(
            "the horse {name} is \\
             lame ({errno}): `rest` it"
        )]
        report::line(format_args!("the cart at {at:#x} is empty"))
    """

    def test_messages_without_a_row_are_found(self) -> None:
        sources = {"crates/cli/src/x.rs": self.SOURCE}
        page = "| `the horse … is lame (…): rest it` | |\n| `the cart at … is empty` | |\n"
        self.assertEqual(list(pages.missing_messages(page, sources)), [])
        self.assertEqual(list(pages.stale_messages(page, pages.strings(self.SOURCE))), [])
        self.assertEqual(len(list(pages.missing_messages(page.splitlines()[0], sources))), 1)
        self.assertEqual(len(list(pages.missing_messages("", sources))), 2)

    def test_row_without_a_message_is_found(self) -> None:
        page = "| `the old donkey is lame beyond hope: …` | |\n"
        self.assertEqual(len(list(pages.stale_messages(page, pages.strings(self.SOURCE)))), 1)

    def test_errors_of_a_library_need_no_row(self) -> None:
        self.assertEqual(len(list(pages.missing_messages("", {"crates/millpond/src/x.rs": self.SOURCE}))), 1)


class WordTests(unittest.TestCase):
    def test_undocumented_variable_and_option_are_found(self) -> None:
        variables = '        name: "MILLPOND_RAM",\n        name: "MILLPOND_TELL",\n'
        args = "#[arg(long, value_name = \"SIZE\")]\n    pub(crate) ram: u64,\n#[arg(long)]\n    pub(crate) lazy_purge: Switch,\n"
        texts = "MILLPOND_RAM --ram"
        wrong = list(pages.missing_words(variables, args, texts))
        self.assertEqual(len(wrong), 2, wrong)
        self.assertEqual(list(pages.missing_words(variables, args, texts + " MILLPOND_TELL --lazy-purge")), [])


class BookTests(unittest.TestCase):
    def test_broken_links_between_book_pages_are_found(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            book = pathlib.Path(place).resolve()
            (book / "a.html").write_text('<h1 id="x">x</h1><a href="b.html#y">b</a><a href="https://example.org">c</a>')
            (book / "b.html").write_text('<h1 id="y">y</h1><a href="#y">y</a>')
            self.assertEqual(list(pages.broken_in_book(book)), [])
            (book / "b.html").write_text('<a href="c.html">c</a>')
            self.assertEqual(len(list(pages.broken_in_book(book))), 2)


if __name__ == "__main__":
    unittest.main()
