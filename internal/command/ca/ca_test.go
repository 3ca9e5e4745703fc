package ca_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/command/ca"
	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/trust/standing"
)

// Status reads; each other subcommand asks for its own action, and force is never implied.
func TestEachSubcommandAsksForItsAction(t *testing.T) {
	for args, want := range map[string]string{
		"status":         "GET ",
		"rotate":         "POST action=rotate&force=false",
		"finish":         "POST action=finish&force=false",
		"finish --force": "POST action=finish&force=true",
	} {
		got := ""
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			query := r.URL.Query()
			query.Del("timeout")
			got = r.Method + " " + query.Encode()
			if r.URL.Path != standing.Path {
				t.Errorf("%s: the path is %s", args, r.URL.Path)
			}
			_ = json.NewEncoder(w).Encode(standing.CAStatus{Generation: 3, CAHash: "the-hash"}) // the client has gone
		})
		out := clienttest.NewWriteLimitedBuffer()
		if err := clienttest.Run(t.Context(), t, h, ca.NewCommand, clienttest.Said{Out: out, Notes: clienttest.NewWriteLimitedBuffer()}, strings.Fields(args)...); err != nil || got != want || !strings.Contains(out.String(), "the-hash") {
			t.Errorf("%s: %v, %q, want %q; it prints %s", args, err, got, want, out)
		}
		out = clienttest.NewWriteLimitedBuffer()
		err := clienttest.Run(t.Context(), t, h, ca.NewCommand, clienttest.Said{Out: out, Notes: clienttest.NewWriteLimitedBuffer()}, append(strings.Fields(args), "-o", "json")...)
		var s standing.CAStatus
		if err != nil || json.Unmarshal([]byte(out.String()), &s) != nil || s.Generation != 3 {
			t.Errorf("%s as JSON: %v, %s", args, err, out)
		}
	}
}

func TestFailuresAreExplained(t *testing.T) {
	for name, c := range map[string]struct {
		code       int
		body, want string
	}{
		"a refusal":      {http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"message":"agents would be locked out"}`, "agents would be locked out"},
		"no hub":         {http.StatusNotFound, "404 page not found", "it is no hub, or one older than this command"},
		"an old hub":     {http.StatusMethodNotAllowed, "", "it is no hub, or one older than this command"},
		"something else": {http.StatusOK, "<html>", "answered with something else"},
	} {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body)) // the client has gone
		})
		err := clienttest.Run(t.Context(), t, h, ca.NewCommand, clienttest.Said{Out: clienttest.NewWriteLimitedBuffer(), Notes: clienttest.NewWriteLimitedBuffer()}, "finish")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
