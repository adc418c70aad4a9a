//! What is taken down while files are read: mistakes, and where each value comes from.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use super::error::Problem;
use super::raw::Words;
use super::source::SourceFile;
use super::values::{self, Wrong};
use crate::policy::explain::Origins;

/// Takes down what is wrong and where values come from, while files are read.
#[derive(Debug, Default)]
pub struct Notes {
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// Where values come from.
    pub origins: Origins,
    /// The volumes' host paths as written, in the order of the volumes.
    pub volume_paths: Vec<PathBuf>,
}

impl Notes {
    /// Takes down a problem.
    pub fn problem(&mut self, file: &SourceFile, span: Range<usize>, wrong: Wrong) {
        self.problems.push(file.problem(span, wrong.message, wrong.help));
    }

    /// Takes a value that was read, or takes down why it was not.
    pub fn take<T, U>(&mut self, file: &SourceFile, at: &Spanned<U>, read: Result<T, Wrong>) -> Option<T> {
        read.map_err(|wrong| self.problem(file, at.span(), wrong)).ok()
    }

    /// Records where a value of a key comes from.
    pub fn record<U>(&mut self, key: &str, value: impl Into<String>, file: &SourceFile, at: &Spanned<U>) {
        self.origins.record(key, value, file.origin(&at.span()));
    }

    /// Reads a list whose members must differ. Gives each with its place.
    pub fn list<'a, T: PartialEq>(
        &mut self,
        key: &str,
        file: &SourceFile,
        words: &'a [Spanned<String>],
        read: impl Fn(&str) -> Result<T, Wrong>,
    ) -> Vec<(T, &'a Spanned<String>)> {
        let mut members: Vec<(T, &Spanned<String>)> = Vec::new();
        for word in words {
            let Some(value) = self.take(file, word, read(word.get_ref())) else { continue };
            match members.iter().find(|(known, _)| *known == value) {
                Some((_, first)) => {
                    let message = format!("'{}' is in '{key}' twice", word.get_ref());
                    let help = format!("take one of them out; the first is in line {}", file.line(first.span().start));
                    self.problem(file, word.span(), Wrong::new(message, help));
                }
                None => members.push((value, word)),
            }
        }
        members
    }

    /// Reads an argument vector: no NUL anywhere, and a program's name in front.
    pub fn words(&mut self, file: &SourceFile, command: &Spanned<Words>) -> Vec<String> {
        let words = command.get_ref();
        if words.is_empty() {
            let help = "write the program and its arguments as separate words, or leave the key out";
            self.problem(file, command.span(), Wrong::new("the command has no words", help));
        }
        for (index, word) in words.iter().enumerate() {
            let read = match word.get_ref() {
                text if index == 0 && text.trim().is_empty() => {
                    Err(Wrong::new("the program's name is empty", "write the program's name or path"))
                }
                text if index == 0 && words.len() == 1 && text.contains(' ') && !text.starts_with('/') => {
                    Err(Wrong::new(
                        format!("'{text}' would be looked for as one program with spaces in its name"),
                        "write each word on its own: [\"claude\", \"--continue\"]; there is no shell in between",
                    ))
                }
                text => values::without_nul(text),
            };
            self.take(file, word, read);
        }
        words.iter().map(|word| word.get_ref().clone()).collect()
    }
}

/// A file's text and its shape.
#[derive(Debug)]
pub struct Shaped<T> {
    /// The text.
    pub file: SourceFile,
    /// The shape.
    pub raw: T,
}
