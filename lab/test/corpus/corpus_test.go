// Package corpus runs `atoll-lab corpus` over a corpus of manifests.
//
// Contract: it drives the built binaries and has a lab of its own. Differences that the product has by
// design, and its known defects, are in testdata/differences.yaml, each with its reason.
package corpus

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"atoll.dev/atoll/lab"
	"atoll.dev/atoll/lab/corpus"
	"atoll.dev/atoll/lab/labtest"
)

// minManifests guards against a corpus that is not found.
const minManifests = 40

// TestManifestsAreTheSameOnAHub: the user of a hub sees what a plain cluster shows.
func TestManifestsAreTheSameOnAHub(t *testing.T) {
	if testing.Short() {
		t.Skip("starts clusters")
	}
	bin := labtest.BuildBinaries(t, "atoll", "atoll-hub", "atoll-lab")
	args := []string{"corpus", "testdata", "-o", "json"}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "atoll-lab"), args...)
	cmd.Env = append(os.Environ(), lab.BinDirVariable+"="+bin)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	runErr := cmd.Run()
	var report corpus.CorpusReport
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v; atoll-lab %s ended with %v:\n%s", err, strings.Join(args, " "), runErr, problem.String())
	}
	if len(report.Results) < minManifests {
		t.Errorf("%d manifests ran, want %d or more", len(report.Results), minManifests)
	}
	for _, r := range report.Results {
		if r.Error != "" {
			t.Errorf("%s: %s", r.Manifest, r.Error)
		}
		for _, d := range r.Differences {
			if d.Reason == "" {
				t.Errorf("%s: %s: %s %s: the control has %q, and %s has %q", r.Manifest, d.Object, d.Check, d.Path, d.Control, d.Cluster, d.Atoll)
			}
		}
	}
	for _, e := range report.Outdated {
		t.Errorf("the difference is expected, and no longer occurs: %s %s %s", e.Manifest, e.Object, e.Path)
	}
	if runErr != nil && !t.Failed() {
		t.Errorf("atoll-lab %s: %v\n%s", strings.Join(args, " "), runErr, problem.String())
	}
}
