// Package roff makes manual pages of man(1), in the macros of man(7).
package roff

import (
	"fmt"
	"strings"
)

// Page is a manual page under way. The zero value is empty.
type Page struct{ b strings.Builder }

// String is the page so far.
func (p *Page) String() string { return p.b.String() }

// Line writes a line of roff as it is.
func (p *Page) Line(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

// Title begins the page.
func (p *Page) Title(name, version string) {
	p.Line(`.TH %s 1 "" %s "gorun"`, strings.ToUpper(name), Quoted(version))
}

// Section begins a section.
func (p *Page) Section(title string) { p.Line(".SH %s", Quoted(title)) }

// Text writes text.
func (p *Page) Text(text string) { p.Line("%s", Escaped(text)) }

// Paragraph writes text that stands apart.
func (p *Page) Paragraph(text string) {
	p.Line(".PP")
	p.Text(text)
}

// Entry writes a term and what there is to say of it.
func (p *Page) Entry(term, text string) {
	p.Line(".TP")
	p.Line(".B %s", Escaped(term))
	p.Text(text)
}

// Example writes lines as they are to be typed.
func (p *Page) Example(lines ...string) {
	p.Line(".PP")
	p.Line(".nf")
	for _, line := range lines {
		p.Line(".RS")
		p.Line("%s", Escaped(line))
		p.Line(".RE")
	}
	p.Line(".fi")
}

// Option is how an option is written: "-n, --np N".
func Option(long, short, value string) string {
	form := "--" + long
	if short != "" {
		form = "-" + short + ", " + form
	}
	return strings.TrimSpace(form + " " + value)
}

// Sentence makes a help text one.
func Sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

// Escaped makes text harmless to roff: no line of it is a request, no character
// an escape, and a minus is what one types.
func Escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

// Quoted is text as one argument of a request.
func Quoted(text string) string {
	return `"` + strings.ReplaceAll(Escaped(text), `"`, `\(dq`) + `"`
}
