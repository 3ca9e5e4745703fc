package main

import (
	"bytes"
	"strings"
	"testing"
)

// events of two packages: p has a test that waits a minute and passes after three seconds in subtests, one that fails and passes at its rerun with its
// subtest, one whose rerun is skipped, and a skipped one. q fails outside its tests.
const events = `{"Action":"start","Package":"p"}
{"Time":"2026-01-02T03:00:00Z","Action":"run","Package":"p","Test":"TestGood"}
{"Time":"2026-01-02T03:01:00Z","Action":"cont","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"quiet\n"}
{"Time":"2026-01-02T03:01:03Z","Action":"pass","Package":"p","Test":"TestGood","Elapsed":0}
{"Action":"run","Package":"p","Test":"TestOnce"}
{"Action":"run","Package":"p","Test":"TestOnce/sub"}
{"Action":"output","Package":"p","Test":"TestOnce/sub","Output":"once bad\n"}
{"Action":"fail","Package":"p","Test":"TestOnce/sub","Elapsed":1}
{"Action":"fail","Package":"p","Test":"TestOnce","Elapsed":1}
{"Action":"run","Package":"p","Test":"TestNoRerun"}
{"Action":"output","Package":"p","Test":"TestNoRerun","Output":"bad\n"}
{"Action":"fail","Package":"p","Test":"TestNoRerun","Elapsed":2}
{"Action":"run","Package":"p","Test":"TestAbsent"}
{"Action":"skip","Package":"p","Test":"TestAbsent","Elapsed":0}
{"Action":"fail","Package":"p","Elapsed":7}
{"Action":"start","Package":"q"}
{"Action":"output","Package":"q","Output":"no server\n"}
{"Action":"fail","Package":"q","Elapsed":7}
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestOnce"}
{"Action":"run","Package":"p","Test":"TestOnce/sub"}
{"Action":"output","Package":"p","Test":"TestOnce/sub","Output":"now good\n"}
{"Action":"pass","Package":"p","Test":"TestOnce/sub","Elapsed":1}
{"Action":"pass","Package":"p","Test":"TestOnce","Elapsed":1}
{"Action":"pass","Package":"p","Elapsed":1}
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestNoRerun"}
{"Action":"skip","Package":"p","Test":"TestNoRerun","Elapsed":0}
{"Action":"pass","Package":"p","Elapsed":1}
`

func TestReport(t *testing.T) {
	r := newTestRecord()
	if err := r.readEvents("0", strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if n := r.printReport(&out); n != 2 {
		t.Errorf("%d failed, want TestNoRerun and the package q", n)
	}
	want := `
The slowest tests
      3s  p TestGood
      2s  p TestNoRerun
      1s  p TestOnce

FLAKY p TestOnce
    once bad

FAILED p TestNoRerun
    bad

FAILED q
    no server

2 passed, 2 failed, 1 skipped
`
	if out.String() != want {
		t.Errorf("the report is\n%s\nwant\n%s", out.String(), want)
	}
	if n := r.countFlakyTests(); n != 1 {
		t.Errorf("%d flaky, want TestOnce", n)
	}
}

// TestAnUnfinishedTestFails: a test that a panic or a timeout ends has no verdict.
func TestAnUnfinishedTestFails(t *testing.T) {
	r := newTestRecord()
	if err := r.readEvents("0", strings.NewReader(`{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestHangs"}
`)); err != nil {
		t.Fatal(err)
	}
	if n := r.printReport(&bytes.Buffer{}); n != 1 {
		t.Errorf("%d failed, want TestHangs", n)
	}
}

// TestATestOfTwoPhases: a test that passed in one phase and failed in another has failed.
func TestATestOfTwoPhases(t *testing.T) {
	r := newTestRecord()
	for phase, action := range map[string]string{"0": "pass", "1": "fail"} {
		if err := r.readEvents(phase, strings.NewReader(`{"Action":"run","Package":"p","Test":"TestTwice"}
{"Action":"`+action+`","Package":"p","Test":"TestTwice","Elapsed":1}
`)); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if n := r.printReport(&out); n != 1 || !strings.HasSuffix(out.String(), "\n1 passed, 1 failed, 0 skipped\n") {
		t.Errorf("%d failed:\n%s", n, out.String())
	}
}

func TestARecordThatIsNoJSON(t *testing.T) {
	if err := newTestRecord().readEvents("0", strings.NewReader("{\n")); err == nil || !strings.Contains(err.Error(), "test event") {
		t.Errorf("got %v", err)
	}
}

// TestLevels: each level runs the phases of the one before it, and no phase runs twice.
func TestLevels(t *testing.T) {
	test, all := phasesOf(levelTest), phasesOf(levelAll)
	if len(test) == 0 || len(all) <= len(test) {
		t.Fatalf("%d phases decide, of %d", len(test), len(all))
	}
	for i, p := range test {
		if p.name != all[i].name || p.dir != all[i].dir {
			t.Errorf("phase %d is %q of %s, and %q of %s in the whole", i, p.name, p.dir, all[i].name, all[i].dir)
		}
	}
	if long := phasesOf(levelLong); len(test)+len(long) != len(all) || long[0].name != all[len(test)].name {
		t.Errorf("%d phases decide, and %d are long, of %d", len(test), len(long), len(all))
	}
	seen := map[string]bool{}
	for _, p := range all {
		key := p.name + " " + p.dir
		if seen[key] {
			t.Errorf("phase %q of %s is listed twice", p.name, p.dir)
		}
		seen[key] = true
	}
	args := strings.Join(test[0].gotestsumArgs([]string{"a", "b"}, "out", 0), " ")
	if strings.Contains(args, "--rerun-fails") || !strings.Contains(args, "--packages a b -- ") {
		t.Errorf("without reruns the arguments are %s", args)
	}
}
