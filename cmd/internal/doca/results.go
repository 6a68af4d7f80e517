package doca

import (
	"encoding/json"
	"fmt"
	"os"
)

// results is the flag --output-json and what becomes of it.
type results struct {
	name string // of a file, "-" for standard output, "" for none
	file *os.File
}

const resultsFlag = "output-json"

// Results declares --output-json, the file for what [Run.WriteResults] is given.
func (p *Parser) Results() {
	p.String(&p.results.name, Flag{Long: resultsFlag, Value: "FILE",
		Help: "write the results as JSON to FILE, or - for standard output (-j/--json reads parameters)"})
}

// CreateResults makes the file, before the program does anything else: a wrong name costs no
// waiting. Of several ranks that name the same file each adds its own results, as all of them
// create it before one writes.
func (p *Parser) CreateResults() (err error) {
	if p.results.name == "" || p.results.name == "-" {
		return nil
	}
	if p.results.file, err = os.OpenFile(p.results.name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o666); err != nil {
		return p.Wrong(resultsFlag, "cannot write the results: %v", err)
	}
	return nil
}

// WriteResults writes v where --output-json says, or nowhere without the flag.
func (r *Run) WriteResults(v any) error {
	if r.results.name == "" {
		return nil
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if r.results.file == nil {
		_, err = r.Out.Write(b) // End tells it
		return err
	}
	if _, err = r.results.file.Write(b); err != nil {
		return fmt.Errorf("--%s: cannot write the results: %w", resultsFlag, err)
	}
	return nil
}
