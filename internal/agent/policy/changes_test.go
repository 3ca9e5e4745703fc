package policy

import (
	"strings"
	"testing"
	"time"
)

// A hold and windows let no change start at a time, and state when that may be different.
func TestWhenChangesMayStart(t *testing.T) {
	const hold, windows = "AgentPolicy agent (generation 7) holds all changes in this cluster (spec.changes.hold): year end", "AgentPolicy agent (generation 7) lets no change start in this cluster before 2026-12-01T22:00:00Z (spec.changes.windows)"
	for name, c := range map[string]struct{ spec, now, why, until string }{
		"no limits":                  {"{}", "2026-12-01T12:00:00Z", "", ""},
		"no changes":                 {"{changes: {}}", "2026-12-01T12:00:00Z", "", ""},
		"a hold":                     {"{changes: {hold: {reason: year end}}}", "2026-12-01T12:00:00Z", hold, ""},
		"a hold with an end":         {"{changes: {hold: {reason: year end, until: '2027-01-02T00:00:00Z'}}}", "2026-12-01T12:00:00Z", hold + "; until 2027-01-02T00:00:00Z", "2027-01-02T00:00:00Z"},
		"a hold that has ended":      {"{changes: {hold: {reason: year end, until: '2027-01-02T00:00:00Z'}}}", "2027-01-02T00:00:00Z", "", ""},
		"before a window":            {"{changes: {windows: [{type: Allow, schedule: 0 22 * * *, duration: 4h}]}}", "2026-12-01T12:00:00Z", windows, "2026-12-01T22:00:00Z"},
		"in a window":                {"{changes: {windows: [{type: Allow, schedule: 0 22 * * *, duration: 4h}]}}", "2026-12-01T23:00:00Z", "", ""},
		"in a window of a zone":      {"{changes: {windows: [{type: Allow, schedule: 0 22 * * *, duration: 4h, timeZone: Asia/Tokyo}]}}", "2026-12-01T14:00:00Z", "", ""},
		"in a Deny window":           {"{changes: {windows: [{type: Deny, schedule: 0 8 * * 1-5, duration: 14h}]}}", "2026-12-01T12:00:00Z", windows, "2026-12-01T22:00:00Z"},
		"a hold in an open window":   {"{changes: {hold: {reason: year end}, windows: [{type: Allow, schedule: 0 22 * * *, duration: 4h}]}}", "2026-12-01T23:00:00Z", hold, ""},
		"a reason of several lines":  {`{changes: {hold: {reason: "a\nb"}}}`, "2026-12-01T12:00:00Z", `AgentPolicy agent (generation 7) holds all changes in this cluster (spec.changes.hold): a\x0ab`, ""},
		"a policy that is no policy": {"{changes: {hold: {}}}", "2026-12-01T12:00:00Z", "", ""}, // it refuses everything already
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		why, until := read(t, c.spec).HoldAt(now)
		got := ""
		if !until.IsZero() {
			got = until.UTC().Format(time.RFC3339)
		}
		if why != c.why || got != c.until {
			t.Errorf("%s: %q until %q, want %q until %q", name, why, got, c.why, c.until)
		}
	}
	if why, _ := (*Policy)(nil).HoldAt(time.Now()); why != "" {
		t.Errorf("without a policy: %s", why)
	}
}

// Changes without a meaning refuse everything, by the field.
func TestChangesThatAreNotUnderstood(t *testing.T) {
	for spec, want := range map[string]string{
		"{changes: {hold: {reason: ''}}}":                                                                           "spec.changes.hold.reason: has 0 bytes",
		"{changes: {hold: {reason: " + strings.Repeat("x", 129) + "}}}":                                             "spec.changes.hold.reason: has 129 bytes",
		"{changes: {hold: {reason: x, until: tomorrow}}}":                                                           "it cannot be read",
		"{changes: {holds: {}}}":                                                                                    "does not support",
		"{changes: {windows: [{type: Perhaps, schedule: 0 22 * * *, duration: 4h}]}}":                               "spec.changes.windows[0].type",
		"{changes: {windows: [{type: Allow, schedule: 0 25 * * *, duration: 4h}]}}":                                 "spec.changes.windows[0].schedule",
		"{changes: {windows: [{type: Allow, schedule: 0 22 * * *, duration: 4s}]}}":                                 "spec.changes.windows[0].duration",
		"{changes: {windows: [{type: Allow, schedule: 0 22 * * *, duration: 4h, timeZone: Mars/Olympus}]}}":         "spec.changes.windows[0].timeZone",
		"{changes: {windows: [" + strings.Repeat("{type: Allow, schedule: 0 22 * * *, duration: 4h}, ", 17) + "]}}": "spec.changes.windows: has 17 windows",
	} {
		if got := read(t, spec).ApplyRefusal(parseKey(deployment), Namespace{}); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}
