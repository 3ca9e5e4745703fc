package atoll

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDriftOrders(t *testing.T) {
	const a, b = "0123456789abcdef", "fedcba9876543210"
	many := make([]string, MaxOrderedDrifts+1)
	for i := range many {
		many[i] = a
	}
	for name, c := range map[string]struct {
		orders []DriftOrder
		text   string
	}{
		"one":              {[]DriftOrder{{IDs: []string{a}}}, a},
		"of a user":        {[]DriftOrder{{IDs: []string{a, b}, By: "system:serviceaccount:x:y"}}, a + "," + b + " system:serviceaccount:x:y"},
		"with an earlier":  {[]DriftOrder{{IDs: []string{a}, By: "alice b"}, {IDs: []string{b}, By: "bob"}}, a + " alice b\n" + b + " bob"},
		"as many as there": {[]DriftOrder{{IDs: many[1:], By: "alice"}}, strings.Join(many[1:], ",") + " alice"},
	} {
		if got := FormatDriftOrders(c.orders); got != c.text {
			t.Errorf("%s: %q, want %q", name, got, c.text)
		}
		if got, err := ParseDriftOrders(c.text); err != nil || !reflect.DeepEqual(got, c.orders) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got := FormatDriftOrders([]DriftOrder{{IDs: many, By: "alice"}, {IDs: []string{b}, By: "bob"}}); got != strings.Join(many[1:], ",")+" alice" {
		t.Errorf("more than there may be: %d bytes", len(got))
	}
	if got := FormatDriftOrders([]DriftOrder{{IDs: []string{a}, By: "eve\n" + b + " root"}}); strings.Contains(got, "\n") {
		t.Errorf("a name makes another order: %q", got)
	}
	for name, text := range map[string]string{
		"nothing": "", "no ID": "alice", "upper case": strings.ToUpper(a), "too short": a[1:], "an empty part": a + ",", "an empty line": a + "\n",
		"too many": strings.Join(many, ","), "far too many": strings.Repeat(",", 1<<20),
	} {
		if got, err := ParseDriftOrders(text); err == nil {
			t.Errorf("%s is read as %d orders", name, len(got))
		}
	}
}

// An approval ends when the member reports other drift, or none, of the row's present order.
func TestOpenApprovals(t *testing.T) {
	const id, other = "0123456789abcdef", "fedcba9876543210"
	key := ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "a"}
	spec := RowSpec{Generation: 5, Approvals: []DriftApproval{{Item: key.String(), ID: id}}}
	status := func(generation int64, drifted int32, items ...ItemStatus) *RowStatus {
		return &RowStatus{Generation: generation, Applied: true, Drifted: drifted, Items: items}
	}
	of := func(id string) ItemStatus { return ItemStatus{Key: key, Drift: &Drift{Missing: true, ID: id}} }
	for name, c := range map[string]struct {
		status *RowStatus
		isOpen bool
	}{
		"never reported":                    {nil, true},
		"reported before":                   {status(4, 0), true},
		"the same drift":                    {status(5, 1, of(id)), true},
		"the same drift, and failed":        {status(5, 1, ItemStatus{Key: key, Error: true, Drift: &Drift{ID: id}}), true},
		"other drift":                       {status(5, 1, of(other)), false},
		"drift that is only reported":       {status(5, 1, of("")), false},
		"no drift":                          {status(5, 0), false},
		"no drift, and listed":              {status(6, 0, ItemStatus{Key: key, Reason: "CrashLoopBackOff"}), false},
		"not compared yet":                  {status(5, 0, ItemStatus{Key: key, Reason: ReasonPending}), true},
		"it cannot be compared":             {status(5, 0, ItemStatus{Key: key, Reason: ReasonForbidden, Error: true}), true},
		"among those without room":          {status(5, 1), true},
		"among those that are not ready":    {&RowStatus{Generation: 5, Applied: true, UnlistedNotReady: 1}, true},
		"among those that are not compared": {&RowStatus{Generation: 5}, true},
	} {
		if got := spec.OpenApprovals(c.status); (len(got) == 1) != c.isOpen {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if len(spec.Approvals) != 1 {
		t.Error("the row was changed")
	}
}

// The origin of an approval has no time where none is known.
func TestTheOriginOfAnApproval(t *testing.T) {
	if got := (DriftApproval{By: "alice"}).ToOrigin(); got.By != "alice" || got.At != nil {
		t.Errorf("%+v", got)
	}
	if got := (DriftApproval{At: 1_790_000_000}).ToOrigin(); got.At == nil || got.At.Unix() != 1_790_000_000 || got.At.Location() != time.UTC {
		t.Errorf("%+v", got)
	}
}
