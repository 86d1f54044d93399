//! The colours of a page, for light and for dark.
//!
//! A plot is drawn once, in the colours for light. Style rules for the dark form replace each colour by its
//! counterpart: rules of a style sheet override attributes of a drawing. So a page needs no script, and is printed in
//! light.

use plotters::style::RGBColor;
use std::fmt::Write as _;

/// A colour on white, and its counterpart on a dark ground.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Colour {
    light: u32,
    dark: u32,
}

impl Colour {
    const fn new(light: u32, dark: u32) -> Self {
        Self { light, dark }
    }

    /// The colour in which plots are drawn.
    #[must_use]
    pub const fn drawn(self) -> RGBColor {
        let [_, red, green, blue] = self.light.to_be_bytes();
        RGBColor(red, green, blue)
    }

    /// The colour on white, as the value of an attribute.
    #[must_use]
    pub fn hex(self) -> String {
        format!("#{:06X}", self.light)
    }
}

/// Text and axes.
pub const INK: Colour = Colour::new(0x33_3F_4A, 0xC9_D1_D9);
/// Lines behind a plot.
pub const GRID: Colour = Colour::new(0xE3_E7_EB, 0x30_38_42);
/// The colours of series.
pub const BLUE: Colour = Colour::new(0x1F_6F_D0, 0x58_A6_FF);
/// See [`BLUE`].
pub const SKY: Colour = Colour::new(0x8F_C3_F5, 0x25_4E_7E);
/// See [`BLUE`].
pub const TEAL: Colour = Colour::new(0x0C_8F_83, 0x3C_CF_BF);
/// See [`BLUE`].
pub const GREY: Colour = Colour::new(0xB4_BE_C9, 0x6B_77_85);
/// See [`BLUE`].
pub const VIOLET: Colour = Colour::new(0x7A_4B_C9, 0xB5_92_F2);
/// See [`BLUE`].
pub const PINK: Colour = Colour::new(0xC9_3B_82, 0xF2_7F_B4);
/// See [`BLUE`].
pub const AMBER: Colour = Colour::new(0xC9_7B_0A, 0xF0_B4_4C);
/// See [`BLUE`].
pub const GREEN: Colour = Colour::new(0x5B_8F_22, 0x9F_D3_56);
/// See [`BLUE`].
pub const SLATE: Colour = Colour::new(0x5A_67_76, 0x97_A5_B5);
/// See [`BLUE`].
pub const RED: Colour = Colour::new(0xCF_2A_2A, 0xFF_7B_72);

const ALL: [Colour; 12] = [
    INK, GRID, BLUE, SKY, TEAL, GREY, VIOLET, PINK, AMBER, GREEN, SLATE, RED,
];

/// The style rules that give each colour its dark form.
#[must_use]
pub fn dark_rules() -> String {
    let mut rules = String::new();
    for colour in ALL {
        let (light, dark) = (colour.hex(), colour.dark);
        for attribute in ["fill", "stroke"] {
            // Writing into a string cannot fail.
            let _ = writeln!(
                rules,
                "svg [{attribute}=\"{light}\"] {{ {attribute}: #{dark:06X}; }}"
            );
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contrast of two colours by WCAG 2.
    fn contrast(one: u32, other: u32) -> f64 {
        let luminance = |colour: u32| {
            let parts = colour.to_be_bytes().map(|byte| f64::from(byte) / 255.0);
            let linear = parts.map(|part| match part {
                0.0..=0.04045 => part / 12.92,
                _ => ((part + 0.055) / 1.055).powf(2.4),
            });
            0.2126 * linear[1] + 0.7152 * linear[2] + 0.0722 * linear[3]
        };
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn text_and_lines_have_contrast_on_both_backgrounds() {
        for colour in ALL {
            let least = match colour {
                INK => 7.0,
                // Backgrounds for something else.
                GRID | SKY | GREY => 1.1,
                _ => 3.0,
            };
            let on = [
                contrast(colour.light, 0xFF_FF_FF),
                contrast(colour.dark, 0x0F_14_1A),
            ];
            assert!(on.iter().all(|&on| on >= least), "{}: {on:?}", colour.hex());
        }
    }

    #[test]
    fn light_colours_are_distinct_and_have_dark_rules() {
        let mut light: Vec<_> = ALL.iter().map(|colour| colour.light).collect();
        light.sort_unstable();
        light.dedup();
        assert_eq!(light.len(), ALL.len());
        let rules = dark_rules();
        assert!(
            rules.contains("svg [fill=\"#1F6FD0\"] { fill: #58A6FF; }\n"),
            "{rules}"
        );
    }
}
