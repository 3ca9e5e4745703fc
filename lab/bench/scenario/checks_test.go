package scenario

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"atoll.dev/atoll/lab/fleet"
)

func TestOnlyAdmissionRefusesForGood(t *testing.T) {
	configMaps := schema.GroupResource{Resource: "configmaps"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing": {nil, false},
		"invalid": {apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "big", field.ErrorList{
			field.TooLong(field.NewPath("data"), "", 1000)}), true},
		"too large":             {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true},
		"too large, of a proxy": {apierrors.NewGenericServerResponse(http.StatusRequestEntityTooLarge, "patch", configMaps, "big", "", 0, true), true},
		"admission":             {apierrors.NewForbidden(configMaps, "big", errors.New("more than 5,000 objects")), true},
		"no rights":             {apierrors.NewForbidden(configMaps, "big", errors.New(`User "x" cannot patch resource "configmaps" in API group ""`)), false},
		"forbidden, no reason":  {&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}}, false},
		"busy":                  {apierrors.NewTooManyRequests("try again", 1), false},
		"broken":                {apierrors.NewInternalError(errors.New("no etcd")), false},
		"timeout":               {apierrors.NewTimeoutError("too slow", 1), false},
		"conflict":              {apierrors.NewConflict(configMaps, "big", errors.New("changed")), false},
		"no answer":             {errors.New("connection refused"), false},
	} {
		if got := isRefusedForContent(c.err); got != c.want {
			t.Errorf("%s (%v): %t, want %t", name, c.err, got, c.want)
		}
		if c.err != nil && isRefusedForContent(fmt.Errorf("apply x: %w", c.err)) != c.want {
			t.Errorf("%s: wrapped it is another", name)
		}
	}
}

func TestAgentsThatStayConnected(t *testing.T) {
	before := fleet.Stats{Agents: 3, Connected: 3, Connects: 7}
	for name, c := range map[string]struct {
		before, after fleet.Stats
		want          bool
	}{
		"all stay":             {before, before, true},
		"one left":             {before, fleet.Stats{Agents: 3, Connected: 2, Connects: 7}, false},
		"one left and is back": {before, fleet.Stats{Agents: 3, Connected: 3, Connects: 8}, false},
		"one was away":         {fleet.Stats{Agents: 3, Connected: 2, Connects: 7}, before, false},
	} {
		if got := allStayedConnected(c.before, c.after); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestFewest(t *testing.T) {
	for expected, want := range map[float64]float64{0: 1, 1: 1, 10: 1, 100: 70, 1500: 1383} {
		if got := leastPlausibleCount(expected); got != want {
			t.Errorf("of %v there are at least %v, want %v", expected, got, want)
		}
	}
}

func TestCallsThatShowSomething(t *testing.T) {
	for _, c := range []struct {
		calls int
		due   float64
		want  bool
	}{{0, 0, false}, {0, 100, false}, {89, 100, false}, {90, 100, true}, {101, 100, true}} {
		if got := enoughCalls(c.calls, c.due); got != c.want {
			t.Errorf("%d calls of %v: %t", c.calls, c.due, got)
		}
	}
}

// TestStormWrites: at full size 500 slices and 200 statuses over two minutes are bounded by
// the budgets of 100 and 50 writes a second; few objects by their own rates.
func TestStormWrites(t *testing.T) {
	if got := maxStormWritesPerSecond(500, 200, 120); math.Abs(got-151.25) > 0.01 {
		t.Errorf("at full size %v writes a second, want 151.25", got)
	}
	// 10 × (3 + 40/4) and 20 × (1 + 40/2) writes in 40 s.
	if got := maxStormWritesPerSecond(10, 20, 40); math.Abs(got-(130+420)/40.0) > 0.01 {
		t.Errorf("in a small run %v writes a second, want 13.75", got)
	}
}

// TestPerCluster: a step over the fleet that allocates four times for each of 4,000 clusters, or twice
// for each of 10,000, is found. Two more writes of 10,000 allocations each are no such step.
func TestPerCluster(t *testing.T) {
	small := touchCost{size: 100, writes: 5.7, allocations: 67_000}
	for _, c := range []struct {
		size  int
		swept float64
		fine  bool
	}{{4000, 0, true}, {4000, 1.7, true}, {4000, 4, false}, {10_000, 1, true}, {10_000, 2, false}} {
		big := touchCost{size: c.size, writes: 7.7, allocations: small.allocations + 20_000 + float64(c.size-small.size)*c.swept}
		if got, most := allocationsPerAddedCluster(small, big); got <= most != c.fine {
			t.Errorf("%v allocations for each of %d clusters: %v, at most %v", c.swept, c.size, got, most)
		}
	}
}

// TestAllocationsOfAChange: neither the speed of the machine, nor what the hub allocates at
// rest, nor a burst by the clock belongs to a change.
func TestAllocationsOfAChange(t *testing.T) {
	const perReading, perRequest = 40_000, 7000
	for _, perSecond := range []float64{0, 10_000} {
		for _, slow := range []float64{1, 3} {
			span := func(requests, seconds, burst float64) allocationSpan {
				seconds *= slow
				return allocationSpan{allocations: perReading + perSecond*seconds + perRequest*requests + burst, requests: requests, seconds: seconds}
			}
			rest := newAllocationsAtRest(
				[]allocationSpan{span(0, 0.1, 0), span(0, 0.12, 0), span(0, 0.1, 20_000)},
				[]allocationSpan{span(0, 3.1, 0), span(0, 3.2, 330_000), span(0, 3.1, 0)})
			got := rest.allocationsPerRequest([]allocationSpan{span(35, 2, 0), span(36, 4, 330_000), span(34, 2.5, 0)})
			if math.Abs(got-perRequest) > perRequest/1000 {
				t.Errorf("%v a second at rest, %v times slower: %v allocations for a request, want %v", perSecond, slow, got, perRequest)
			}
		}
	}
}
