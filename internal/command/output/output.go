// Package output prints what commands found: tables for people, JSON and YAML for
// programs.
//
// Contract: tables have their columns aligned, headings in capitals, and "-" in empty cells. JSON
// and YAML are the whole value, indented, and end with
// a newline. Nothing is cached; writers are the caller's.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/phrase"
)

// Format is the value of -o. The zero value is the table.
type Format struct {
	value   string
	allowed []string
}

// AddTo adds -o with the formats that the command supports besides the table.
func (f *Format) AddTo(flags *pflag.FlagSet, allowed ...string) {
	f.allowed = allowed
	flags.VarP(f, "output", "o", "format: "+strings.Join(allowed, ", ")+" (default: for people)")
}

// IsFormat reports whether the format is set.
func (f *Format) IsFormat(name string) bool { return f.value == name }

// String is the format's name, for pflag.
func (f *Format) String() string { return f.value }

// Type is the word for the value in the help, for pflag.
func (f *Format) Type() string { return "format" }

// Set sets the format; the error lists those that the command supports.
func (f *Format) Set(value string) error {
	if !slices.Contains(f.allowed, value) {
		return fmt.Errorf("this command supports %s", strings.Join(f.allowed, ", "))
	}
	f.value = value
	return nil
}

// PrintStructured prints v where JSON or YAML is set, and reports whether it did.
func (f *Format) PrintStructured(out io.Writer, v any) (done bool, err error) {
	switch f.value {
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return true, e.Encode(v)
	case "yaml":
		text, err := yaml.Marshal(v)
		if err == nil {
			_, err = out.Write(text)
		}
		return true, err
	}
	return false, nil
}

// Table is printed row by row, and aligned as a whole by Flush.
type Table struct {
	out *tabwriter.Writer
}

// NewTable begins a table with its headings.
func NewTable(out io.Writer, headings ...string) *Table {
	t := &Table{out: tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)}
	t.AddRow(headings...)
	return t
}

// AddRow adds a line. Empty cells become "-". No cell can break the line or control the terminal.
func (t *Table) AddRow(cells ...string) {
	for i, c := range cells {
		if cells[i] = phrase.EscapeLine(c); c == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(t.out, strings.Join(cells, "\t"))
}

// Flush writes the table.
func (t *Table) Flush() error { return t.out.Flush() }

// FormatAge is the time between then and now as kubectl writes it; "" if then is zero.
func FormatAge(now, then time.Time) string {
	if then.IsZero() || then.Unix() == 0 {
		return ""
	}
	return duration.HumanDuration(now.Sub(then))
}

// YesNo is for people.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
