//! Reports as pages: one HTML file that loads nothing and has no script.
//!
//! A report may be read where it was made, attached to a message, or archived with a build, without a network and much
//! later. So everything is in the file: styles, and plots as drawings (SVG). The figures are in tables, so that they
//! can be read aloud, searched and copied. A rule in the page's head forbids browsers to load or run anything, whatever
//! the names of programs and files in the page contain.

pub mod palette;
pub mod plot;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use palette::Colour;
use std::path::Path;

/// Styles that do not depend on the colours of a plot.
const STYLE: &str = include_str!("style.css");
/// Variables for the dark form.
const DARK: &str = ":root { --ground: #0F141A; --card: #171E26; --ink: #E6EAEE; --soft: #9AA7B4; --line: #2A333D; \
                    --bad: #FF8A80; --good: #56D364; }\n";

/// Whether a file of this name should be a page.
///
/// ```
/// assert!(millpond_cli::page::is_page("out/report.html".as_ref()));
/// assert!(!millpond_cli::page::is_page("report.json".as_ref()));
/// ```
#[must_use]
pub fn is_page(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    extension.eq_ignore_ascii_case("html") || extension.eq_ignore_ascii_case("htm")
}

/// The whole page. `title` is text; `body` is what the page says.
#[must_use]
pub fn document(title: &str, body: &Markup) -> String {
    // Paper is white, whatever the screen is.
    let dark = format!(
        "@media screen and (prefers-color-scheme: dark) {{\n{DARK}{}}}\n",
        palette::dark_rules()
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="generator" content={ "millpond " (env!("CARGO_PKG_VERSION")) };
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(dark)) }
            }
            body {
                main {
                    (body)
                    footer { "Made by millpond " (env!("CARGO_PKG_VERSION")) ". One MiB is 1,048,576 bytes." }
                }
            }
        }
    };
    page.into_string() + "\n"
}

/// A table with a caption, the names of its columns, and its rows, whose first cells name them.
#[must_use]
pub fn table(caption: &str, head: &[&str], rows: &[Vec<String>]) -> Markup {
    html! {
        div.table {
            table {
                @if !caption.is_empty() { caption { (caption) } }
                thead { tr { @for name in head { th scope="col" { (name) } } } }
                tbody {
                    @for row in rows {
                        tr { @for cell in row { td { (cell) } } }
                    }
                }
            }
        }
    }
}

/// A drawing with a description and a legend.
#[must_use]
pub fn figure(shows: &str, drawing: &str, legend: &[(&str, Colour)]) -> Markup {
    html! {
        figure {
            div.plot role="img" aria-label=(shows) { (PreEscaped(drawing)) }
            @if legend.len() > 1 {
                ul.legend {
                    @for (name, colour) in legend {
                        li {
                            svg viewBox="0 0 10 10" aria-hidden="true" {
                                rect width="10" height="10" rx="2" fill=(colour.hex()) {}
                            }
                            (name)
                        }
                    }
                }
            }
        }
    }
}

/// Figures that most readers do not need, hidden behind a line that opens them.
#[must_use]
pub fn folded(line: &str, figures: &Markup) -> Markup {
    html! { details { summary { (line) } (figures) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program may have any name, which must not be interpreted as part of the page.
    #[test]
    fn names_are_escaped_and_the_page_loads_nothing() {
        let evil = "</title><script>alert(1)</script>\"'&";
        let body = html! {
            h1 { (evil) }
            (table(evil, &[evil], &[vec![evil.to_owned()]]))
            (figure(evil, "<svg></svg>", &[(evil, palette::BLUE), ("b", palette::RED)]))
            (folded(evil, &html! { (evil) }))
        };
        let page = document(evil, &body);
        assert!(!page.contains("<script"));
        assert!(!page.contains("\"'&<"));
        assert_eq!(page.matches("&lt;script&gt;").count(), 9);
        for loads in ["src=", "href=", "url(", "@import", "http://", "https://"] {
            assert!(!page.contains(loads), "{loads}");
        }
        assert!(page.contains("default-src 'none'"));
        assert!(page.starts_with("<!DOCTYPE html>"));
    }
}
