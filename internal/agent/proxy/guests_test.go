package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/agent/policy"
	"atoll.dev/atoll/internal/atoll"
)

// limitPeople limits users by the spec of a policy; empty: no limits.
func (w *world) limitAgent(t *testing.T, reach string) {
	t.Helper()
	var p *policy.Policy
	if reach != "" {
		text, err := yaml.YAMLToJSON([]byte("metadata: {name: agent}\nspec: {reach: " + reach + "}"))
		if err != nil {
			t.Fatal(err)
		}
		p = policy.ParsePolicy(text)
	}
	w.policy.Store(p)
	w.server.ReevaluatePolicy()
}

// refusalText returns the message of a refusal.
func refusalText(t *testing.T, answer *http.Response) string {
	t.Helper()
	var status metav1.Status
	if err := json.NewDecoder(answer.Body).Decode(&status); err != nil || answer.StatusCode != http.StatusForbidden || status.Reason != metav1.StatusReasonForbidden {
		t.Fatalf("%d %+v, %v", answer.StatusCode, status, err)
	}
	return status.Message
}

// TestTheAdministratorSaysWhatIsShown: what the hub requests in its own name is of some sort too.
func TestTheAdministratorSaysWhatIsShown(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("it came to the member with a user") })
	for _, c := range []struct{ reach, path, refuse string }{
		{"", "/api/v1/pods", ""},
		{"{users: [joe]}", "/api/v1/pods", ""},
		{"{requests: [Read]}", "/api/v1/pods", ""},
		{"{requests: [Read]}", "/api/v1/namespaces/a/pods/b/log", "of the sort Logs"},
		{"{requests: []}", "/api/v1/pods", "of the sort Read"},
	} {
		w.limitAgent(t, c.reach)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://member"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = atoll.FleetViewHost
		answer, err := w.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if c.refuse != "" {
			if got := refusalText(t, answer); !strings.Contains(got, c.refuse) {
				t.Errorf("%s of %s: %q; wanted %q", c.path, c.reach, got, c.refuse)
			}
		} else if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "live "+c.path {
			t.Errorf("%s of %s: %d %q, %v", c.path, c.reach, answer.StatusCode, body, err)
		}
		answer.Body.Close()
	}
}

func TestTheAdministratorSaysWhoComesInAndToDoWhat(t *testing.T) {
	seen := make(chan []string, 1)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header.Values("Impersonate-Group") })
	for _, c := range []struct{ what, reach, path, groups, refuse string }{
		{what: "no policy", path: "/api/v1/pods", groups: "dev"},
		{what: "users", reach: "{users: [jane]}", path: "/api/v1/pods", groups: "dev"},
		{what: "users, another", reach: "{users: [joe]}", path: "/api/v1/pods", refuse: `does not let user "jane" in`},
		{what: "groups", reach: "{groups: [ops]}", path: "/api/v1/pods", groups: ""},
		{what: "requests", reach: "{requests: [Read]}", path: "/api/v1/pods", groups: "dev"},
		{what: "requests, logs", reach: "{requests: [Read]}", path: "/api/v1/namespaces/a/pods/b/log", refuse: "of the sort Logs"},
	} {
		t.Run(c.what, func(t *testing.T) {
			w.limitAgent(t, c.reach)
			answer := w.sendRequest(t, t.Context(), c.path, map[string]string{"Impersonate-Group": "dev"})
			if c.refuse != "" {
				if got := refusalText(t, answer); !strings.Contains(got, c.refuse) {
					t.Errorf("%q; wanted %q", got, c.refuse)
				}
				return
			}
			if got := strings.Join(<-seen, " "); answer.StatusCode != http.StatusOK || got != c.groups {
				t.Errorf("%d, in %q; wanted %q", answer.StatusCode, got, c.groups)
			}
		})
	}
}

// TestWhatIsUnderWayEndsWithItsPermission: what the new policy allows as well goes on.
func TestWhatIsUnderWayEndsWithItsPermission(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(rw, "first")
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	})
	begin := func(user string) *bufio.Reader {
		lines := bufio.NewReader(w.sendRequest(t, t.Context(), "/api/v1/namespaces/a/pods/b/log", map[string]string{"Impersonate-User": user}).Body)
		if line, err := lines.ReadString('\n'); err != nil || line != "first\n" {
			t.Fatalf("%q, %v", line, err)
		}
		return lines
	}
	jane, joe := begin("jane"), begin("joe")
	w.limitAgent(t, "{users: [joe], groups: [dev]}")
	if _, err := jane.ReadString('\n'); err == nil {
		t.Error("jane still hears")
	}
	w.server.requestGuard.mu.Lock()
	inside := len(w.server.requestGuard.inside)
	w.server.requestGuard.mu.Unlock()
	if inside != 1 {
		t.Errorf("%d requests are under way, want that of joe", inside)
	}
	w.limitAgent(t, "{requests: []}")
	if _, err := joe.ReadString('\n'); err == nil {
		t.Error("joe still hears")
	}
}

func TestARequestThatWaitsForItsAnswerIsToldThatItEnded(t *testing.T) {
	arrived := make(chan bool)
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // a return would answer 200, and that may arrive first
	})
	go func() {
		<-arrived
		w.limitAgent(t, "{users: [joe]}")
	}()
	answer := w.sendRequest(t, t.Context(), "/api/v1/pods", nil)
	if got := refusalText(t, answer); !strings.Contains(got, "does not allow it any more") {
		t.Error(got)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
}
