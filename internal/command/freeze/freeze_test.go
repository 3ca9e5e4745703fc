package freeze_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/command/freeze"
)

const settings = "atoll.dev/hubsettings/hub"

var kinds = []metav1.APIResourceList{{GroupVersion: "atoll.dev/v1alpha1", APIResources: []metav1.APIResource{{Name: "hubsettings", SingularName: "hubsettings", Kind: "HubSettings"}}}}

func run(t *testing.T, h *clienttest.FakeHub, args ...string) (string, error) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !clienttest.ServeDiscovery(w, r, kinds...) {
			h.ServeHTTP(w, r)
		}
	})
	command := freeze.NewCommand
	if args[0] == "unfreeze" {
		command = freeze.NewUnfreezeCommand
	}
	return clienttest.RunForOutput(t, handler, command, args[1:]...)
}

// The commands write the one field, and make the HubSettings where there are none. Without a reason nothing is written.
func TestFreezeAndUnfreeze(t *testing.T) {
	frozen := `{spec: {undoWindow: 1h, freeze: {reason: outage, by: bob, since: "2026-11-22T12:00:00Z", until: "2099-01-01T00:00:00Z"}}}`
	over := `{spec: {freeze: {reason: outage, by: bob, since: "2026-11-22T12:00:00Z", until: "2026-11-22T13:00:00Z"}}}`
	for name, c := range map[string]struct {
		object string
		args   []string
		want   string
		freeze string
	}{
		"freeze":              {"{spec: {undoWindow: 1h}}", []string{"freeze", "outage"}, "all changes are frozen", `{"reason":"outage"}`},
		"with a time":         {"{spec: {}}", []string{"freeze", "outage", "--until", "2027-01-03T07:00:00+01:00"}, "all changes are frozen", `{"reason":"outage","until":"2027-01-03T06:00:00Z"}`},
		"without settings":    {"", []string{"freeze", "outage"}, "all changes are frozen", `{"reason":"outage"}`},
		"unfreeze":            {frozen, []string{"unfreeze"}, "no freeze holds changes any more", "null"},
		"what is not frozen":  {"", []string{"unfreeze"}, "no freeze holds changes any more", ""},
		"show it":             {frozen, []string{"freeze"}, "bob froze all changes at 2026-11-22T12:00:00Z (outage), until 2099-01-01T00:00:00Z", ""},
		"show one that ended": {over, []string{"freeze"}, "no freeze holds changes", ""},
		"show none":           {"", []string{"freeze"}, "no freeze holds changes", ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := map[string]string{}
			if c.object != "" {
				objects[settings] = c.object
			}
			h := clienttest.NewFakeHub(t, objects)
			out, err := run(t, h, c.args...)
			if err != nil || !strings.Contains(out, c.want) {
				t.Fatalf("%q, %v, want %q", out, err, c.want)
			}
			spec, _ := h.Object(settings)["spec"].(map[string]any)
			if got, _ := json.Marshal(spec["freeze"]); c.freeze != "" && string(got) != c.freeze {
				t.Errorf("frozen: %s, want %s", got, c.freeze)
			}
			if writes := len(h.Writes()); (writes == 0) != (c.args[0] == "freeze" && len(c.args) == 1) {
				t.Errorf("%d writes", writes)
			}
			if c.object == "{spec: {undoWindow: 1h}}" && spec["undoWindow"] != "1h" {
				t.Errorf("other settings are written: %v", spec)
			}
		})
	}
}

// An end is a duration or a time, and needs a reason.
func TestEndsThatAreRefused(t *testing.T) {
	for _, args := range [][]string{{"freeze", "outage", "--until", "tomorrow"}, {"freeze", "--until", "4h"}} {
		h := clienttest.NewFakeHub(t, nil)
		if out, err := run(t, h, args...); err == nil || !strings.Contains(err.Error(), "--until") {
			t.Errorf("%v: %q, %v", args, out, err)
		}
	}
}
