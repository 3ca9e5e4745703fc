package corpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"atoll.dev/atoll/internal/phrase"
	"atoll.dev/atoll/lab/corpus/compare"
)

// ManifestResult is what the turn of one manifest showed. All texts are escaped.
type ManifestResult struct {
	Manifest    string               `json:"manifest"`
	Differences []compare.Difference `json:"differences,omitempty"`
	// Error is set if the turn did not come to its end.
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"`

	used []bool // entries of the list of expected differences that occurred
}

// CorpusReport is the result of a run, in the form of -o json.
type CorpusReport struct {
	Results []ManifestResult `json:"results"`
	// Outdated are the entries of the list of expected differences that no longer occur.
	Outdated []compare.ExpectedDifference `json:"outdated,omitempty"`

	expected []compare.ExpectedDifference
	used     []bool
}

func newReport(expected []compare.ExpectedDifference) *CorpusReport {
	return &CorpusReport{expected: expected, used: make([]bool, len(expected))}
}

func newResult(manifest string, found []compare.Difference, err error, expected []compare.ExpectedDifference, took time.Duration) ManifestResult {
	explained, used := compare.SetReasons(manifest, found, expected)
	for i := range explained {
		d := &explained[i]
		d.Object, d.Path = phrase.EscapeLine(d.Object), phrase.EscapeLine(d.Path)
		d.Control, d.Atoll = phrase.EscapeLine(d.Control), phrase.EscapeLine(d.Atoll)
	}
	r := ManifestResult{Manifest: phrase.EscapeLine(manifest), Differences: explained, Seconds: took.Seconds(), used: used}
	if err != nil {
		r.Error = phrase.EscapeLine(err.Error())
	}
	return r
}

// addResult adds the result of a manifest. Entries for manifests that do not run are not outdated.
func (r *CorpusReport) addResult(result ManifestResult) {
	r.Results = append(r.Results, result)
	for i := range r.used {
		r.used[i] = r.used[i] || result.used[i]
	}
	r.Outdated = nil
	for i, e := range r.expected {
		ran := slices.ContainsFunc(r.Results, func(one ManifestResult) bool { return e.IsForManifest(one.Manifest) })
		if ran && !r.used[i] {
			r.Outdated = append(r.Outdated, e)
		}
	}
}

// countUnexpected counts the differences without a reason.
func (r ManifestResult) countUnexpected() (n int) {
	for _, d := range r.Differences {
		if d.Reason == "" {
			n++
		}
	}
	return n
}

func (r ManifestResult) describeResult() string {
	switch n := r.countUnexpected(); {
	case r.Error != "":
		return "error: " + r.Error
	case n > 0:
		return phrase.CountNoun(n, "unexpected difference")
	case len(r.Differences) > 0:
		return phrase.CountNoun(len(r.Differences), "expected difference")
	}
	return "the same"
}

// checkCell returns the cell of a check in the table.
func (r ManifestResult) checkCell(check compare.Check) string {
	verdict := "yes"
	for _, d := range r.Differences {
		if d.Check != check {
			continue
		}
		if d.Reason == "" {
			return "NO"
		}
		verdict = "expected"
	}
	return verdict
}

// failureError returns an error if the run showed anything that the list does not expect.
func (r *CorpusReport) failureError() error {
	var parts []string
	different, failed := 0, 0
	for _, one := range r.Results {
		if one.countUnexpected() > 0 {
			different++
		}
		if one.Error != "" {
			failed++
		}
	}
	if different > 0 {
		parts = append(parts, phrase.CountNoun(different, "manifest")+" with unexpected differences")
	}
	if failed > 0 {
		parts = append(parts, phrase.CountNoun(failed, "manifest")+" not run to the end")
	}
	if n := len(r.Outdated); n > 0 {
		parts = append(parts, fmt.Sprintf("%d expected differences that no longer occur: remove them from %s", n, differencesFile))
	}
	if len(parts) == 0 {
		return nil
	}
	return errors.New(strings.Join(parts, "; "))
}

func (r *CorpusReport) writeJSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// writeTable writes a line for each manifest, and then every difference.
func (r *CorpusReport) writeTable(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MANIFEST\tACCEPTED\tSAME OBJECTS\tSAME STATUS\tSAME ANSWERS\tCLEAN\tDIFFERENCES")
	for _, one := range r.Results {
		cells := []string{one.Manifest}
		for _, check := range compare.Checks {
			cells = append(cells, one.checkCell(check))
		}
		fmt.Fprintln(table, strings.Join(append(cells, one.differencesCell()), "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, one := range r.Results {
		writeDifferences(out, one)
	}
	for _, e := range r.Outdated {
		fmt.Fprintf(out, "\n%s: no longer occurs: %s\n", differencesFile,
			phrase.EscapeLine(fmt.Sprintf("manifest %s, object %s, path %s", e.Manifest, e.Object, e.Path)))
	}
	return nil
}

func (r ManifestResult) differencesCell() string {
	n := r.countUnexpected()
	switch {
	case r.Error != "":
		return "error"
	case len(r.Differences) == 0:
		return "none"
	case n == 0:
		return fmt.Sprintf("%d expected", len(r.Differences))
	}
	return fmt.Sprintf("%d, and %d expected", n, len(r.Differences)-n)
}

// writeDifferences writes the differences of a manifest, those of equal reasons under their reason.
func writeDifferences(out io.Writer, r ManifestResult) {
	if len(r.Differences) == 0 && r.Error == "" {
		return
	}
	fmt.Fprintf(out, "\n%s\n", r.Manifest)
	if r.Error != "" {
		fmt.Fprintf(out, "  error: %s\n", r.Error)
	}
	reason := ""
	sorted := slices.Clone(r.Differences)
	slices.SortStableFunc(sorted, func(a, b compare.Difference) int { return strings.Compare(a.Reason, b.Reason) })
	for _, d := range sorted {
		if d.Reason != reason {
			reason = d.Reason
			fmt.Fprintf(out, "  expected: %s\n", phrase.EscapeLine(reason))
		}
		fmt.Fprintf(out, "  - %s %s: %s: control %q, %s %q\n", d.Cluster, objectOrKubectl(d.Object), d.Path, d.Control, d.Cluster, d.Atoll)
	}
}

func objectOrKubectl(object string) string {
	if object == "" {
		return "kubectl"
	}
	return object
}
