package compare

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CommandAnswer is what a command printed, and how it ended.
type CommandAnswer struct {
	ExitCode int
	Lines    []string
}

// NewCommandAnswer splits the output of a command into lines. Empty lines do not count.
func NewCommandAnswer(exitCode int, output string) CommandAnswer {
	a := CommandAnswer{ExitCode: exitCode}
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" {
			a.Lines = append(a.Lines, line)
		}
	}
	return a
}

// WithoutLines returns the answer without the lines that drop selects.
func (a CommandAnswer) WithoutLines(drop func(line string) bool) CommandAnswer {
	a.Lines = slices.DeleteFunc(slices.Clone(a.Lines), drop)
	return a
}

// DiffCommandAnswers returns the differences between two answers to the same command: the exit code, and each
// line that only one of them has. name is the path of the differences.
func DiffCommandAnswers(check Check, name string, control, hub CommandAnswer) (out []Difference) {
	d := Difference{Check: check, Cluster: "hub", Path: name}
	if control.ExitCode != hub.ExitCode {
		d.Control, d.Atoll = fmt.Sprintf("exit code %d", control.ExitCode), fmt.Sprintf("exit code %d", hub.ExitCode)
		out = append(out, d)
	}
	missing, extra := subtractLines(control.Lines, hub.Lines), subtractLines(hub.Lines, control.Lines)
	for i := range max(len(missing), len(extra)) {
		d.Control, d.Atoll = "", ""
		if i < len(missing) {
			d.Control = shortenValue(missing[i])
		}
		if i < len(extra) {
			d.Atoll = shortenValue(extra[i])
		}
		out = append(out, d)
	}
	return out
}

// subtractLines returns the lines of a that b has fewer times.
func subtractLines(a, b []string) (out []string) {
	count := map[string]int{}
	for _, line := range b {
		count[line]++
	}
	for _, line := range a {
		if count[line]--; count[line] < 0 {
			out = append(out, line)
		}
	}
	return out
}

// ignoredColumns have times, and names and addresses of one cluster.
var ignoredColumns = []string{"Age", "Duration", "Created At", "Cluster-IP", "External-IP", "Address", "Volume", "Last Schedule"}

// assignedPort is a node port in a column of kubectl.
var assignedPort = regexp.MustCompile(`:\d+/`)

// ReadRow returns the columns that kubectl get prints of one object.
func ReadRow(table *metav1.Table) map[string]string {
	out := map[string]string{}
	if len(table.Rows) == 0 {
		return out
	}
	for i, column := range table.ColumnDefinitions {
		if i >= len(table.Rows[0].Cells) || column.Priority > 0 || column.Type == "date" || slices.Contains(ignoredColumns, column.Name) {
			continue
		}
		text := formatField(normalizeNumber(table.Rows[0].Cells[i]))
		if column.Name == "Port(s)" {
			text = assignedPort.ReplaceAllString(text, "/")
		}
		out["get "+strings.ToUpper(column.Name)] = text
	}
	return out
}

// DiffRows returns the differences between the columns that kubectl prints of an object.
func DiffRows(object string, control, hub map[string]string) []Difference {
	return diffTexts(Difference{Check: Answers, Cluster: "hub", Object: object}, control, hub)
}
