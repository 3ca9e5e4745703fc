package corpus

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// corpusOptions are the options of a run.
type corpusOptions struct {
	corpus   string // directory of the manifests
	lab      string // directory of a running lab; empty for one of its own
	only     *regexp.Regexp
	timeout  time.Duration // of each manifest
	progress io.Writer
}

// run does the turns of all manifests. A manifest that cannot be run is part of the report. An
// interrupted run returns the report of the turns before.
func (o corpusOptions) run(ctx context.Context) (report *CorpusReport, err error) {
	manifests, err := listManifests(o.corpus, o.only)
	if err != nil {
		return nil, err
	}
	expected, err := readExpectedDifferences(o.corpus)
	if err != nil {
		return nil, err
	}
	installed, err := startInstallation(ctx, o.lab, o.progress)
	if err != nil {
		return nil, err
	}
	defer func() {
		endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		if endErr := installed.end(endCtx); err == nil {
			err = endErr
		}
	}()
	work, err := os.MkdirTemp("", "atoll-corpus-files-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	report = newReport(expected)
	var before map[string]contents
	for i, m := range manifests {
		t := &manifestTestRun{installation: installed, manifest: m, dir: filepath.Join(work, fmt.Sprint(i)), limit: o.timeout, expected: expected, before: before}
		result := t.runForResult(ctx)
		before = t.last
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
		report.addResult(result)
		fmt.Fprintf(o.progress, "%d/%d %s: %s (%.1fs)\n", i+1, len(manifests), m.name, result.describeResult(), result.Seconds)
	}
	return report, nil
}

// runForResult does the turn, and returns what it showed.
func (t *manifestTestRun) runForResult(ctx context.Context) ManifestResult {
	began := time.Now()
	err := t.runWithCleanup(ctx)
	return newResult(t.manifest.name, t.found, err, t.expected, time.Since(began))
}
