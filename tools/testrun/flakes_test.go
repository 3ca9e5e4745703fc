package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestFlakesAreCounted(t *testing.T) {
	good, bad := newTestRecord(), newTestRecord()
	for r, text := range map[*testRecord]string{good: events, bad: `{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"fail","Package":"p","Test":"TestGood","Elapsed":9}
`} {
		if err := r.readEvents("0", strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := printTestFailures(&out, []*testRecord{good, bad}); err == nil {
		t.Error("four tests failed, and no error says so")
	}
	want := []string{
		"TEST RUNS FAILED PASSED AT ITS RERUN SLOWEST",
		"p TestGood 2 1 0 9s",
		"p TestNoRerun 1 1 0 2s",
		"p TestOnce 1 0 1 1s",
		"q 1 1 0 7s",
	}
	for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		if got := strings.Join(strings.Fields(line), " "); i >= len(want) || got != want[i] {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
}

func TestNoFlakes(t *testing.T) {
	var out bytes.Buffer
	if err := printTestFailures(&out, []*testRecord{newTestRecord()}); err != nil || out.String() != "no test failed\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

// TestOptions: a level or a package, not both, and tests only of a package.
func TestOptions(t *testing.T) {
	for args, ok := range map[string]bool{
		"test": true, "-runs 3 -load 2 all": true, "-package ./internal/placer": true, "-package ./internal/placer -run TestX": true,
		"": false, "fast": false, "test all": false, "-package ./internal/placer test": false, "-run TestX test": false,
	} {
		if _, err := parseOptions(strings.Fields(args)); (err == nil) != ok {
			t.Errorf("%q: %v", args, err)
		}
	}
}
