package truth

import (
	"encoding/json"
	"fmt"
	"strings"
)

// quoted is how many cases are told of each thing that is wrong.
const quoted = 3

// Findings of one kind.
type Findings struct {
	// Looked at so many, of which so many are Wrong.
	Looked, Wrong int
	// Cases quotes the first ones.
	Cases []string
}

func (f *Findings) wrong(format string, args ...any) {
	f.Wrong++
	if len(f.Cases) < quoted {
		f.Cases = append(f.Cases, fmt.Sprintf(format, args...))
	}
}

// Verdict of a look.
type Verdict struct {
	// Rows that there are.
	Rows                           int
	RowsRight, Holdings, Templates Findings

	wanted int
}

// OK tells whether everything is as it should be.
func (v Verdict) OK() bool { return v.RowsOK() && v.HoldingsOK() && v.TemplatesOK() }

// RowsOK tells whether all rows are.
func (v Verdict) RowsOK() bool { return v.RowsRight.Wrong == 0 }

// HoldingsOK tells whether all agents hold what they should.
func (v Verdict) HoldingsOK() bool { return v.Holdings.Wrong == 0 }

// TemplatesOK tells whether the statuses of all templates and Bundles are right.
func (v Verdict) TemplatesOK() bool { return v.Templates.Wrong == 0 }

// RowsSay it in words.
func (v Verdict) RowsSay() string { return say(v.Rows, "rows", v.RowsRight) }

// HoldingsSay it in words.
func (v Verdict) HoldingsSay() string { return say(v.Holdings.Looked, "agents", v.Holdings) }

// TemplatesSay it in words.
func (v Verdict) TemplatesSay() string {
	return say(v.Templates.Looked, "templates and Bundles", v.Templates)
}

func say(n int, what string, f Findings) string {
	if f.Wrong == 0 {
		return fmt.Sprintf("%d %s", n, what)
	}
	return fmt.Sprintf("%d %s, %d complaints: %s", n, what, f.Wrong, strings.Join(f.Cases, "; "))
}

func decode(body []byte, into any) error { return json.Unmarshal(body, into) }
