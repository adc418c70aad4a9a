//! The text that excerpts around a mistake are shown from.

use std::path::Path;
use std::sync::Arc;

use miette::{MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

/// A file's name and text, from which excerpts are shown. Columns count characters, not bytes.
#[derive(Debug, Clone)]
pub struct NamedText {
    name: String,
    text: Arc<str>,
}

impl NamedText {
    /// Takes the text, with a mark for each control character: a terminal must not obey an excerpt.
    pub fn new(path: &Path, text: &str) -> Self {
        let shown = |c: char| if c.is_ascii_control() && c != '\n' && c != '\t' && c != '\r' { '?' } else { c };
        Self { name: path.display().to_string(), text: text.chars().map(shown).collect::<String>().into() }
    }
}

impl SourceCode for NamedText {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let shown = self.text.read_span(span, lines_before, lines_after)?;
        let before = self.text.get(..shown.span().offset()).unwrap_or_default();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        let (data, line, lines) = (shown.data(), shown.line(), shown.line_count());
        Ok(Box::new(MietteSpanContents::new_named(self.name.clone(), data, *shown.span(), line, column, lines)))
    }
}
