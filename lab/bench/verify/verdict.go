package verify

import (
	"encoding/json"
	"fmt"
	"strings"
)

// quotedFindings is how many cases of each error are quoted.
const quotedFindings = 3

// Findings are the findings of one kind.
type Findings struct {
	// Looked counts the compared cases, Wrong the failed ones.
	Looked, Wrong int
	// Cases quotes the first failed ones.
	Cases []string
}

func (f *Findings) addFinding(format string, args ...any) {
	f.Wrong++
	if len(f.Cases) < quotedFindings {
		f.Cases = append(f.Cases, fmt.Sprintf(format, args...))
	}
}

// Verdict is the result of a comparison.
type Verdict struct {
	// Rows is the number of rows.
	Rows                           int
	RowsRight, Holdings, Templates Findings

	wantedRows int
}

// IsCorrect reports whether everything is as it should be.
func (v Verdict) IsCorrect() bool { return v.RowsOK() && v.HoldingsOK() && v.TemplatesOK() }

// RowsOK reports whether all rows are correct.
func (v Verdict) RowsOK() bool { return v.RowsRight.Wrong == 0 }

// HoldingsOK reports whether all agents hold the right state.
func (v Verdict) HoldingsOK() bool { return v.Holdings.Wrong == 0 }

// TemplatesOK reports whether the statuses of all templates and Bundles are right.
func (v Verdict) TemplatesOK() bool { return v.Templates.Wrong == 0 }

// DescribeRows describes the rows in words.
func (v Verdict) DescribeRows() string { return describeFindings(v.Rows, "rows", v.RowsRight) }

// DescribeHoldings describes the agents' state in words.
func (v Verdict) DescribeHoldings() string {
	return describeFindings(v.Holdings.Looked, "agents", v.Holdings)
}

// DescribeTemplates describes the statuses in words.
func (v Verdict) DescribeTemplates() string {
	return describeFindings(v.Templates.Looked, "templates and Bundles", v.Templates)
}

func describeFindings(n int, what string, f Findings) string {
	if f.Wrong == 0 {
		return fmt.Sprintf("%d %s", n, what)
	}
	return fmt.Sprintf("%d %s, %d complaints: %s", n, what, f.Wrong, strings.Join(f.Cases, "; "))
}

func decode(body []byte, into any) error { return json.Unmarshal(body, into) }
