package attack

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestTheListNamesEachAttackOnce(t *testing.T) {
	name := regexp.MustCompile(`^[a-z0-9-]+$`)
	seen := map[string]bool{}
	for _, a := range Attacks {
		if !name.MatchString(a.Name) || seen[a.Name] || a.Summary == "" || a.Caller == "" || a.run == nil {
			t.Errorf("%+v is incomplete, or its name is used twice", a)
		}
		seen[a.Name] = true
	}
	cmd := NewAttackCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"list"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(out.String(), "\n"); lines != len(Attacks) {
		t.Errorf("%d lines for %d attacks:\n%s", lines, len(Attacks), &out)
	}
}

func TestAttacksAreChosenByName(t *testing.T) {
	if chosen, err := chooseAttacks([]string{"huge-key", "flapping"}); err != nil || len(chosen) != 2 || chosen[1].Name != "flapping" {
		t.Errorf("%v, %v", chosen, err)
	}
	if _, err := chooseAttacks([]string{"unknown"}); err == nil || !strings.Contains(err.Error(), "attack list") {
		t.Errorf("an unknown attack: %v", err)
	}
	if chosen, err := chooseAttacks([]string{"together"}); err != nil || len(chosen) != 1 {
		t.Errorf("%v, %v", chosen, err)
	}
}

func TestJudgementOfARun(t *testing.T) {
	failed := errors.New("x")
	for name, c := range map[string]struct {
		r                Result
		attacked, failed error
		broken           string
	}{
		"held":           {r: Result{Before: 400 << 20, Peak: 500 << 20, Latency: 0.9}},
		"reached":        {attacked: failed, broken: "x"},
		"no answer":      {failed: failed, broken: "request of the administrator"},
		"slow":           {r: Result{Latency: 1.1}, broken: "1.10 s"},
		"grew":           {r: Result{Peak: 301 << 20}, broken: "301 MiB"},
		"may grow":       {r: Result{Attack: Attack{MaxGrowth: 1 << 30}, Peak: 301 << 20}},
		"grew even more": {r: Result{Attack: Attack{MaxGrowth: 1 << 30}, Peak: 2 << 30}, broken: "2048 MiB"},
	} {
		err := c.r.judgeRun(c.attacked, c.failed)
		if (err == nil) != (c.broken == "") || err != nil && !strings.Contains(err.Error(), c.broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPrintedAnswersAreEscapedAndCut(t *testing.T) {
	line := Result{Attack: Attack{Name: "a"}, Answer: "\x1b[31m\n" + strings.Repeat("x", 1000)}.String()
	if strings.ContainsAny(line, "\x1b\n") || len(line) > 2*longestLine {
		t.Errorf("%q", line)
	}
}

// A huge key is in a request that parses, so that only a check of its size refuses it early.
func TestHugeKeyRequestsParse(t *testing.T) {
	der, err := hugeKeyRequest(1 << 10)
	if err != nil || len(der) < 2<<10 {
		t.Errorf("%d bytes, %v", len(der), err)
	}
}

// Calls that the hub must refuse are refused, and at once.
func TestJudgementOfRefusedCalls(t *testing.T) {
	if err := (answerCounts{"PermissionDenied": 1}).checkRefused(time.Second); err != nil {
		t.Errorf("one refused call: %v", err)
	}
	if err := (answerCounts{"PermissionDenied": 1, acceptedAnswer: 2}).checkRefused(time.Second); err == nil || errors.Is(err, ErrSlow) {
		t.Errorf("two accepted calls: %v", err)
	}
	if err := (answerCounts{}).checkRefused(time.Second); !errors.Is(err, ErrSlow) {
		t.Errorf("no answer: %v", err)
	}
}
