package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// slowest is the number of tests that a report lists by their duration.
const slowest = 20

// printReport prints the slowest tests, each flaky and each failed test with the output of its
// first run, and the closing line. It returns the number of failed tests.
func (r *testRecord) printReport(out io.Writer) int {
	verdicts := r.testVerdicts()
	r.printSlowest(out, verdicts)
	counts := map[string]int{}
	for _, v := range verdicts {
		counts[v]++
	}
	for _, title := range []string{"flaky", "failed"} {
		for _, name := range r.names {
			if verdicts[name] != title {
				continue
			}
			fmt.Fprintf(out, "\n%s %s\n%s", strings.ToUpper(title), name, indentLines(r.runs[name][0].output.String()))
		}
	}
	// A flaky test has passed at last.
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", counts["passed"]+counts["flaky"], counts["failed"], counts["skipped"])
	return counts["failed"]
}

func (r *testRecord) printSlowest(out io.Writer, verdicts map[testName]string) {
	names := slices.DeleteFunc(slices.Clone(r.names), func(n testName) bool { return n.test == "" || verdicts[n] == "skipped" })
	slices.SortStableFunc(names, func(a, b testName) int { return cmp.Compare(r.runs[b][0].took, r.runs[a][0].took) })
	fmt.Fprintln(out, "\nThe slowest tests")
	for _, name := range names[:min(slowest, len(names))] {
		fmt.Fprintf(out, "%8s  %s\n", r.runs[name][0].took.Round(100*time.Millisecond), name)
	}
}

// countFlakyTests returns the number of tests that passed at their rerun.
func (r *testRecord) countFlakyTests() (n int) {
	for _, v := range r.testVerdicts() {
		if v == "flaky" {
			n++
		}
	}
	return n
}

func (n testName) String() string {
	if n.test == "" {
		return n.pkg
	}
	return n.pkg + " " + n.test
}

func indentLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}
