package binder

import (
	"errors"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/bundlecontent"
	"atoll.dev/atoll/internal/policymatch"
)

func TestAProblemNamesNoSecret(t *testing.T) {
	for kind, named := range map[string]bool{"Secret": false, "ConfigMap": true} {
		p := bundlecontent.TemplateProblem{Key: atoll.ItemKey{Kind: kind, Namespace: "shop", Name: "tls-of-bank"}, Err: errors.New(kind + " tls-of-bank is too large")}
		if got := redactSecrets(p); strings.Contains(got, "tls-of-bank") != named {
			t.Errorf("a %s: %q", kind, got)
		}
	}
}

// A problem is reported once for as long as it lasts, and again when it returns or changes.
func TestProblemsAreReportedOnce(t *testing.T) {
	b, _, _ := newTestBinder(t)
	refusals := recordedRefusals{}
	b.Events = refusals
	id, web, api := policymatch.BundleID{Namespace: "shop", Name: "a"}, newKey("Deployment", "web"), newKey("Deployment", "api")
	problem := func(key atoll.ItemKey, text string) bundlecontent.TemplateProblem {
		return bundlecontent.TemplateProblem{Key: key, Err: errors.New(text)}
	}
	for i, tc := range []struct {
		problems []bundlecontent.TemplateProblem
		web, api int // reports of each so far
	}{
		{[]bundlecontent.TemplateProblem{problem(web, "large")}, 1, 0},
		{[]bundlecontent.TemplateProblem{problem(web, "large")}, 1, 0},
		{[]bundlecontent.TemplateProblem{problem(web, "large"), problem(api, "large")}, 1, 1},
		{[]bundlecontent.TemplateProblem{problem(web, "larger"), problem(api, "large")}, 2, 1},
		{[]bundlecontent.TemplateProblem{problem(atoll.ItemKey{}, "the rules are large")}, 2, 1},
		{nil, 2, 1},
		{[]bundlecontent.TemplateProblem{problem(api, "large")}, 2, 2},
	} {
		b.policyStatus.setProblems(id, atoll.ReasonCannotSend, tc.problems)
		if len(refusals[web]) != tc.web || len(refusals[api]) != tc.api || len(refusals) > 2 {
			t.Errorf("%d: %v, want %d and %d reports", i, refusals, tc.web, tc.api)
		}
		if has := len(b.policyStatus.reportedProblems) == 1; has != (len(tc.problems) > 0) {
			t.Errorf("%d: remembered %v", i, b.policyStatus.reportedProblems)
		}
	}
	if want := string(atoll.ReasonCannotSend) + ": large; members keep what they have of it"; refusals[web][0] != want {
		t.Errorf("%q, want %q", refusals[web][0], want)
	}
}
