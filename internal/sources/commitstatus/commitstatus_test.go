package commitstatus

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// newSource returns a Source with conditions, as TYPE=STATUS/REASON.
func newSource(seen, attempted string, conditions ...string) *v1alpha1.Source {
	s := &v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	s.Status.ObservedGeneration, s.Status.SeenCommit, s.Status.AttemptedCommit = 2, seen, attempted
	for _, c := range conditions {
		kind, rest, _ := strings.Cut(c, "=")
		status, reason, _ := strings.Cut(rest, "/")
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason})
	}
	return s
}

// A report is of the last commit that was read: refused, not applied, on its way, or ready.
func TestDesiredReport(t *testing.T) {
	const applied = "Applied=True/Applied"
	suspended := newSource(commitA, commitA, applied, "Ready=True/Ready")
	suspended.Spec.Suspend = true
	edited := newSource(commitA, commitA, applied, "Ready=True/Ready")
	edited.Generation++
	for name, c := range map[string]struct {
		source *v1alpha1.Source
		want   string
	}{
		"ready":                       {newSource(commitA, commitA, applied, "Ready=True/Ready"), "Success applied, and ready in its clusters"},
		"not ready":                   {newSource(commitA, commitA, applied, "Ready=False/Progressing"), "Pending applied, and not ready in all clusters yet"},
		"not determined":              {newSource(commitA, commitA, applied), "Pending applied, and not ready in all clusters yet"},
		"not applied":                 {newSource(commitA, commitA, "Applied=False/OwnedByOthers", "Ready=True/Ready"), "Failure not applied: OwnedByOthers"},
		"refused":                     {newSource(commitA, commitB, "Rendered=False/ContentInvalid", applied, "Ready=True/Ready"), "Failure not applied: ContentInvalid"},
		"the server is away":          {newSource(commitA, commitA, "Rendered=False/RepositoryUnreachable", applied, "Ready=True/Ready"), "Success applied, and ready in its clusters"},
		"a reason with a line break":  {newSource(commitA, commitA, "Applied=False/a\nb"), `Failure not applied: a\x0ab`},
		"no commit":                   {newSource("", "", applied), ""},
		"a chart":                     {newSource("shop:1.2.3@sha256:0", "shop:1.2.3@sha256:0", applied), ""},
		"a path as commit":            {newSource("../"+commitA[3:], commitA, applied), ""},
		"a spec that is not observed": {edited, ""},
		"a suspended Source":          {suspended, ""},
	} {
		r, ok := DesiredReport(c.source)
		got := ""
		if ok {
			got = string(r.State) + " " + r.Description
			if r.Commit != c.source.Status.SeenCommit {
				t.Errorf("%s: the report is of %s", name, r.Commit)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A server takes a report once. A commit that was ready is not reported as pending again.
func TestIsNews(t *testing.T) {
	last := func(commit string, state v1alpha1.CommitState) *v1alpha1.SourceCommitStatus {
		return &v1alpha1.SourceCommitStatus{Commit: commit, State: state}
	}
	for name, c := range map[string]struct {
		last *v1alpha1.SourceCommitStatus
		now  v1alpha1.CommitState
		want bool
	}{
		"nothing before":            {nil, v1alpha1.CommitPending, true},
		"only a problem before":     {&v1alpha1.SourceCommitStatus{Problem: "p"}, v1alpha1.CommitPending, true},
		"another commit":            {last(commitB, v1alpha1.CommitPending), v1alpha1.CommitPending, true},
		"the same":                  {last(commitA, v1alpha1.CommitFailure), v1alpha1.CommitFailure, false},
		"ready now":                 {last(commitA, v1alpha1.CommitPending), v1alpha1.CommitSuccess, true},
		"not ready any more":        {last(commitA, v1alpha1.CommitSuccess), v1alpha1.CommitPending, false},
		"not applied any more":      {last(commitA, v1alpha1.CommitSuccess), v1alpha1.CommitFailure, true},
		"applied after a failure":   {last(commitA, v1alpha1.CommitFailure), v1alpha1.CommitPending, true},
		"ready again after failure": {last(commitA, v1alpha1.CommitFailure), v1alpha1.CommitSuccess, true},
	} {
		if got := IsNews(c.last, Report{Commit: commitA, State: c.now}); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func newSpec(server v1alpha1.GitServer, url, api string) *v1alpha1.RepositorySpec {
	return &v1alpha1.RepositorySpec{Git: &v1alpha1.GitRepository{URL: url}, CommitStatus: &v1alpha1.RepositoryCommitStatus{Server: server, URL: api}}
}

// Each server gets its own address, header and words.
func TestNewMessage(t *testing.T) {
	report := Report{Commit: commitA, State: v1alpha1.CommitFailure, Description: "not applied: X"}
	for name, c := range map[string]struct {
		spec                       *v1alpha1.RepositorySpec
		url, header, field, status string
	}{
		"GitHub":              {newSpec("GitHub", "https://github.com/shop/web.git", ""), "https://api.github.com/repos/shop/web/statuses/" + commitA, "Authorization: Bearer t", "context", "failure"},
		"GitHub over SSH":     {newSpec("GitHub", "ssh://git@github.com:443/shop/web", ""), "https://api.github.com/repos/shop/web/statuses/" + commitA, "Authorization: Bearer t", "context", "failure"},
		"GitHub Enterprise":   {newSpec("GitHub", "https://git.example.com:8443/shop/web", ""), "https://git.example.com:8443/api/v3/repos/shop/web/statuses/" + commitA, "Authorization: Bearer t", "context", "failure"},
		"Gitea below a path":  {newSpec("Gitea", "https://example.com/git/shop/web.git", "https://example.com/git/api/v1/"), "https://example.com/git/api/v1/repos/shop/web/statuses/" + commitA, "Authorization: token t", "context", "failure"},
		"GitLab with groups":  {newSpec("GitLab", "https://gitlab.com/a/b/c.git", ""), "https://gitlab.com/api/v4/projects/a%2Fb%2Fc/statuses/" + commitA, "PRIVATE-TOKEN: t", "name", "failed"},
		"a name with escapes": {newSpec("Gitea", "https://example.com/shop/a%3Fb", ""), "https://example.com/api/v1/repos/shop/a%3Fb/statuses/" + commitA, "Authorization: token t", "context", "failure"},
	} {
		m, err := NewMessage(c.spec, report, "atoll/shop/web", "t")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var body map[string]string
		if err := json.Unmarshal(m.Body, &body); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"state": c.status, "description": "not applied: X", c.field: "atoll/shop/web"}
		if m.URL != c.url || m.Header+": "+m.Value != c.header || !reflect.DeepEqual(body, want) {
			t.Errorf("%s: %s %s %s %v", name, m.URL, m.Header, m.Value, body)
		}
	}
}

// A Repository is refused without an owner and a name, and with an API that would get the token in the clear or elsewhere.
func TestCheckRepository(t *testing.T) {
	for name, c := range map[string]struct {
		spec *v1alpha1.RepositorySpec
		want string
	}{
		"all is well":         {newSpec("GitHub", "https://github.com/shop/web", ""), ""},
		"a home directory":    {newSpec("Gitea", "ssh://git@example.com/~/shop/web", ""), ""},
		"no name":             {newSpec("GitHub", "https://github.com/shop", ""), "no owner and name"},
		"no git repository":   {&v1alpha1.RepositorySpec{OCI: &v1alpha1.OCIRepository{URL: "oci://example.com/a/b"}, CommitStatus: &v1alpha1.RepositoryCommitStatus{}}, "git repositories alone"},
		"an API in the clear": {newSpec("GitLab", "https://example.com/a/b", "http://example.com/api/v4"), "must be https://"},
		"an API with a user":  {newSpec("GitLab", "https://example.com/a/b", "https://u:p@example.com/api/v4"), "must be https://"},
		"an API with a query": {newSpec("GitLab", "https://example.com/a/b", "https://example.com/api/v4?a=b"), "must be https://"},
		"an API with a mark":  {newSpec("GitLab", "https://example.com/a/b", "https://example.com/do?"), "must be https://"},
		"a path that climbs":  {newSpec("Gitea", "https://example.com/a/..", ""), "no owner and name"},
		"an API with no host": {newSpec("GitLab", "https://example.com/a/b", "https:///api"), "must be https://"},
		"an API with a zone":  {newSpec("GitLab", "https://example.com/a/b", "https://[fe80::1%25eth0]/api"), "must be https://"},
	} {
		if got := fmt.Sprint(CheckRepository(c.spec)); c.want == "" && got != "<nil>" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestJudgeAnswer(t *testing.T) {
	for status, want := range map[int]string{200: "", 201: "", 302: "redirects", 401: "the token", 403: "the token", 404: "no such repository", 422: "status 422", 500: "status 500"} {
		if got := JudgeAnswer(status); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%d: %q", status, got)
		}
	}
}
