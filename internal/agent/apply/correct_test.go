package apply

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

// More than five corrections within ten minutes are a fight with another writer.
func TestManyCorrectionsInAShortTimeAreAFight(t *testing.T) {
	for name, c := range map[string]struct {
		since time.Duration // the first of all corrections, before the last
		n     int           // corrections before the last
		want  bool
	}{
		"the first one":                  {0, 0, false},
		"the fifth one":                  {time.Minute, 4, false},
		"the sixth one":                  {time.Minute, 5, true},
		"the sixth one in ten minutes":   {fightWindow, 5, true},
		"the sixth one in a longer time": {fightWindow + 1, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &correctionHistory{}
			for i := range c.n {
				at := testNow
				if i == 0 {
					at = testNow.Add(-c.since)
				}
				d.recordCorrection(at, nil, "before")
			}
			if got := d.recordCorrection(testNow, []string{"data.a"}, "kubectl"); got != c.want {
				t.Errorf("a fight is %t, want %t", got, c.want)
			}
			if d.by != "kubectl" || len(d.fields) != 1 || d.fields[0] != "data.a" {
				t.Errorf("the last correction is of %v by %s", d.fields, d.by)
			}
		})
	}
}

// A field of Atoll's that another manager changed is set back. The report names the writer once it fights.
func TestAChangedFieldIsSetBack(t *testing.T) {
	for name, c := range map[string]struct {
		fields string // of Atoll's, before the correction
		others []string
		want   string
	}{
		"a manager took a field":     {`{}`, []string{"kubectl", "some-controller"}, "some-controller changed data again after each of 6 corrections: stop that writer, or take the field out of the template"},
		"no manager and field known": {`{"f:data":{}}`, nil, "another manager changed fields again after each of 6 corrections: stop that writer, or take the field out of the template"},
	} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, liveConf("y"))
			record := wantedRecord(confItem("x"))
			record.Owned = "owned before"
			e := newStubEngine(t, api, []ownership.Record{shopNamespace, record}, newManifest("b1", 1, confItem("x")))
			for n := 1; n <= 6; n++ {
				e.mu.Lock()
				delete(e.views, confKey)
				e.mu.Unlock()
				v := seenConf()
				v.Version, v.Owned, v.Fields, v.Others = "0", "taken", json.RawMessage(c.fields), c.others
				e.ObjectSeen(v)
				if due := e.listDue(); len(due) != 1 || due[0] != "ConfigMap/conf" {
					t.Fatalf("after a change, %v is due", due)
				}
				f := e.workOnKey(t.Context(), confKey)
				api.expectWrites(t, "APPLY conf "+atoll.FieldManager)
				if got := testutil.ToFloat64(e.o.Metrics.corrections); got != float64(n) {
					t.Errorf("%v corrections are counted, want %d", got, n)
				}
				var want *Failure
				if n == 6 {
					want = &Failure{Reason: atoll.ReasonDriftFight, Waits: true, First: 15 * time.Second, Most: 5 * time.Minute, Message: c.want}
				}
				expectFailure(t, f, want)
			}
		})
	}
}

// A correction that changed nothing, or whose object was not seen before, is not counted.
func TestACorrectionWithoutAChangeIsNotCounted(t *testing.T) {
	for name, version := range map[string]string{"the object is as it was": "1", "the object was not seen": ""} {
		t.Run(name, func(t *testing.T) {
			api := newMemoryMember(t, liveConf("x"))
			e := newStubEngine(t, api, []ownership.Record{shopNamespace, wantedRecord(confItem("x"))}, newManifest("b1", 1, confItem("x")))
			if version != "" {
				v := seenConf()
				v.Version = version
				e.ObjectSeen(v)
			}
			e.holdTask(confKey).correct = true
			expectFailure(t, e.workOnKey(t.Context(), confKey), nil)
			api.expectWrites(t, "APPLY conf "+atoll.FieldManager)
			if got := testutil.ToFloat64(e.o.Metrics.corrections); got != 0 || len(e.holdTask(confKey).corrections.at) != 0 {
				t.Errorf("%v corrections are counted", got)
			}
		})
	}
}

// A correction that the member refuses, or for which it lacks the kind, fails for that reason.
func TestACorrectionFailsForItsReason(t *testing.T) {
	unserved := confItem("x")
	unserved.Key.Kind = "Gadget"
	for name, c := range map[string]struct {
		item atoll.RenderedItem
		want *Failure
	}{
		"the member cannot answer": {confItem("x"), busyFailure},
		"the kind is not served":   {unserved, notServed("v1", unserved.Key)},
	} {
		api := refuseSome(newMemoryMember(t, liveConf("y")), refusals{"PATCH conf": memberBusy()})
		e := newStubEngine(t, api, []ownership.Record{shopNamespace, wantedRecord(c.item)}, newManifest("b1", 1, c.item))
		e.holdTask(c.item.Key).correct = true
		t.Run(name, func(t *testing.T) { expectFailure(t, e.workOnKey(t.Context(), c.item.Key), c.want) })
	}
}

// The fields of a fight are listed, or called fields when none is known.
func TestTheFieldsOfAFightAreListed(t *testing.T) {
	for want, fields := range map[string][]string{"fields": nil, "a": {"a"}, "a, b": {"a", "b"}} {
		if got := joinFieldNames(fields); got != want {
			t.Errorf("%v is %q, want %q", fields, got, want)
		}
	}
}
